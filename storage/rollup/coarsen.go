package rollup

// Coarsen appends to into the buckets of width milliseconds that fine buckets make, whose own edges all lie at,
// or between, multiples of it. Both have all columns; into may be empty, and ends before the first of fine.
// The result is that of AppendEvery on the same samples; sums, corrections and values computed from them may differ
// by the rounding of a float.
func Coarsen(into, fine *Buckets, width int64) {
	for from := 0; from < len(fine.End); {
		start, end := around(fine.End[from], width)
		to := from + 1
		for to < len(fine.End) && fine.End[to] <= end {
			to++
		}
		coarsenOne(into, fine, from, to, start, end)
		from = to
	}
}

// coarsenOne makes one bucket of those from one index to another.
func coarsenOne(into, fine *Buckets, from, to int, start, end int64) {
	i := into.add(start, end)
	flags := fine.Flags[to-1] & EndsStale
	floats, histograms := false, false
	for at := from; at < to; at++ {
		flags |= fine.Flags[at] & NotSimple
		if fine.Flags[at]&HasHistograms != 0 {
			histograms = true
		} else if fine.Count[at] > 0 {
			floats = true
		}
	}
	into.Flags[i] = flags
	if floats {
		coarsenFloats(into, i, fine, from, to)
	}
	switch {
	case !histograms:
	case floats || flags&NotSimple != 0:
		into.Flags[i] |= NotSimple
	default:
		coarsenHistograms(into, i, fine, from, to)
	}
}

// coarsenFloats fills bucket i with the buckets' values of floats.
func coarsenFloats(into *Buckets, i int, fine *Buckets, from, to int) {
	var r run
	first, last, count := 0, -1, uint32(0)
	for at := from; at < to; at++ {
		if fine.Count[at] == 0 || fine.Flags[at]&HasHistograms != 0 {
			continue
		}
		r.addMoment(float64(count), fine, at)
		if last < 0 {
			first = at
			r.min, r.max = fine.Min[at], fine.Max[at]
		} else {
			r.step(fine.Last[last], fine.First[at])
			r.extend(fine.Min[at], fine.Max[at])
		}
		r.sum.addSum(fine.Sum[at], fine.SumLow[at])
		if fine.Resets[at] > 0 {
			r.correction.add(fine.Correction[at])
		}
		r.resets += fine.Resets[at]
		r.changes += fine.Changes[at]
		count += fine.Count[at]
		last = at
	}
	switch {
	case !(r.min < r.max) || !isFinite(r.sum.total()):
		r.moment = 0
	case r.moment >= 0: // Not unknown, nor NaN.
		r.moment = roundMoment(r.moment)
	default:
		r.moment = unknownMoment
	}
	into.Count[i] = count
	into.FirstT[i], into.LastT[i] = fine.FirstT[first], fine.LastT[last]
	into.First[i], into.Last[i] = fine.First[first], fine.Last[last]
	if fine.FirstST != nil {
		into.setStarts(i, fine.FirstST[first], fine.LastST[last])
	}
	r.put(into, i)
}

// addMoment adds the moment of a bucket to that of the n values before it, whose sum the run has.
func (r *run) addMoment(n float64, fine *Buckets, at int) {
	switch {
	case n == 0:
		r.moment = fine.Moment[at]
	case r.moment < 0 || fine.Moment[at] < 0:
		r.moment = unknownMoment
	default:
		r.moment += fine.Moment[at] + MomentBetween(n, r.sum.high, r.sum.low, float64(fine.Count[at]), fine.Sum[at], fine.SumLow[at])
	}
}

// coarsenHistograms fills bucket i with the histograms of the buckets, or marks it where they aren't alike.
func coarsenHistograms(into *Buckets, i int, fine *Buckets, from, to int) {
	var h Histograms
	first, last := -1, 0
	count, resets, changes := uint32(0), uint32(0), uint32(0)
	for at := from; at < to; at++ {
		next := fine.Histograms[at]
		if next == nil {
			continue
		}
		if first < 0 {
			first, h.First = at, next.First
		} else if !alike(h.First, next.First) || !h.step(fine.Histograms[last].Last, next.First, &resets, &changes) {
			into.Flags[i] |= NotSimple
			return
		}
		if next.Correction != nil && !h.correct(next.Correction) {
			into.Flags[i] |= NotSimple
			return
		}
		count += fine.Count[at]
		resets += fine.Resets[at]
		changes += fine.Changes[at]
		last = at
	}
	h.Last = fine.Histograms[last].Last
	into.Count[i] = count
	into.FirstT[i], into.LastT[i] = fine.FirstT[first], fine.LastT[last]
	if fine.FirstST != nil {
		into.setStarts(i, fine.FirstST[first], fine.LastST[last])
	}
	into.Resets[i], into.Changes[i] = resets, changes
	into.setHistograms(i, &h)
}
