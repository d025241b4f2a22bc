package expand

import (
	"math"
	"slices"

	"github.com/cassia-db/cassia/storage/rollup"
)

// Cut sets into to the buckets of b. A bucket with edges inside it is cut into pieces at these edges. Edges are
// ascending and in milliseconds. The pieces are built from the samples of Expand and add up to their bucket. The pieces
// keep the flags NotSimple and Aggregated. into and b must have CutColumns.
func (x *Expander) Cut(into, b *rollup.Buckets, edges []int64) {
	into.Reset()
	kept := 0
	for i, end := range b.End {
		for len(edges) > 0 && edges[0] <= b.Start[i] {
			edges = edges[1:]
		}
		n := 0
		for n < len(edges) && edges[n] < end {
			n++
		}
		if n == 0 {
			continue
		}
		into.AppendRange(b, kept, i, CutColumns)
		kept = i + 1
		x.samples.Reset()
		x.Expand(&x.samples, b, i)
		x.edges = append(append(append(x.edges[:0], b.Start[i]), edges[:n]...), end)
		p := pieces{Buckets: into, first: into.Len(), whole: b, of: i}
		rollup.AppendCells(into, &x.samples, x.edges, math.MaxInt64/2)
		for k := p.first; k < into.Len(); k++ {
			into.Flags[k] |= b.Flags[i] & (rollup.NotSimple | rollup.Aggregated)
		}
		p.addUp()
	}
	into.AppendRange(b, kept, b.Len(), CutColumns)
}

// pieces are the pieces of bucket of of whole: the buckets from index first on.
type pieces struct {
	*rollup.Buckets
	first int

	whole *rollup.Buckets
	of    int
}

// addUp adjusts the pieces so that they add up to their bucket. A window that contains all pieces then has the answer of
// the whole bucket. Differences are distributed among the pieces, except differences of moments and lines, which most
// buckets have. These differences are recorded in Wholes, because distributing them would make windows inside the bucket
// inexact.
func (p *pieces) addUp() {
	p.addUpStarts()
	whole, i := p.whole, p.of
	if whole.Flags[i]&rollup.HasHistograms != 0 {
		p.addUpHistograms(int64(whole.Resets[i]), int64(whole.Changes[i]))
		return
	}
	var between rollup.Steps
	var sum, correction rollup.Sum // of the values inside the pieces
	resets, changes := int64(0), int64(0)
	for k, before := p.first, -1; k < p.Len(); k++ {
		if p.Count[k] == 0 {
			continue
		}
		if before >= 0 {
			between.CountStep(p.Last[before], p.First[k])
		}
		before = k
		sum.AddSum(p.Sum[k], p.SumLow[k])
		correction.Add(p.Correction[k])
		resets, changes = resets+int64(p.Resets[k]), changes+int64(p.Changes[k])
	}
	p.shareSteps(p.Changes, int64(whole.Changes[i])-int64(between.Changes), changes)
	p.shareSteps(p.Resets, int64(whole.Resets[i])-int64(between.Resets), resets)
	p.shareValue(
		p.Correction, p.Resets, whole.Correction[i],
		whole.Correction[i]-between.Correction.Total()-correction.Total(),
	)
	p.shareValue(
		p.Sum, p.Resets, whole.Sum[i]+whole.SumLow[i], whole.Sum[i]+whole.SumLow[i]-sum.Total(),
	)
	p.AddWhole(p.first, whole, i)
}

// addUpHistograms sets the resets and changes of pieces with histograms. Together with the resets and changes between
// pieces, they then add up to the given numbers.
func (p *pieces) addUpHistograms(resets, changes int64) {
	resetsInside, changesInside := int64(0), int64(0)
	for k, before := p.first, -1; k < p.Len(); k++ {
		if p.Count[k] == 0 {
			continue
		}
		if before >= 0 {
			resets -= int64(asCount(p.IsReset(before, k)))
			changes -= int64(asCount(p.IsChange(before, k)))
		}
		before = k
		resetsInside, changesInside = resetsInside+int64(p.Resets[k]), changesInside+int64(p.Changes[k])
	}
	p.shareSteps(p.Resets, resets, resetsInside)
	p.shareSteps(p.Changes, changes, changesInside)
}

