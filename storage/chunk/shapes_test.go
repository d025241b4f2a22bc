package chunk

import (
	"math"
	"math/rand/v2"

	"github.com/prometheus/prometheus/model/value"
)

// shape generates series of one kind. The same seed generates the same series.
type shape struct {
	name string
	// next returns the sample after before. i is its index.
	next func(r *rand.Rand, i int, before point) point
}

type point struct {
	t, st int64
	v     float64
}

const (
	startMS    = 1_700_000_000_000
	intervalMS = 15_000
)

func (sh shape) samples(n int, seed uint64) *Samples {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &Samples{}
	p := point{t: startMS - intervalMS}
	for i := range n {
		p = sh.next(r, i, p)
		s.AppendFloat(p.t, p.st, p.v)
	}
	s.Normalize()
	return s
}

// regularShape returns a shape with values at a regular interval.
func regularShape(name string, next func(r *rand.Rand, i int, v float64) float64) shape {
	return shape{name: name, next: func(r *rand.Rand, i int, p point) point {
		return point{t: p.t + intervalMS, v: next(r, i, p.v)}
	}}
}

func roundDecimals(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

func shapes() []shape {
	stale := math.Float64frombits(value.StaleNaN)
	counter := func(r *rand.Rand, i int, v float64) float64 { return v + float64(r.IntN(100)) }
	return []shape{
		regularShape("constant", func(*rand.Rand, int, float64) float64 { return 42 }),
		regularShape("zero", func(*rand.Rand, int, float64) float64 { return 0 }),
		regularShape("negative zero", func(r *rand.Rand, _ int, _ float64) float64 {
			return math.Copysign(0, float64(r.IntN(2))-0.5)
		}),
		regularShape("counter", counter),
		regularShape("counter with resets", func(r *rand.Rand, i int, v float64) float64 {
			if r.IntN(100) == 0 {
				return 0
			}
			return v + 1000 + float64(r.IntN(50))
		}),
		regularShape("counter of seconds", func(r *rand.Rand, _ int, v float64) float64 {
			return roundDecimals(v+15*r.Float64(), 2)
		}),
		regularShape("sum of durations", func(r *rand.Rand, _ int, v float64) float64 { return v + r.Float64() }),
		regularShape("sum of nanoseconds", func(r *rand.Rand, _ int, v float64) float64 {
			return v + float64(r.IntN(1e8))/1e9
		}),
		regularShape("seconds scaled twice", func(_ *rand.Rand, i int, _ float64) float64 {
			return float64(123_456_789+i*7919) / 1000 / 1000
		}),
		regularShape("gauge of 1 decimal", func(r *rand.Rand, _ int, _ float64) float64 {
			return roundDecimals(r.Float64()*100, 1)
		}),
		regularShape("gauge of 3 decimals", func(r *rand.Rand, _ int, v float64) float64 {
			return roundDecimals(v+r.NormFloat64(), 3)
		}),
		regularShape("gauge of bytes", func(r *rand.Rand, _ int, v float64) float64 {
			return math.Abs(v + 4096*float64(r.IntN(2000)-1000))
		}),
		regularShape("ratio", func(r *rand.Rand, _ int, _ float64) float64 { return r.Float64() }),
		regularShape("rarely changing ratio", func(r *rand.Rand, _ int, v float64) float64 {
			if r.IntN(20) == 0 {
				return r.Float64()
			}
			return v
		}),
		regularShape("sine", func(_ *rand.Rand, i int, _ float64) float64 { return 100 * math.Sin(float64(i)/50) }),
		regularShape("stale markers among integers", func(r *rand.Rand, i int, v float64) float64 {
			if i%50 == 49 {
				return stale
			}
			if i%50 == 0 {
				v = 0
			}
			return counter(r, i, v)
		}),
		regularShape("only stale markers", func(*rand.Rand, int, float64) float64 { return stale }),
		regularShape(
			"any bits", func(r *rand.Rand, _ int, _ float64) float64 { return math.Float64frombits(r.Uint64()) },
		),
		regularShape("special values", func(r *rand.Rand, _ int, _ float64) float64 {
			special := []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), stale, math.NaN(),
				math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, math.MaxInt64, math.MinInt64,
				1 << 53, 1<<53 + 2, 0.1, 1e15, 1e300, math.Float64frombits(0xfff8dead0000beef)}
			return special[r.IntN(len(special))]
		}),
		regularShape(
			"large integers", func(r *rand.Rand, _ int, _ float64) float64 { return float64(int64(r.Uint64())) },
		),
		{name: "jitter", next: func(r *rand.Rand, i int, p point) point {
			return point{t: p.t + intervalMS - 20 + r.Int64N(40), v: counter(r, i, p.v)}
		}},
		{name: "missed scrapes", next: func(r *rand.Rand, i int, p point) point {
			return point{t: p.t + intervalMS*(1+max(0, r.Int64N(30)-28)), v: counter(r, i, p.v)}
		}},
		{name: "irregular seconds", next: func(r *rand.Rand, i int, p point) point {
			return point{t: p.t + 1000*(1+r.Int64N(1000)), v: counter(r, i, p.v)}
		}},
		{name: "negative times", next: func(r *rand.Rand, i int, p point) point {
			if i == 0 {
				p.t = -intervalMS * 60
			}
			return point{t: p.t + intervalMS, v: counter(r, i, p.v)}
		}},
		{name: "extreme times", next: func(r *rand.Rand, i int, _ point) point {
			times := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
			return point{t: times[i%len(times)], st: times[r.IntN(len(times))], v: float64(i % len(times))}
		}},
		{name: "start timestamps", next: func(r *rand.Rand, i int, p point) point {
			if p.st == 0 || r.IntN(100) == 0 {
				p.st, p.v = p.t+intervalMS-3, 0
			}
			return point{t: p.t + intervalMS, st: p.st, v: counter(r, i, p.v)}
		}},
		{name: "delta temporality", next: func(r *rand.Rand, i int, p point) point {
			return point{t: p.t + intervalMS, st: p.t, v: float64(r.IntN(100))}
		}},
		{name: "start timestamps now and then", next: func(r *rand.Rand, i int, p point) point {
			return point{t: p.t + intervalMS, st: p.t * int64(r.IntN(2)), v: 1}
		}},
	}
}
