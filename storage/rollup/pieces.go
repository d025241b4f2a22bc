package rollup

import (
	"math"
	"slices"
)

// addUp adjusts the pieces of bucket i of whole, which are the buckets of b starting at first, so that they add up to
// the bucket. A window that contains all pieces then has the answer of the whole bucket. Differences are distributed
// among the pieces, except differences of moments and lines, which most buckets have. These differences are recorded in
// Wholes, because distributing them would make windows inside the bucket inexact.
func (b *Buckets) addUp(first int, whole *Buckets, i int) {
	b.addUpStarts(first, whole, i)
	if whole.Flags[i]&HasHistograms != 0 {
		b.addUpHistograms(first, int64(whole.Resets[i]), int64(whole.Changes[i]))
		return
	}
	var between, all run
	for k, before := first, -1; k < b.Len(); k++ {
		if b.Count[k] == 0 {
			continue
		}
		if before >= 0 {
			between.countStep(b.Last[before], b.First[k])
		}
		before = k
		all.sum.addSum(b.Sum[k], b.SumLow[k])
		all.correction.add(b.Correction[k])
		all.changes += b.Changes[k]
		all.resets += b.Resets[k]
	}
	b.shareSteps(first, b.Changes, int64(whole.Changes[i])-int64(between.changes), int64(all.changes))
	b.shareSteps(first, b.Resets, int64(whole.Resets[i])-int64(between.resets), int64(all.resets))
	slack := 1e-14 * float64(whole.Count[i]) * max(math.Abs(whole.Min[i]), math.Abs(whole.Max[i]))
	if !areFinite(slack) {
		slack = 0
	}
	b.shareValue(
		first, b.Correction, b.Resets, whole.Correction[i],
		whole.Correction[i]-between.correction.total()-all.correction.total(), slack,
	)
	b.shareValue(
		first, b.Sum, b.Resets, whole.Sum[i]+whole.SumLow[i], whole.Sum[i]+whole.SumLow[i]-all.sum.total(), slack,
	)
	b.addWhole(first, whole, i)
}

// addWhole records the difference of moment and line between bucket i of whole and the pieces from first on.
func (b *Buckets) addWhole(first int, whole *Buckets, i int) {
	var pieces run
	count, firstT := int64(0), int64(0)
	for k := first; k < b.Len(); k++ {
		if b.Count[k] == 0 {
			continue
		}
		if count == 0 {
			firstT = b.FirstT[k]
		}
		pieces.addMoment(float64(count), b, k)
		pieces.addLine(count, firstT, b, k)
		pieces.sum.addSum(b.Sum[k], b.SumLow[k])
		count += int64(b.Count[k])
	}
	if count == 0 {
		return
	}
	w := Whole{Start: whole.Start[i], End: whole.End[i], First: firstT, Mean: pieces.sum.total() / float64(count)}
	isOff := false
	if missing := whole.Moment[i] - pieces.moment; whole.Moment[i] >= 0 && pieces.moment >= 0 &&
		math.Abs(missing) > 1e-13*whole.Moment[i] {
		w.Moment, isOff = missing, true
	}
	if whole.TimeSquares[i] >= 0 && pieces.line.squares >= 0 && isFinite(w.Mean) {
		w.Comoment = whole.Comoment[i] - pieces.line.comoment
		w.TimeSum, w.TimeSquares = float64(whole.TimeSum[i]-pieces.line.timeSum),
			float64(whole.TimeSquares[i]-pieces.line.squares)
		isOff = isOff || w.Comoment != 0 || w.TimeSquares != 0 || w.TimeSum != 0
	}
	if isOff {
		b.Wholes = append(b.Wholes, w)
	}
}

