package rollup

import (
	"math"

	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

// run accumulates the columns of one bucket's floats, except the columns of its first and last sample.
type run struct {
	Steps
	min, max    float64
	sum         Sum
	moment      float64 // set after all values, like setLine
	line        lineSums
	large, wide bool
}

// Steps counts the transitions between consecutive floats, as Prometheus' rate, resets and changes do.
type Steps struct {
	// Resets is the number of floats that are less than the one before, and Correction the sum of the floats before
	// these. Changes is the number of floats that differ from the one before.
	Resets, Changes uint32
	Correction      Sum
}

// CountStep counts the transition from float before to v.
func (s *Steps) CountStep(before, v float64) {
	if v < before {
		s.Resets++
		s.Correction.Add(before)
	}
	if v != before && (v == v || before == before) {
		s.Changes++
	}
}

// begin starts a run with its first value.
func (r *run) begin(v float64) {
	*r = run{min: v, max: v, large: isLarge(v)}
	r.sum.Add(v)
}

// extendRange widens the range of values as min_over_time and max_over_time do: NaN is replaced by the next value, and
// the first of equal values is kept.
func (r *run) extendRange(least, greatest float64) {
	if least < r.min || r.min != r.min {
		r.min = least
	}
	if greatest > r.max || r.max != r.max {
		r.max = greatest
	}
	r.large = r.large || isLarge(least) || isLarge(greatest)
}

// writeTo writes the run to bucket i.
func (r *run) writeTo(b *Buckets, i int) {
	b.Min[i], b.Max[i] = r.min, r.max
	b.Sum[i], b.SumLow[i] = r.sum.parts(r.min, r.max, r.wide)
	if r.sum.isVague(b.Count[i], r.min, r.max) {
		b.Flags[i] |= Vague
	}
	b.Moment[i] = r.moment
	b.setLine(i, r.line)
	if r.Resets > 0 {
		b.Correction[i] = r.Correction.Total()
	}
	b.Resets[i], b.Changes[i] = r.Resets, r.Changes
	if r.large || b.Flags[i]&Large != 0 {
		b.Flags[i] |= largeFlags(r.min, r.max)
	}
}

// floatsOf are properties of a bucket's floats that its columns don't contain.
type floatsOf struct {
	count     int
	endsStale bool
}

// fillFloats fills bucket i with floats [from, to).
func (b *builder) fillFloats(i int, s *chunk.Samples, from, to int) floatsOf {
	var r run
	count, first, last := 0, 0, 0
	before := 0.0
	for at, v := range s.V[from:to] {
		if isStaleFloat(v) {
			continue
		}
		last = from + at
		count++
		if count == 1 {
			first, before = last, v
			r.begin(v)
			continue
		}
		r.sum.Add(v)
		switch {
		case v == before:
		case v > before:
			r.Changes++
			if v > r.max {
				r.max = v
			}
			r.large = r.large || isLarge(v)
		default:
			r.CountStep(before, v)
			r.extendRange(v, v)
		}
		before = v
	}
	f := floatsOf{count: count, endsStale: from < to && value.IsStaleNaN(s.V[to-1])}
	if count == 0 {
		return f
	}
	switch {
	case !(r.min < r.max) || !isFinite(r.sum.Total()):
	case b.isCounter:
		r.moment = unknownMoment
	default:
		r.moment = roundMoment(momentOf(s.V[from:to], count, r.sum))
	}
	r.wide = r.sum.low != 0 && isWide(s.V[from:to], r.min, r.max)
	r.line = b.lineOf(s, first, to, times{int64(count), s.T[last] - s.T[first]}, &r)
	into := b.into
	into.Count[i] = uint32(min(count, math.MaxUint32))
	into.FirstT[i], into.LastT[i] = s.T[first], s.T[last]
	into.First[i], into.Last[i] = s.V[first], s.V[last]
	r.writeTo(into, i)
	if len(s.ST) > 0 {
		into.setStarts(i, startsOfFloats(s, first, last))
	}
	return f
}
