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
		p := pieces{Buckets: into, first: into.Len(), whole: b, i: i}
		rollup.AppendCells(into, &x.samples, x.edges, math.MaxInt64/2)
		for k := p.first; k < into.Len(); k++ {
			into.Flags[k] |= b.Flags[i] & (rollup.NotSimple | rollup.Aggregated)
		}
		p.addUp()
	}
	into.AppendRange(b, kept, b.Len(), CutColumns)
}

// pieces are the buckets from index first on. They are the pieces of bucket i of whole.
type pieces struct {
	*rollup.Buckets
	first int
	whole *rollup.Buckets
	i     int
}

// tally contains the properties of pieces that should add up to the properties of their bucket.
type tally struct {
	resets, changes, startResets joint
	correction, startCorrection  jointSum
	sum                          rollup.Sum
	// overlaps is set if a start timestamp overlaps (see rollup.StartsOverlap).
	overlaps bool
	// most is the index of the piece with the most samples.
	most int
}

// joint is a number of steps between pieces, and inside them.
type joint struct{ between, inside int64 }

// jointSum is the sum of the values before the steps between pieces, and before the steps inside them.
type jointSum struct{ between, inside rollup.Sum }

// addUp adjusts the pieces so that they add up to their bucket. A window that contains all pieces then has the answer
// of the whole bucket. Differences are distributed among the pieces, except differences of moments and lines, which
// most buckets have. These differences are recorded in Wholes, because distributing them would make windows inside the
// bucket inexact.
func (p *pieces) addUp() {
	whole, i, t := p.whole, p.i, p.tally()
	hasFloatsOnly := whole.Flags[i]&rollup.HasHistograms == 0
	if whole.FirstST != nil && p.FirstST != nil {
		p.addUpOverlaps(&t)
		p.shareSteps(p.StartResets, whole.StartResets[i], t.startResets)
		if hasFloatsOnly {
			p.shareValue(p.StartCorrection, p.StartResets, whole.StartCorrection[i], whole.StartCorrection[i]-
				t.startCorrection.between.Total()-t.startCorrection.inside.Total())
		}
	}
	p.shareSteps(p.Changes, whole.Changes[i], t.changes)
	p.shareSteps(p.Resets, whole.Resets[i], t.resets)
	if hasFloatsOnly {
		p.shareValue(p.Correction, p.Resets, whole.Correction[i],
			whole.Correction[i]-t.correction.between.Total()-t.correction.inside.Total())
		sum := whole.Sum[i] + whole.SumLow[i]
		p.shareValue(p.Sum, p.Resets, sum, sum-t.sum.Total())
		p.AddWhole(p.first, whole, i)
	}
}

// tally adds up the pieces.
func (p *pieces) tally() tally {
	t := tally{most: p.first}
	for k, before := p.first, -1; k < p.Len(); k++ {
		if p.Count[k] == 0 {
			continue
		}
		if before >= 0 {
			isReset := p.IsReset(before, k)
			if isReset {
				t.resets.between++
				t.correction.between.Add(p.Last[before])
			}
			if p.IsChange(before, k) {
				t.changes.between++
			}
			if p.IsStartReset(before, k) && !isReset {
				t.startResets.between++
				t.startCorrection.between.Add(p.Last[before])
			}
			t.overlaps = t.overlaps || p.StartOverlaps(before, k)
		}
		before = k
		t.resets.inside += int64(p.Resets[k])
		t.changes.inside += int64(p.Changes[k])
		t.correction.inside.Add(p.Correction[k])
		t.sum.AddSum(p.Sum[k], p.SumLow[k])
		if p.FirstST != nil && p.StartResets[k] > 0 {
			t.startResets.inside += int64(p.StartResets[k])
			t.startCorrection.inside.Add(p.StartCorrection[k])
		}
		t.overlaps = t.overlaps || p.Flags[k]&rollup.StartsOverlap != 0
		if p.Count[k] > p.Count[t.most] {
			t.most = k
		}
	}
	return t
}

// addUpOverlaps sets the flag StartsOverlap of a piece if only the bucket has it, and deletes the flags if the bucket
// doesn't have it.
func (p *pieces) addUpOverlaps(t *tally) {
	if p.whole.Flags[p.i]&rollup.StartsOverlap != 0 {
		if !t.overlaps {
			p.Flags[t.most] |= rollup.StartsOverlap
		}
		return
	}
	for k := p.first; k < p.Len(); k++ {
		p.Flags[k] &^= rollup.StartsOverlap
	}
}

// shareSteps redistributes the changes or resets inside pieces, unless they and the ones between pieces already add up
// to the number in the whole bucket.
func (p *pieces) shareSteps(column []uint32, whole uint32, have joint) {
	want := int64(whole) - have.between
	if want == have.inside {
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
// of their values. It does so in proportion to their resets or, if there are none, their samples. If missing is
// infinite because whole is, the piece with the most of them gets it. If only the pieces are infinite, nothing can be
// distributed.
func (p *pieces) shareValue(column []float64, by []uint32, whole, missing float64) {
	slack := 1e-14 * float64(p.whole.Count[p.i]) * max(math.Abs(p.whole.Min[p.i]), math.Abs(p.whole.Max[p.i]))
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
