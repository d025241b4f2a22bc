package rollup

import (
	"fmt"
	"math"
	"strings"

	"github.com/cassia-db/cassia/storage/chunk"
)

// A moment is the second central moment of values, Σ(v − m)², where m is their mean. Divided by the number of values,
// it is their variance. The moments of two parts are merged by the formula of Chan, Golub and LeVeque ("Updating
// formulae and a pairwise algorithm for computing sample variances", 1979). Its difference of means is computed from
// sums in high and low parts.

// unknownMoment is the value of a moment that isn't stored.
const unknownMoment = -1

// momentBits is the number of binary digits stored after the first: the relative error of a moment is at most 1.1e-13,
// and the relative error of a standard deviation is half of that. Moments below 2^-1022 have fewer digits, like the
// squares that Prometheus adds.
const momentBits = 42

// largestMoment bounds the moments that are stored. Larger moments may overflow when they are merged. Moments have no
// lower bound: a bucket that is merged from parts must have a moment if the bucket of the same samples has one, even if
// the values within a part hardly differ.
var largestMoment = math.Ldexp(1, 1000)

// roundMoment returns a moment as it is stored. The values must not all be equal.
func roundMoment(m float64) float64 {
	if !(m <= largestMoment) {
		return unknownMoment
	}
	const below = 52 - momentBits
	return math.Float64frombits((math.Float64bits(max(0, m)) + 1<<(below-1)) &^ (1<<below - 1))
}

// momentBlock is the number of squares that are added before their sum is added to a sum with a low part.
const momentBlock = 64

// momentOf returns the moment of the n values of v that aren't stale markers. s is their sum, which must be finite.
func momentOf(v []float64, n int, s Sum) float64 {
	mean := s.Total() / float64(n)
	var squares, off Sum
	for len(v) > 0 {
		block := v[:min(momentBlock, len(v))]
		v = v[len(block):]
		a, b := 0.0, 0.0
		for _, x := range block {
			if d := x - mean; d == d {
				a += float64(d * d)
				b += d
			}
		}
		squares.Add(a)
		off.Add(b)
	}
	// off would be 0 if the mean weren't rounded.
	rest := off.Total()
	return squares.Total() - float64(rest*rest)/float64(n)
}

// MomentBetween returns the difference between the moment of all values and the moments of their two parts, which have
// n1 and n2 values. The sums of the parts are high plus low.
func MomentBetween(n1, high1, low1, n2, high2, low2 float64) float64 {
	d := MeansApart(n1, high1, low1, n2, high2, low2)
	return float64(d*d) * (n1 * n2 / (n1 + n2))
}

// MeansApart returns the mean of n2 values minus the mean of n1 values. Their sums are high plus low.
func MeansApart(n1, high1, low1, n2, high2, low2 float64) float64 {
	// The difference of the means, times n1·n2. A fused multiply-add returns the rounding error of a product.
	a, b := float64(n1*high2), float64(n2*high1)
	d := (a - b) + (math.FMA(n1, high2, -a) - math.FMA(n2, high1, -b)) + (float64(n1*low2) - float64(n2*low1))
	return d / (n1 * n2)
}

// isFinite reports whether a sum is finite. All values are then finite.
func isFinite(sum float64) bool { return sum-sum == 0 }

// counterSuffixes are the suffixes of counter names. Prometheus warns if rate is applied to a metric with another name.
var counterSuffixes = [...]string{"_total", "_sum", "_count", "_bucket"}

// IsCounterName reports whether a metric is a counter by its name.
func IsCounterName(metric string) bool {
	for _, suffix := range counterSuffixes {
		if strings.HasSuffix(metric, suffix) {
			return true
		}
	}
	return false
}

// AppendStored appends to into the buckets of a metric's normalized samples as they are stored: the buckets of
// AppendEvery, with a sketch per hour. If the metric is a counter by its name and its values don't fall, moments, lines
// and sketches are omitted: they would use a fifth of the buckets' space, and deviations of counters are rarely
// queried.
func AppendStored(into *Buckets, s *chunk.Samples, metric string, width int64) {
	from := into.Len()
	b := builder{into: into, isCounter: IsCounterName(metric) && !hasFall(s.V)}
	b.appendCells(s, nil, width)
	if !b.isCounter {
		into.appendSketches(from, s, OneHour.Width())
	}
}

