package rollup

import (
	"math"
	"math/bits"

	"github.com/cassia-db/cassia/storage/chunk"
)

// The least-squares line through the samples of a bucket follows from the number of samples, the sum of their values,
// and three columns: TimeSum, Σ(t − first), and TimeSquares, Σ(t − first)², which are exact, and Comoment, Σ(t − t̄)(v
// − v̄), where t̄ and v̄ are the means. Times are in milliseconds. Two parts are merged by the formula of Chan, Golub
// and LeVeque, like moments.

// unknownSquares is the value of TimeSquares for a line that isn't stored; Comoment and TimeSum are then 0.
const unknownSquares = -1

// Limits of lines that are stored, so that sums of squares fit an int64. A bucket of an hour may have 72 samples per
// second.
const (
	maxLineSamples = 1 << 18
	maxLineSpan    = 1 << 22 // from the first to the last sample, in milliseconds
)

// comomentBits is the number of bits of a comoment below the power of two above its bound, see comomentExponent. The
// rounding changes a line's slope by less than 3e-14 of max − min of the values, divided by the standard deviation of
// the times.
const comomentBits = 45

// maxComomentExponent bounds the exponents of stored comoments, to prevent overflows when they are merged. Exponents
// have no lower bound, for the reason at largestMoment.
const maxComomentExponent = 900

// lineSums are the line columns of one bucket.
type lineSums struct {
	comoment         float64
	timeSum, squares int64
}

var unknownLine = lineSums{squares: unknownSquares}

func (b *Buckets) setLine(i int, l lineSums) {
	b.Comoment[i], b.TimeSum[i], b.TimeSquares[i] = l.comoment, l.timeSum, l.squares
}

// times contains the number of samples, and the milliseconds from the first to the last.
type times struct{ n, span int64 }

// isStorable reports whether the line of samples at these times can be stored.
func (s times) isStorable() bool {
	return s.n > 0 && s.n <= maxLineSamples && s.span >= 0 && s.span <= maxLineSpan
}

// regularSums returns the sums for evenly spaced times with this interval.
func (s times) regularSums(interval int64) (timeSum, squares int64) {
	return interval * (s.n * (s.n - 1) / 2), interval * interval * ((s.n - 1) * s.n * (2*s.n - 1) / 6)
}

// isRegular reports whether these are the sums of evenly spaced times.
func (s times) isRegular(timeSum, squares int64) bool {
	if s.n < 2 {
		return true
	}
	a, b := s.regularSums(s.span / (s.n - 1))
	return s.span%(s.n-1) == 0 && timeSum == a && squares == b
}

// timeMoment returns Σ(t − t̄)² of n times with these sums. The result is negative if no times have these sums.
func timeMoment(n, timeSum, squares int64) float64 {
	// n·squares − timeSum² is exact in 128 bits.
	high, low := bits.Mul64(uint64(n), uint64(squares))
	h, l := bits.Mul64(uint64(timeSum), uint64(timeSum))
	low, borrow := bits.Sub64(low, l, 0)
	if high, borrow = bits.Sub64(high, h, borrow); borrow > 0 {
		return -1
	}
	return (float64(high)*0x1p64 + float64(low)) / float64(n)
}

// TimeMoment returns Σ(t − t̄)² of bucket i in square milliseconds, or a negative number if its line is unknown.
func (b *Buckets) TimeMoment(i int) float64 {
	if b.TimeSquares[i] < 0 {
		return -1
	}
	return timeMoment(int64(b.Count[i]), b.TimeSum[i], b.TimeSquares[i])
}

// comomentExponent returns the exponent of the power of two above the bound of comoments, (max − min) · √(n · Σ(t −
// t̄)²). The bound depends on the spread of the values, not on their size, because values may change little compared to
// their size. ok is false if comoments of that size are too large to store.
func comomentExponent(least, greatest float64, n int64, timeMoment float64) (e int, ok bool) {
	most := (greatest - least) * math.Sqrt(float64(n)*timeMoment)
	if !(most > 0 && most <= math.MaxFloat64) {
		return 0, false
	}
	_, e = math.Frexp(most)
	return e, e <= maxComomentExponent
}

// comomentInteger returns a comoment as it is stored, in units of 2^(e − comomentBits). comomentOf is its inverse.
func comomentInteger(c float64, e int) int64 {
	return int64(math.RoundToEven(math.Ldexp(c, comomentBits-e)))
}

func comomentOf(m int64, e int) float64 { return math.Ldexp(float64(m), e-comomentBits) }

