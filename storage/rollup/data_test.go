package rollup

import (
	"math"
	"math/rand/v2"

	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

const (
	fiveMinutes = 5 * 60 * 1000
	oneHour     = 60 * 60 * 1000
	startMS     = 1_700_006_400_000 // a full hour
	intervalMS  = 15_000
)

var staleNaN = math.Float64frombits(value.StaleNaN)

// shape makes series of one kind; the same seed gives the same series.
type shape struct {
	name string
	next func(r *rand.Rand, i int, before float64) float64
}

func decimals(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

// usual are shapes of series that a rollup is for.
func usual() []shape {
	return []shape{
		{"counter", func(r *rand.Rand, _ int, v float64) float64 { return v + float64(r.IntN(200)) }},
		{"gauge of 2 decimals", func(r *rand.Rand, _ int, v float64) float64 { return decimals(v+r.NormFloat64(), 2) }},
		{"constant", func(*rand.Rand, int, float64) float64 { return 42 }},
		{"slow counter", func(r *rand.Rand, i int, v float64) float64 {
			if r.IntN(100) == 0 {
				return v + 1
			}
			return v
		}},
		{"counter of seconds", func(r *rand.Rand, _ int, v float64) float64 { return decimals(v+15*r.Float64(), 2) }},
		{"gauge of bytes", func(r *rand.Rand, _ int, v float64) float64 { return math.Abs(v + 4096*float64(r.IntN(2000)-1000)) }},
		{"sum of durations", func(r *rand.Rand, _ int, v float64) float64 { return v + r.Float64() }},
		{"percent", func(r *rand.Rand, _ int, _ float64) float64 { return decimals(100*r.Float64(), 2) }},
	}
}

// unusual are shapes that take every path of the code.
func unusual() []shape {
	special := []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), staleNaN, math.NaN(),
		math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, math.MaxInt64, math.MinInt64,
		1 << 53, 1<<53 + 2, 0.1, 1e15, 1e300, math.Float64frombits(0xfff8dead0000beef)}
	return []shape{
		{"resets everywhere", func(r *rand.Rand, _ int, v float64) float64 {
			if r.IntN(12) == 0 {
				return float64(r.IntN(5))
			}
			return v + float64(r.IntN(100))
		}},
		{"stale markers among integers", func(r *rand.Rand, i int, v float64) float64 {
			if r.IntN(20) == 0 {
				return staleNaN
			}
			if v != v {
				v = 0
			}
			return v + float64(r.IntN(10))
		}},
		{"mostly stale", func(r *rand.Rand, _ int, _ float64) float64 {
			if r.IntN(30) > 0 {
				return staleNaN
			}
			return r.Float64()
		}},
		{"special values", func(r *rand.Rand, _ int, _ float64) float64 { return special[r.IntN(len(special))] }},
		{"any bits", func(r *rand.Rand, _ int, _ float64) float64 { return math.Float64frombits(r.Uint64()) }},
		{"NaN among decimals", func(r *rand.Rand, _ int, _ float64) float64 {
			if r.IntN(9) == 0 {
				return math.NaN()
			}
			return decimals(r.Float64(), 3)
		}},
		{"all NaN", func(*rand.Rand, int, float64) float64 { return math.NaN() }},
		{"large integers", func(r *rand.Rand, _ int, _ float64) float64 { return float64(int64(r.Uint64())) }},
		{"counter beyond 2^53", func(r *rand.Rand, i int, v float64) float64 {
			if i == 0 {
				v = 1 << 60
			}
			return v + float64(r.IntN(1<<20))
		}},
		{"alternating large", func(r *rand.Rand, i int, _ float64) float64 {
			return []float64{1e16, 1, -1e16, 0.1}[i%4] * float64(1+r.IntN(3))
		}},
		{"seconds scaled twice", func(_ *rand.Rand, i int, _ float64) float64 { return float64(123_456_789+i*7919) / 1000 / 1000 }},
	}
}

// floats makes n samples of a shape at a regular interval.
func (sh shape) floats(n int, seed uint64) *chunk.Samples {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &chunk.Samples{}
	v := 0.0
	for i := range n {
		v = sh.next(r, i, v)
		s.AppendFloat(startMS+int64(i+1)*intervalMS, 0, v)
	}
	return s
}

// ragged makes n samples of a shape at irregular intervals with gaps, some of them with start timestamps.
func (sh shape) ragged(n int, seed uint64) *chunk.Samples {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &chunk.Samples{}
	v, t, st := 0.0, int64(-3*oneHour), int64(0)
	for i := range n {
		v = sh.next(r, i, v)
		t += 1 + r.Int64N(2*intervalMS)
		if r.IntN(40) == 0 {
			t += r.Int64N(3 * oneHour)
			st = t - r.Int64N(1000)*r.Int64N(2)*int64(seed%2)
		}
		if seed%2 == 0 {
			st = 0
		}
		s.AppendFloat(t, st, v)
		if r.IntN(20) == 0 {
			s.AppendFloat(t, st, v+1) // a duplicate
		}
	}
	s.Normalize()
	return s
}