// CoarsenStored is like Coarsen, but omits the moments and lines that AppendStored omits.
func CoarsenStored(into, fine *Buckets, metric string, width int64) {
	from := into.Len()
	Coarsen(into, fine, width)
	if !IsCounterName(metric) || into.hasFall(from) {
		return
	}
	for i := from; i < into.Len(); i++ {
		into.Moment[i] = impliedMoment(into.Min[i], into.Max[i])
		into.forgetLine(i)
	}
}

// hasFall reports whether a value in buckets[from:] is less than the previous value.
func (b *Buckets) hasFall(from int) bool {
	before := math.Inf(-1)
	for i := from; i < b.Len(); i++ {
		if b.Count[i] == 0 || b.Flags[i]&HasHistograms != 0 {
			continue
		}
		if b.Resets[i] > 0 || b.First[i] < before {
			return true
		}
		before = b.Last[i]
	}
	return false
}

// hasFall reports whether a value is less than the previous value.
func hasFall(v []float64) bool {
	before := math.Inf(-1)
	for _, x := range v {
		if x < before {
			return true
		}
		if x == x {
			before = x
		}
	}
	return false
}

// Column moment is absent if moments are known only for buckets of equal values, where they are 0. Otherwise it starts
// with a byte for the kind of prediction. Its integers are the bits of moments without the lowest 10, which are
// 0; −1 means unknown.
//
//	0  count · (max − min)² / 12, for evenly distributed values; a run of the differences from the prediction follows
//	1  (s · (n·r − s) − n·k) / n, of the lanes' integers, where n is the count, r = max − min and s = sum − n·min;
//	   a run of k follows, and optionally a run of the differences from the prediction
//
// k is −Σ(v − min)(v − max). It is 0 if each value is the min or the max.
const (
	momentBySpread = 0
	momentByLanes  = 1
)

// maxSpread bounds n·r, to prevent overflows.
const maxSpread = 1 << 31

// momentInteger returns the integer of a moment.
func momentInteger(m float64) int64 {
	if m < 0 {
		return unknownMoment
	}
	return int64(math.Float64bits(m) >> (52 - momentBits))
}

// impliedMoment returns the moment of a bucket if the column is absent.
func impliedMoment(least, greatest float64) float64 {
	if least < greatest {
		return unknownMoment
	}
	return 0
}

// smallestPrediction bounds the moments that are predicted.
var smallestPrediction = math.Ldexp(1, -1000)

// predictedMoment returns the integer of a predicted moment.
func predictedMoment(m float64) int64 {
	if !(m >= smallestPrediction && m <= largestMoment) {
		return 0
	}
	return momentInteger(roundMoment(m))
}

func predictMomentBySpread(n int64, least, greatest float64) int64 {
	r := greatest - least
	return predictedMoment(float64(float64(n)*r) * r / 12)
}

// momentAtMost returns n times the max moment of n integers within these bounds with this sum, s·(n·r − s). ok is false
// if it may overflow or no integers have this sum.
func momentAtMost(n, sum, least, greatest int64) (m int64, ok bool) {
	r := greatest - least
	if r < 0 || r > maxSpread || n > maxSpread || n*r > maxSpread {
		return 0, false
	}
	s := sum - n*least
	if s < 0 || s > n*r {
		return 0, false
	}
	return s * (n*r - s), true
}

// predictMomentByLanes returns the integer of the moment for k.
func (l *lanes) predictMomentByLanes(n, atMost, k int64) int64 {
	p := chunk.Power(l.form)
	return predictedMoment(float64(atMost-n*k) / float64(n) / p / p)
}

// encodeMoments writes the column of moments.
func (e *encoder) encodeMoments(b *Buckets, parts []part, l *lanes) {
	moment, count := gather(b.Moment, parts, ofFloats), e.widen(gather(b.Count, parts, ofFloats))
	least, greatest := gather(b.Min, parts, ofFloats), gather(b.Max, parts, ofFloats)
	m := e.zeros(len(moment))
	implied := true
	for i, v := range moment {
		m[i] = momentInteger(v)
		implied = implied && v == impliedMoment(least[i], greatest[i])
	}
	if implied {
		return
	}
	from := len(e.body)
	over := e.zeros(len(m))
	for i, n := range count {
		over[i] = m[i] - predictMomentBySpread(n, least[i], greatest[i])
	}
	e.body = appendInts(append(e.body, momentBySpread), over)
	if middle := len(e.body); e.momentsByLanes(m, moment, count, l) {
		if len(e.body)-middle < middle-from {
			e.body = append(e.body[:from], e.body[middle:]...)
		} else {
			e.body = e.body[:middle]
		}
	}
	e.put(columnMoment, from)
}

