package rollup

import (
	"math"
	"slices"
)

// addUp makes the pieces of a bucket, which are those of b from first on, add up to bucket i of whole where the samples that they were made
// of don't: a window that contains all of them then has the answer of the whole bucket. The difference is shared out among them, but that
// of moments, which most have, is kept in Wholes: windows inside of the bucket would be off by it.
func (b *Buckets) addUp(first int, whole *Buckets, i int) {
	b.addUpStarts(first, whole, i)
	if whole.Flags[i]&HasHistograms != 0 {
		b.addUpHistograms(first, int64(whole.Resets[i]), int64(whole.Changes[i]))
		return
	}
	var between, all run
	count, moment, isKnown := 0.0, 0.0, whole.Moment[i] != unknownMoment
	for k, before := first, -1; k < b.Len(); k++ {
		if b.Count[k] == 0 {
			continue
		}
		if before >= 0 {
			between.step(b.Last[before], b.First[k])
		}
		before = k
		if isKnown = isKnown && b.Moment[k] != unknownMoment; count > 0 {
			moment += MomentBetween(count, all.sum.high, all.sum.low, float64(b.Count[k]), b.Sum[k], b.SumLow[k])
		}
		count += float64(b.Count[k])
		moment += b.Moment[k]
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
	b.shareValue(first, b.Correction, b.Resets, whole.Correction[i]-between.correction.total()-all.correction.total(), slack)
	if missing := whole.Moment[i] - moment; isKnown && math.Abs(missing) > 1e-13*whole.Moment[i] {
		b.Wholes = append(b.Wholes, Whole{Start: whole.Start[i], End: whole.End[i], Moment: missing})
	}
	b.shareValue(first, b.Sum, b.Resets, whole.Sum[i]+whole.SumLow[i]-all.sum.total(), slack)
}

// addUpHistograms makes the resets and changes of pieces with histograms add up to those given.
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

// shareSteps sets the pieces' changes, or resets, such that they add up to want, unless they do.
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
		if seen += int64(b.Count[k]); steps > 0 { // There are some within pieces.
			seen -= int64(min(b.Count[k], 1))
		}
		column[k] = uint32(want*seen/total - given)
		given = want * seen / total
	}
}

// shareValue adds a value to the pieces, if it is more than rounding may leave, in proportion to their numbers of resets or, without any, of
// samples.
func (b *Buckets) shareValue(first int, column []float64, by []uint32, missing, slack float64) {
	if !(math.Abs(missing) > slack) || math.IsInf(missing, 0) {
		return
	}
	total := 0.0
	if !slices.ContainsFunc(by[first:], func(n uint32) bool { return n > 0 }) {
		by = b.Count
	}
	for _, n := range by[first:] {
		total += float64(n)
	}
	for k, n := range by[first:] {
		column[first+k] += missing * float64(n) / total
	}
}

// addUpStarts makes what only start timestamps show of pieces add up to that of bucket i of whole.
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
			between.joint(b, before, k, b.IsReset(before, k))
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
		b.shareValue(first, b.StartCorrection, b.StartResets, whole.StartCorrection[i]-between.correction.total()-all.correction.total(), slack)
	}
}