// shareSteps redistributes the changes or resets of the pieces to add up to want, unless they already do.
func (p *pieces) shareSteps(column []uint32, want, have int64) {
	if want == have {
		return
	}
	want = max(want, 0)
	samples, seen, given, steps := int64(0), int64(0), int64(0), int64(0)
	for _, n := range p.Count[p.first:] {
		samples += int64(n)
		steps += int64(max(n, 1)) - 1
	}
	total := steps
	if total == 0 {
		total = samples
	}
	for k := p.first; k < p.Len() && total > 0; k++ {
		if seen += int64(p.Count[k]); steps > 0 { // Changes are possible within pieces.
			seen -= int64(min(p.Count[k], 1))
		}
		column[k] = uint32(want*seen/total - given)
		given = want * seen / total
	}
}

// shareValue distributes missing, a part of the bucket's value whole, among the pieces if it exceeds the rounding error
// of their values. It does so in proportion to their resets or, if there are none, their samples. If missing is infinite
// because whole is, the piece with the most of them gets it. If only the pieces are infinite, nothing can be distributed.
func (p *pieces) shareValue(column []float64, by []uint32, whole, missing float64) {
	slack := 1e-14 * float64(p.whole.Count[p.of]) * max(math.Abs(p.whole.Min[p.of]), math.Abs(p.whole.Max[p.of]))
	if !areFinite(slack) {
		slack = 0
	}
	if !(math.Abs(missing) > slack) || areFinite(whole) && !areFinite(missing) {
		return
	}
	total := 0.0
	if !slices.ContainsFunc(by[p.first:], func(n uint32) bool { return n > 0 }) {
		by = p.Count
	}
	most := p.first
	for k, n := range by[p.first:] {
		total += float64(n)
		if n > by[most] {
			most = p.first + k
		}
	}
	if math.IsInf(missing, 0) {
		if !slices.ContainsFunc(column[p.first:], func(v float64) bool { return !areFinite(v) }) {
			column[most] = missing
		}
		return
	}
	for k, n := range by[p.first:] {
		column[p.first+k] += missing * float64(n) / total
	}
}

// addUpStarts makes three properties of the pieces add up to their bucket: the resets that only start timestamps show,
// the corrections for these resets, and the overlaps.
func (p *pieces) addUpStarts() {
	whole, i := p.whole, p.of
	if whole.FirstST == nil || p.FirstST == nil {
		return
	}
	resets, inside := int64(whole.StartResets[i]), int64(0)
	var between, correction rollup.Sum
	most, overlaps := p.first, false
	for k, before := p.first, -1; k < p.Len(); k++ {
		if p.Count[k] == 0 {
			continue
		}
		overlaps = overlaps || p.Flags[k]&rollup.StartsOverlap != 0
		if before >= 0 {
			overlaps = overlaps || p.StartOverlaps(before, k)
			if p.IsStartReset(before, k) && !p.IsReset(before, k) {
				resets--
				between.Add(p.Last[before])
			}
		}
		before = k
		if inside += int64(p.StartResets[k]); p.StartResets[k] > 0 {
			correction.Add(p.StartCorrection[k])
		}
		if p.Count[k] > p.Count[most] {
			most = k
		}
	}
	if isOverlapping := whole.Flags[i]&rollup.StartsOverlap != 0; isOverlapping && !overlaps {
		p.Flags[most] |= rollup.StartsOverlap
	} else if !isOverlapping {
		for k := p.first; k < p.Len(); k++ {
			p.Flags[k] &^= rollup.StartsOverlap
		}
	}
	p.shareSteps(p.StartResets, resets, inside)
	if whole.Flags[i]&rollup.HasHistograms == 0 {
		p.shareValue(
			p.StartCorrection, p.StartResets, whole.StartCorrection[i],
			whole.StartCorrection[i]-between.Total()-correction.Total(),
		)
	}
}
