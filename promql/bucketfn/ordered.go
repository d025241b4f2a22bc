package bucketfn

import (
	"slices"

	"github.com/cassia-db/cassia/storage/rollup"
)

// hasOrderedSum reports whether the sum of the buckets of histograms may depend on the order of addition. The sums of
// counts and of observations don't, unless they may overflow.
func (e *Evaluator) hasOrderedSum(list []*rollup.Histograms) bool {
	if e.OnlyCounts {
		return hasLargeCounts(list)
	}
	return rollup.HasOrderedSum(list)
}

// hasOrderedCorrections reports whether the increase over the buckets of histograms may depend on the order in which
// corrections are added.
func (e *Evaluator) hasOrderedCorrections(list []*rollup.Histograms) bool {
	if e.OnlyCounts {
		return hasLargeCounts(list)
	}
	return rollup.HasOrderedCorrections(list, e.starts.b != nil)
}

func hasLargeCounts(list []*rollup.Histograms) bool {
	return slices.ContainsFunc(list, func(h *rollup.Histograms) bool { return h.Layouts&rollup.LargeCounts != 0 })
}
