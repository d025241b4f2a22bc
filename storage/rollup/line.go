package rollup

import (
	"math"
	"math/bits"

	"github.com/cassia-db/cassia/storage/chunk"
)

// The line through the samples of a bucket by least squares follows from the number of samples, the sum of their values, and three
// columns: TimeSum, Σ(t − first), and TimeSquares, Σ(t − first)², which are exact, and Comoment, Σ(t − t̄)(v − v̄), t̄ and v̄ being the
// means. Times are in milliseconds. Two parts are merged by the formula of Chan, Golub and LeVeque, as moments are.

// unknownSquares stands in TimeSquares for a line that isn't stored; the other columns are then 0.
const unknownSquares = -1

// Lines are stored up to these, so that sums of squares fit an int64: a bucket of an hour may have 72 samples per second.
const (
	maxLineSamples = 1 << 18
	maxLineSpan    = 1 << 22 // from the first to the last sample, milliseconds
)

// comomentBits is to how many binary digits a comoment is kept, below the power of two above its bound, see comomentExponent. The slope of
// a line is off by less than 1e-13 of the largest value divided by the time from the first to the last sample.
const comomentBits = 45

// maxComomentExponent bounds the exponents of comoments that are stored, so that nothing overflows when they are merged.
const maxComomentExponent = 900

// lineSums are the columns of one bucket.
type lineSums struct {
	comoment         float64
	timeSum, squares int64
}

var unknownLine = lineSums{squares: unknownSquares}

func (b *Buckets) setLine(i int, l lineSums) {
	b.Comoment[i], b.TimeSum[i], b.TimeSquares[i] = l.comoment, l.timeSum, l.squares
}

// times are the number of samples, and how many milliseconds lie from the first to the last.
type times struct{ n, span int64 }

// fits reports whether the line of samples at such times can be stored.
func (s times) fits() bool {
	return s.n > 0 && s.n <= maxLineSamples && s.span >= 0 && s.span <= maxLineSpan
}

// regular returns the sums of times from the first on at this interval.
func (s times) regular(interval int64) (timeSum, squares int64) {
	return interval * (s.n * (s.n - 1) / 2), interval * interval * ((s.n - 1) * s.n * (2*s.n - 1) / 6)
}

// isRegular reports whether sums are those of evenly spaced times.
func (s times) isRegular(timeSum, squares int64) bool {
	if s.n < 2 {
		return true
	}
	a, b := s.regular(s.span / (s.n - 1))
	return s.span%(s.n-1) == 0 && timeSum == a && squares == b
}

// timeMoment returns Σ(t − t̄)² of n times, given their sums; negative if no times have these.
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

// TimeMoment returns Σ(t − t̄)² of bucket i, square milliseconds; negative if its line isn't known.
func (b *Buckets) TimeMoment(i int) float64 {
	if b.TimeSquares[i] < 0 {
		return -1
	}
	return timeMoment(int64(b.Count[i]), b.TimeSum[i], b.TimeSquares[i])
}

// comomentExponent returns the exponent of the power of two above what a comoment can be at most, greatest · √(n · Σ(t − t̄)²), and
// whether comoments of that size are stored.
func comomentExponent(least, greatest float64, n int64, timeMoment float64) (e int, ok bool) {
	most := max(math.Abs(least), math.Abs(greatest)) * math.Sqrt(float64(n)*timeMoment)
	if !(most > 0 && most <= math.MaxFloat64) {
		return 0, false
	}
	_, e = math.Frexp(most)
	return e, e >= -maxComomentExponent && e <= maxComomentExponent
}

// comomentInteger returns a comoment as it is stored, in units of 2^(e − comomentBits); comomentOf reverses it.
func comomentInteger(c float64, e int) int64 {
	return int64(math.RoundToEven(math.Ldexp(c, comomentBits-e)))
}

func comomentOf(m int64, e int) float64 { return math.Ldexp(float64(m), e-comomentBits) }

// finish returns the line as it is stored, of samples with these values.
func (l lineSums) finish(s times, least, greatest float64, isFinite bool) lineSums {
	if l.squares < 0 || !s.fits() || least < greatest && !isFinite {
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

// forCounter returns the stored line of a counter: none where its values differ, as of moments, or where its times would need room.
func (l lineSums) forCounter(s times, least, greatest float64) lineSums {
	if least < greatest || l.squares < 0 || !s.isRegular(l.timeSum, l.squares) {
		return unknownLine
	}
	return l
}

// forgetLine replaces the line of bucket i by that of a counter.
func (b *Buckets) forgetLine(i int) {
	if b.Count[i] > 0 && b.Flags[i].HasFloats() {
		l := lineSums{b.Comoment[i], b.TimeSum[i], b.TimeSquares[i]}
		b.setLine(i, l.forCounter(times{int64(b.Count[i]), b.LastT[i] - b.FirstT[i]}, b.Min[i], b.Max[i]))
	}
}

// timesOf returns the sums of the times of the values that are no stale markers, the first of which has index 0.
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

// comomentOfSamples returns the comoment of the values that are no stale markers, the first of which has index 0: they are n, with these sums.
func comomentOfSamples(t []int64, v []float64, n int, values sum, timeSum int64) float64 {
	first, mean, meanT := t[0], values.total()/float64(n), float64(timeSum)/float64(n)
	var products, off, offT sum
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
		products.add(a)
		off.add(b)
		offT.add(c)
		t, v = t[block:], v[block:]
	}
	// The means are rounded: both would be 0.
	return products.total() - float64(off.total()*offT.total())/float64(n)
}

// lineOf returns the line of the floats from one index to another, the first of which is no stale marker.
func (b *builder) lineOf(s *chunk.Samples, from, to int, span times, r *run) lineSums {
	if !span.fits() || b.isCounter && r.min < r.max {
		return unknownLine
	}
	t, v := s.T[from:to], s.V[from:to]
	var l lineSums
	l.timeSum, l.squares = timesOf(t, v)
	finite := isFinite(r.sum.total())
	if r.min < r.max && finite {
		l.comoment = comomentOfSamples(t, v, int(span.n), r.sum, l.timeSum)
	}
	l = l.finish(span, r.min, r.max, finite)
	if b.isCounter {
		return l.forCounter(span, r.min, r.max)
	}
	return l
}

// addLine adds the line of a bucket to that of the n values before it, whose sum the run has, and whose times begin at first.
func (r *run) addLine(n, first int64, fine *Buckets, at int) {
	l := lineSums{fine.Comoment[at], fine.TimeSum[at], fine.TimeSquares[at]}
	if n == 0 {
		r.line = l
		return
	}
	m, later := int64(fine.FloatCount(at)), fine.FirstT[at]-first
	both := times{n: n + m, span: fine.LastT[at] - first}
	if r.line.squares < 0 || l.squares < 0 || !both.fits() {
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