// addUpHistograms sets the resets and changes of pieces with histograms. Together with the resets and changes between
// pieces, they then add up to the given numbers.
func (b *Buckets) addUpHistograms(first int, resets, changes int64) {
	resetsInside, changesInside := int64(0), int64(0)
	for k, before := first, -1; k < b.Len(); k++ {
		if b.Count[k] == 0 {
			continue
		}
		if before >= 0 {
			resets, changes = resets-int64(asCount(b.IsReset(before, k))), changes-int64(asCount(b.IsChange(before, k)))
		}
		before = k
		resetsInside, changesInside = resetsInside+int64(b.Resets[k]), changesInside+int64(b.Changes[k])
	}
	b.shareSteps(first, b.Resets, resets, resetsInside)
	b.shareSteps(first, b.Changes, changes, changesInside)
}

// shareSteps redistributes the changes or resets of the pieces to add up to want, unless they already do.
func (b *Buckets) shareSteps(first int, column []uint32, want, have int64) {
	if want == have {
		return
	}
	want = max(want, 0)
	samples, seen, given, steps := int64(0), int64(0), int64(0), int64(0)
	for _, n := range b.Count[first:] {
		samples += int64(n)
		steps += int64(max(n, 1)) - 1
	}
	total := steps
	if total == 0 {
		total = samples
	}
	for k := first; k < b.Len() && total > 0; k++ {
		if seen += int64(b.Count[k]); steps > 0 { // Changes are possible within pieces.
			seen -= int64(min(b.Count[k], 1))
		}
		column[k] = uint32(want*seen/total - given)
		given = want * seen / total
	}
}

// shareValue distributes missing, a part of the bucket's value whole, among the pieces if it exceeds the rounding error
// slack. It does so in proportion to their resets or, if there are none, their samples. If missing is infinite because
// whole is, the piece with the most of them gets it. If only the pieces are infinite, nothing can be distributed.
func (b *Buckets) shareValue(first int, column []float64, by []uint32, whole, missing, slack float64) {
	if !(math.Abs(missing) > slack) || isFinite(whole) && !isFinite(missing) {
		return
	}
	total := 0.0
	if !slices.ContainsFunc(by[first:], func(n uint32) bool { return n > 0 }) {
		by = b.Count
	}
	most := first
	for k, n := range by[first:] {
		total += float64(n)
		if n > by[most] {
			most = first + k
		}
	}
	if math.IsInf(missing, 0) {
		if !slices.ContainsFunc(column[first:], func(v float64) bool { return !isFinite(v) }) {
			column[most] = missing
		}
		return
	}
	for k, n := range by[first:] {
		column[first+k] += missing * float64(n) / total
	}
}

// addUpStarts makes three properties of the pieces add up to bucket i of whole: the resets that only start timestamps
// show, the corrections for these resets, and the overlaps.
func (b *Buckets) addUpStarts(first int, whole *Buckets, i int) {
	if whole.FirstST == nil || b.FirstST == nil {
		return
	}
	var between, all startRun
	most, joined := first, false
	for k, before := first, -1; k < b.Len(); k++ {
		if b.Count[k] == 0 {
			continue
		}
		if before >= 0 {
			between.countJoint(b, before, k, b.IsReset(before, k))
		}
		joined = joined || b.Flags[k]&StartsOverlap != 0
		before = k
		all.add(b, k)
		if b.Count[k] > b.Count[most] {
			most = k
		}
	}
	if isOverlapping := whole.Flags[i]&StartsOverlap != 0; isOverlapping && !joined && !between.overlaps {
		b.Flags[most] |= StartsOverlap
	} else if !isOverlapping {
		for k := first; k < b.Len(); k++ {
			b.Flags[k] &^= StartsOverlap
		}
	}
	b.shareSteps(first, b.StartResets, int64(whole.StartResets[i])-int64(between.resets), int64(all.resets))
	if whole.Flags[i]&HasHistograms == 0 {
		slack := 1e-14 * float64(whole.Count[i]) * max(math.Abs(whole.Min[i]), math.Abs(whole.Max[i]))
		if !areFinite(slack) {
			slack = 0
		}
		b.shareValue(first, b.StartCorrection, b.StartResets, whole.StartCorrection[i],
			whole.StartCorrection[i]-between.correction.total()-all.correction.total(), slack)
	}
}