// stored returns the line of samples with these values as it is stored.
func (l lineSums) stored(s times, least, greatest float64, isFinite bool) lineSums {
	if l.squares < 0 || !s.isStorable() || least < greatest && !isFinite {
		return unknownLine
	}
	if !(least < greatest) {
		l.comoment = 0
		return l
	}
	e, ok := comomentExponent(least, greatest, s.n, timeMoment(s.n, l.timeSum, l.squares))
	if !ok {
		return unknownLine
	}
	l.comoment = comomentOf(comomentInteger(l.comoment, e), e)
	return l
}

// forCounter returns the stored line of a counter. As with moments, the line is unknown if the values differ. It is
// also unknown if the times aren't evenly spaced, because storing them would use space.
func (l lineSums) forCounter(s times, least, greatest float64) lineSums {
	if least < greatest || l.squares < 0 || !s.isRegular(l.timeSum, l.squares) {
		return unknownLine
	}
	return l
}

// forgetLine replaces the line of bucket i with the stored line of a counter.
func (b *Buckets) forgetLine(i int) {
	if b.Count[i] > 0 && b.Flags[i].HasFloats() {
		l := lineSums{b.Comoment[i], b.TimeSum[i], b.TimeSquares[i]}
		b.setLine(i, l.forCounter(times{int64(b.Count[i]), b.LastT[i] - b.FirstT[i]}, b.Min[i], b.Max[i]))
	}
}

// timesOf returns the sums of the times of all values except stale markers. The first value must not be a stale marker.
func timesOf(t []int64, v []float64) (timeSum, squares int64) {
	for i, x := range v {
		if isStaleFloat(x) {
			continue
		}
		d := t[i] - t[0]
		timeSum += d
		squares += d * d
	}
	return timeSum, squares
}

// comomentOfSamples returns the comoment of all n values except stale markers, given their sums. The first value must
// not be a stale marker.
func comomentOfSamples(t []int64, v []float64, n int, values Sum, timeSum int64) float64 {
	first, mean, meanT := t[0], values.Total()/float64(n), float64(timeSum)/float64(n)
	var products, off, offT Sum
	for len(v) > 0 {
		block := min(momentBlock, len(v))
		a, b, c := 0.0, 0.0, 0.0
		for i, x := range v[:block] {
			if d := x - mean; d == d {
				dt := float64(t[i]-first) - meanT
				a += float64(d * dt)
				b += d
				c += dt
			}
		}
		products.Add(a)
		off.Add(b)
		offT.Add(c)
		t, v = t[block:], v[block:]
	}
	// off and offT would be 0 if the means weren't rounded.
	return products.Total() - float64(off.Total()*offT.Total())/float64(n)
}

// lineOf returns the line of floats [from, to). The first must not be a stale marker.
func (b *builder) lineOf(s *chunk.Samples, from, to int, span times, r *run) lineSums {
	if !span.isStorable() || b.isCounter && r.min < r.max {
		return unknownLine
	}
	t, v := s.T[from:to], s.V[from:to]
	var l lineSums
	l.timeSum, l.squares = timesOf(t, v)
	finite := isFinite(r.sum.Total())
	if r.min < r.max && finite {
		l.comoment = comomentOfSamples(t, v, int(span.n), r.sum, l.timeSum)
	}
	l = l.stored(span, r.min, r.max, finite)
	if b.isCounter {
		return l.forCounter(span, r.min, r.max)
	}
	return l
}

// addLine adds the line of a bucket to the line of the n values before it. r.sum must be the sum of these values, and
// first the time of the first of them.
func (r *run) addLine(n, first int64, fine *Buckets, at int) {
	l := lineSums{fine.Comoment[at], fine.TimeSum[at], fine.TimeSquares[at]}
	if n == 0 {
		r.line = l
		return
	}
	m, later := int64(fine.FloatCount(at)), fine.FirstT[at]-first
	both := times{n: n + m, span: fine.LastT[at] - first}
	if r.line.squares < 0 || l.squares < 0 || !both.isStorable() {
		r.line = unknownLine
		return
	}
	apart := float64(later) + float64(l.timeSum)/float64(m) - float64(r.line.timeSum)/float64(n)
	values := MeansApart(float64(n), r.sum.high, r.sum.low, float64(m), fine.Sum[at], fine.SumLow[at])
	between := float64(apart*values) * (float64(n*m) / float64(n+m))
	r.line.comoment += l.comoment + between
	r.line.squares += l.squares + 2*later*l.timeSum + m*later*later
	r.line.timeSum += l.timeSum + m*later
}
