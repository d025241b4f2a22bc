package rollup

import "slices"

// Extend sets into to the buckets of stored and added, ordered by time. Both have all columns. The buckets of stored
// are width milliseconds wide; those of added may be narrower, but don't cross a multiple of width. The result contains
// buckets of that width. If a bucket of added lies in a bucket of stored, and all samples of one are older than all
// samples of the other, they are merged as by Coarsen. Otherwise both may contain the same samples, and the bucket of
// added is left out:
//
//	stored:       [    · · ·····    ]
//	added:        [a)[b)[c)[d)[e)[f)      a, b and f are added; c, d and e are left out
//
// Extend returns the number of stored buckets that were extended, and the number of added samples that were left out.
// It may move memory between its arguments.
func Extend(into, stored, added *Buckets, width int64) (extended, left int) {
	var changed Buckets
	for j := 0; j < added.Len(); {
		start, end := bucketAround(added.End[j], width)
		i, ok := slices.BinarySearch(stored.End, end)
		var parts, newer Buckets
		for ; j < added.Len() && added.End[j] <= end; j++ {
			switch {
			case !ok || added.Count[j] > 0 && precedes(added, j, stored, i):
				parts.AppendRange(added, j, j+1, AllColumns)
			case precedes(stored, i, added, j):
				newer.AppendRange(added, j, j+1, AllColumns)
			default:
				left += int(added.Count[j])
			}
		}
		if parts.Len()+newer.Len() == 0 {
			continue
		}
		if ok {
			extended++
			parts.AppendRange(stored, i, i+1, AllColumns)
		}
		parts.AppendRange(&newer, 0, newer.Len(), AllColumns)
		if parts.Len() == 1 && parts.Start[0] == start {
			changed.AppendRange(&parts, 0, 1, AllColumns)
			continue
		}
		coarsenOne(&changed, &parts, 0, parts.Len(), start, end)
		if width == OneHour.Width() { // The sketch of a narrower bucket also covers other buckets.
			coarsenSketches(&changed, changed.Len()-1, &parts, 0, parts.Len())
		}
	}
	Merge(into, &changed, stored, AllColumns)
	return extended, left
}

// precedes reports whether all samples of bucket i of a are certainly older than those of bucket j of b. Buckets that
// aren't simple may have samples outside FirstT and LastT. Of aggregates, these times are estimates. Aggregates may
// include a sample at the start of their bucket, but not at its end.
func precedes(a *Buckets, i int, b *Buckets, j int) bool {
	last, first := a.LastT[i], b.FirstT[j]
	if a.Flags[i]&Aggregated != 0 {
		last = max(last, a.End[i]-1)
	}
	if b.Flags[j]&Aggregated != 0 {
		first = b.Start[j]
	}
	return (a.Flags[i]|b.Flags[j])&NotSimple == 0 && b.Count[j] > 0 && (a.Count[i] == 0 || last < first)
}