// momentsByLanes appends the column of moments with prediction momentByLanes. It returns false if the lanes don't allow
// that.
func (e *encoder) momentsByLanes(m []int64, moment []float64, count []int64, l *lanes) bool {
	if l.form == formBits || l.sum == nil {
		return false
	}
	k, over := e.zeros(len(m)), e.zeros(len(m))
	p := chunk.Power(l.form)
	for i, n := range count {
		atMost, ok := momentAtMost(n, l.sum[i], l.min[i], l.max[i])
		if !ok {
			return false
		}
		if m[i] > 0 {
			k[i] = int64(math.RoundToEven((float64(atMost) - float64(float64(moment[i]*p*p)*float64(n))) / float64(n)))
		}
		over[i] = m[i] - l.predictMomentByLanes(n, atMost, k[i])
	}
	e.body = appendInts(append(e.body, momentByLanes), k)
	if !allZero(over) {
		e.body = appendInts(e.body, over)
	}
	return true
}

// momentsNeedSums reports whether moments are predicted from the integers of sums.
func (d *decoder) momentsNeedSums() bool {
	b := d.e.column(columnMoment)
	return len(b) > 0 && b[0] == momentByLanes
}

// decodeMoments appends the moments. space is scratch memory for one integer per bucket of floats.
func (d *decoder) decodeMoments(count, space []int64) error {
	column := extendTail(&d.into.Moment, d.n)
	v, space := column[:d.floats], space[:d.floats]
	b := d.e.column(columnMoment)
	switch {
	case len(b) == 0:
		for i := range v {
			v[i] = impliedMoment(d.l.float(d.l.min[i]), d.l.float(d.l.max[i]))
		}
		d.placeValues(column)
		return nil
	case len(v) == 0:
		return fmt.Errorf("%w: moments without buckets", ErrCorrupt)
	case b[0] > momentByLanes:
		return fmt.Errorf("%w: moments of unknown kind %d", ErrCorrupt, b[0])
	}
	rest, err := chunk.DecodeInts(b[1:], space)
	if err != nil {
		return fmt.Errorf("%w: moments: %w", ErrCorrupt, err)
	}
	if b[0] == momentBySpread {
		for i, n := range count {
			space[i] += predictMomentBySpread(n, d.l.float(d.l.min[i]), d.l.float(d.l.max[i]))
		}
	} else if rest, err = d.momentsByLanes(count, space, v, rest); err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: moments are followed by %d extra bytes", ErrCorrupt, len(rest))
	}
	for i, m := range space {
		if v[i] = unknownMoment; m == unknownMoment {
			continue
		}
		if v[i] = math.Float64frombits(uint64(m) << (52 - momentBits)); m != 0 &&
			!(v[i] > 0 && v[i] <= largestMoment) {
			return fmt.Errorf("%w: an invalid moment", ErrCorrupt)
		}
	}
	d.placeValues(column)
	return nil
}

// momentsByLanes converts the first run of a column of moments, which the caller has decoded into m, to the moments as
// integers. If b isn't empty, it contains a second run, which is added to the first. momentsByLanes returns the bytes
// of b after the second run. v is scratch memory.
func (d *decoder) momentsByLanes(count, m []int64, v []float64, b []byte) (rest []byte, err error) {
	for i, n := range count {
		atMost, ok := momentAtMost(n, d.l.sum[i], d.l.min[i], d.l.max[i])
		if !ok || d.l.form == formBits {
			return nil, fmt.Errorf("%w: moments of values that are too large", ErrCorrupt)
		}
		m[i] = d.l.predictMomentByLanes(n, atMost, m[i])
	}
	if len(b) == 0 {
		return nil, nil
	}
	for i, x := range m {
		v[i] = math.Float64frombits(uint64(x))
	}
	if rest, err = chunk.DecodeInts(b, m); err != nil {
		return nil, fmt.Errorf("%w: moments: %w", ErrCorrupt, err)
	}
	for i := range m {
		m[i] += int64(math.Float64bits(v[i]))
	}
	return rest, nil
}
