package rollup

// Coarsen appends to into the buckets of width milliseconds that contain the buckets of fine. No bucket of fine may
// cross a multiple of width. fine must have all columns; into must have all columns or be empty, and end before the
// first bucket of fine. The result equals that of AppendEvery on the same samples, except that sums, corrections and
// values computed from them may differ by float rounding.
func Coarsen(into, fine *Buckets, width int64) {
	for from := 0; from < len(fine.End); {
		start, end := bucketAround(fine.End[from], width)
		to := from + 1
		for to < len(fine.End) && fine.End[to] <= end {
			to++
		}
		coarsenOne(into, fine, from, to, start, end)
		coarsenSketches(into, into.Len()-1, fine, from, to)
		from = to
	}
}

// coarsenOne appends the bucket from start to end that consists of the buckets [from, to) of fine.
func coarsenOne(into, fine *Buckets, from, to int, start, end int64) {
	i := into.add(start, end)
	flags := fine.Flags[to-1] & EndsStale
	floats, histograms := false, false
	for at := from; at < to; at++ {
		flags |= fine.Flags[at] & (NotSimple | HasDeleted | StartsOverlap | Aggregated | Large)
		if fine.Count[at] > 0 {
			floats = floats || fine.Flags[at].HasFloats()
			histograms = histograms || fine.Flags[at]&HasHistograms != 0
		}
	}
	into.Flags[i] = flags
	switch {
	case histograms && flags&NotSimple == 0:
		coarsenHistograms(into, i, fine, from, to, floats)
	case floats:
		into.setStarts(i, coarsenFloats(into, i, fine, from, to))
	case histograms:
		into.Flags[i] |= NotSimple
	}
}

// coarsenFloats fills the float columns of bucket i from the buckets [from, to) of fine, and returns their start
// timestamps.
func coarsenFloats(into *Buckets, i int, fine *Buckets, from, to int) (starts startRun) {
	var r run
	first, last, count := 0, -1, uint32(0)
	for at := from; at < to; at++ {
		if fine.Count[at] == 0 || !fine.Flags[at].HasFloats() {
			continue
		}
		r.addMoment(float64(count), fine, at)
		r.addLine(int64(count), fine.FirstT[first], fine, at)
		if last < 0 {
			first = at
			r.min, r.max = fine.Min[at], fine.Max[at]
		} else {
			r.CountStep(fine.Last[last], fine.First[at])
			starts.countJoint(fine, last, at, fine.First[at] < fine.Last[last])
			r.extendRange(fine.Min[at], fine.Max[at])
		}
		r.sum.AddSum(fine.Sum[at], fine.SumLow[at])
		if fine.Resets[at] > 0 {
			r.Correction.Add(fine.Correction[at])
		}
		r.Resets += fine.Resets[at]
		r.Changes += fine.Changes[at]
		starts.add(fine, at)
		count += fine.FloatCount(at)
		last = at
	}
	switch {
	case !(r.min < r.max) || !isFinite(r.sum.Total()):
		r.moment = 0
	case r.moment >= 0: // Neither unknown nor NaN.
		r.moment = roundMoment(r.moment)
	default:
		r.moment = unknownMoment
	}
	r.line = r.line.stored(
		times{int64(count), fine.LastT[last] - fine.FirstT[first]}, r.min, r.max, isFinite(r.sum.Total()),
	)
	r.wide = r.sum.low != 0 && fine.isWide(from, to, r.min, r.max)
	into.Count[i] = count
	into.FirstT[i], into.LastT[i] = fine.FirstT[first], fine.LastT[last]
	into.First[i], into.Last[i] = fine.First[first], fine.Last[last]
	r.writeTo(into, i)
	return starts
}

// addMoment adds the moment of the bucket with index at in fine to the moment of the n values before it. r.sum is the
// sum of these values.
func (r *run) addMoment(n float64, fine *Buckets, at int) {
	switch {
	case n == 0:
		r.moment = fine.Moment[at]
	case r.moment < 0 || fine.Moment[at] < 0:
		r.moment = unknownMoment
	default:
		r.moment += fine.Moment[at] + MomentBetween(
			n, r.sum.high, r.sum.low, float64(fine.FloatCount(at)), fine.Sum[at], fine.SumLow[at],
		)
	}
}

// coarsenHistograms fills bucket i with the histograms of the buckets [from, to) of fine, and with their floats if
// floats is set.
func coarsenHistograms(into *Buckets, i int, fine *Buckets, from, to int, floats bool) {
	if floats {
		coarsenFloats(into, i, fine, from, to)
		into.Correction[i] = 0
		into.setLine(i, unknownLine)
	}
	var all histogramRun
	var starts startRun
	first, last := -1, 0
	count, resets, changes := uint32(0), uint32(0), uint32(0)
	for at := from; at < to; at++ {
		if fine.Count[at] == 0 {
			continue
		}
		isStartReset := false
		if first < 0 {
			first = at
		} else {
			isReset := fine.IsReset(last, at)
			isStartReset = starts.countJoint(fine, last, at, isReset)
			if floats { // Otherwise the run of histograms counts resets and changes.
				resets, changes = resets+asCount(isReset), changes+asCount(fine.IsChange(last, at))
			}
		}
		if fine.Flags[at]&HasHistograms != 0 {
			all.add(fine.Histograms[at], isStartReset)
		}
		starts.add(fine, at)
		count += fine.Count[at]
		resets, changes = resets+fine.Resets[at], changes+fine.Changes[at]
		last = at
	}
	into.Count[i], into.Resets[i], into.Changes[i] = count, resets, changes
	into.FirstT[i], into.LastT[i] = fine.FirstT[first], fine.LastT[last]
	starts.correction = Sum{} // Histograms have their own correction.
	into.setStarts(i, starts)
	if !floats {
		into.Resets[i], into.Changes[i] = resets+all.resets, changes+all.changes
		into.Flags[i] |= ofHistograms
		into.setHistograms(i, all.finish())
		return
	}
	into.Flags[i] |= HasHistograms | hasFloatsToo | fine.Flags[first]&FirstIsHistogram |
		fine.Flags[last]&LastIsHistogram
	into.setHistograms(i, all.amongFloats())
}

// IsReset returns true if the first sample of bucket i is a counter reset after the last sample of bucket before, as
// defined by Prometheus' resets function: a transition between floats and histograms is a reset.
func (b *Buckets) IsReset(before, i int) bool {
	switch ended, begins := b.Flags[before]&LastIsHistogram != 0, b.Flags[i]&FirstIsHistogram != 0; {
	case ended != begins:
		return true
	case ended:
		return b.Histograms[i].First.DetectReset(b.Histograms[before].Last)
	default:
		return b.First[i] < b.Last[before]
	}
}

// IsChange returns true if the first sample of bucket i is a change after the last sample of bucket before, as defined
// by Prometheus' changes function.
func (b *Buckets) IsChange(before, i int) bool {
	switch ended, begins := b.Flags[before]&LastIsHistogram != 0, b.Flags[i]&FirstIsHistogram != 0; {
	case ended != begins:
		return true
	case ended:
		return !b.Histograms[i].First.Equals(b.Histograms[before].Last)
	default:
		v, first := b.Last[before], b.First[i]
		return first != v && (first == first || v == v)
	}
}
