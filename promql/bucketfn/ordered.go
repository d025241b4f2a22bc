package bucketfn

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/layouts"
)

// hasOrderedSum reports whether the sum of consecutive buckets of histograms may differ from Prometheus' sum of the
// same histograms, because Prometheus adds the histograms one by one. The numbers and the sums of observations don't
// differ, unless they may overflow.
func (e *Evaluator) hasOrderedSum(list []*rollup.Histograms) bool {
	var all layouts.Joined
	for _, h := range list {
		all.Add(h.Layouts, h.Sum, h.Sum.Schema)
	}
	switch {
	case all.Traits&layouts.Large != 0:
		return true
	case e.OnlyCounts:
		return false
	case all.Differ() && all.Traits&layouts.ZeroOverlaps != 0:
		return true
	case !all.MayMove():
		return false
	case all.Traits&layouts.HasMoved != 0:
		return true
	}
	return slices.ContainsFunc(list, func(h *rollup.Histograms) bool { return all.Moves(h.Sum) })
}

// hasOrderedCorrections reports whether the increase over consecutive buckets of histograms may differ from Prometheus'
// increase, because Prometheus adds the histograms before each reset one by one.
func (e *Evaluator) hasOrderedCorrections(list []*rollup.Histograms) bool {
	if !slices.ContainsFunc(list, e.hasAddedCorrections) {
		return false
	}
	var all layouts.Joined
	for _, h := range list {
		all.Add(h.Layouts, h.First, h.First.Schema)
		all.Add(h.Layouts, h.Last, h.Last.Schema-int32(h.Coarser))
		for _, correction := range []*histogram.FloatHistogram{h.Correction, h.StartCorrection} {
			if correction != nil {
				all.Add(h.Layouts, correction, correction.Schema)
			}
		}
	}
	for _, h := range list {
		switch {
		case !e.hasAddedCorrections(h):
		case h.Layouts&layouts.Large != 0:
			return true
		case e.OnlyCounts:
		case all.Differ() && h.Layouts&layouts.ZeroOverlaps != 0,
			h.Layouts&layouts.ThresholdsDiffer != 0 && h.Layouts&layouts.HasMoved != 0,
			all.MayMove() && (all.Moves(h.Correction) || all.Moves(h.StartCorrection)):
			return true
		}
	}
	return false
}

// hasAddedCorrections reports whether the corrections of a bucket consist of multiple histograms.
func (e *Evaluator) hasAddedCorrections(h *rollup.Histograms) bool {
	if e.starts.b == nil {
		return h.Layouts&layouts.CorrectionsAdded != 0
	}
	return h.Layouts&(layouts.CorrectionsAdded|layouts.StartCorrectionsAdded) != 0 ||
		h.Correction != nil && h.StartCorrection != nil
}
