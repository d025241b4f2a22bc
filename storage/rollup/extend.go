package rollup

import "sort"

// Extend sets into to the buckets of stored and added, ordered by time. All have the same width in milliseconds and all
// columns. If both have a bucket with the same end and all samples of one are older than all samples of the other, the
// two buckets are merged as by Coarsen. Otherwise the two buckets may share samples, and the stored bucket is kept
// unchanged. Extend returns the number of buckets that were extended, and the number of added samples that were left
// out. It may move memory between its arguments.
func Extend(into, stored, added *Buckets, width int64) (extended, left int) {
	joined := map[int]int{} // index in stored to index in added
	for j, end := range added.End {
		i := sort.Search(len(stored.End), func(i int) bool { return stored.End[i] >= end })
		switch {
		case i == len(stored.End) || stored.End[i] != end || added.Count[j] == 0:
		case disjoint(stored, i, added, j):
			joined[i] = j
		default:
			left += int(added.Count[j])
		}
	}
	if len(joined) == 0 {
		Merge(into, stored, added, AllColumns)
		return 0, left
	}
	var all Buckets
	for i := range stored.End {
		j, ok := joined[i]
		if !ok {
			all.copy(stored, i, i+1, AllColumns)
			continue
		}
		var pair, one Buckets
		if stored.Count[i] > 0 && added.LastT[j] < stored.FirstT[i] {
			pair.copy(added, j, j+1, AllColumns)
			pair.copy(stored, i, i+1, AllColumns)
		} else {
			pair.copy(stored, i, i+1, AllColumns)
			pair.copy(added, j, j+1, AllColumns)
		}
		start, end := bucketAround(stored.End[i], width)
		coarsenOne(&one, &pair, 0, 2, start, end)
		if width == OneHour.Width() { // The sketch of a narrower bucket also covers other buckets.
			coarsenSketches(&one, 0, &pair, 0, 2)
		}
		all.copy(&one, 0, 1, AllColumns)
	}
	Merge(into, &all, added, AllColumns)
	return len(joined), left
}

// disjoint reports whether bucket i of a and bucket j of b can't share a sample. Buckets that aren't simple may have
// samples outside FirstT and LastT.
func disjoint(a *Buckets, i int, b *Buckets, j int) bool {
	if (a.Flags[i]|b.Flags[j])&NotSimple != 0 {
		return false
	}
	if isAggregated := a.Flags[i]&Aggregated != 0; a.Count[i] > 0 && (isAggregated || b.Flags[j]&Aggregated != 0) {
		if !isAggregated {
			a, i, b, j = b, j, a, i
		}
		// Aggregates never include a sample at the end of their bucket.
		return b.Flags[j]&Aggregated == 0 && b.FirstT[j] >= a.End[i] && a.LastT[i] < a.End[i]
	}
	return a.Count[i] == 0 || a.LastT[i] < b.FirstT[j] || b.LastT[j] < a.FirstT[i]
}
