package rollup

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

const (
	fiveMinutes = 5 * 60 * 1000
	oneHour     = 60 * 60 * 1000
	startMS     = 1_700_006_400_000 // a full hour
	intervalMS  = 15_000
)

var staleNaN = math.Float64frombits(value.StaleNaN)

// shape generates series of one kind. The same seed always gives the same series.
type shape struct {
	name string
	next func(r *rand.Rand, i int, before float64) float64
}

func decimals(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

// usualShapes returns the shapes of typical series.
func usualShapes() []shape {
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

// unusualShapes returns shapes that exercise all paths of the code.
func unusualShapes() []shape {
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
		{
			"seconds scaled twice",
			func(_ *rand.Rand, i int, _ float64) float64 { return float64(123_456_789+i*7919) / 1000 / 1000 },
		},
	}
}

// floats returns n samples of a shape at a regular interval.
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

// ragged returns about n samples of a shape at irregular intervals with gaps. With an odd seed some have start
// timestamps.
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

// histograms returns about n histogram samples of a counter with resets. With odd, it also changes its schema, zero
// threshold and bounds, is sometimes a gauge, becomes stale, and is interrupted by floats.
func histograms(t testing.TB, n int, seed uint64, float, odd bool) *chunk.Samples {
	r := rand.New(rand.NewPCG(seed, 2))
	s := &chunk.Samples{}
	counts := make([]int64, 10)
	schema, threshold, hint, wide := int32(3), 0.001, histogram.UnknownCounterReset, false
	at := int64(startMS)
	for range n {
		at += 1 + r.Int64N(2*intervalMS)
		if r.IntN(30) == 0 {
			clear(counts)
		}
		if odd {
			switch r.IntN(60) {
			case 0:
				schema = []int32{3, 4, -2, histogram.CustomBucketsSchema}[r.IntN(4)]
			case 1:
				threshold = []float64{0.001, 0.01}[r.IntN(2)]
			case 2:
				hint = histogram.CounterResetHint(r.IntN(4))
			case 3:
				at += r.Int64N(oneHour)
			case 4:
				for range r.IntN(20) {
					at += intervalMS
					s.AppendFloat(at, 0, float64(r.IntN(9)))
				}
			case 5:
				wide = !wide
			}
		}
		for j := range counts {
			counts[j] += r.Int64N(4) * int64(r.IntN(2))
		}
		sample := chunk.Histogram{T: at, Int: histogramOf(counts, schema, threshold, hint)}
		if wide { // Some of the bounds remain equal.
			for i := range sample.Int.CustomValues {
				sample.Int.CustomValues[i] *= 2
			}
		}
		hint = min(hint, histogram.GaugeType) * (1 - histogram.CounterResetHint(r.IntN(2)))
		if r.IntN(40) == 0 && odd {
			sample.Int = &histogram.Histogram{Sum: staleNaN}
		}
		if float {
			sample.Float, sample.Int = sample.Int.ToFloat(nil), nil
		}
		canonical, err := chunk.CanonicalHistogram(sample)
		require.NoError(t, err)
		s.AppendHistogram(canonical)
	}
	s.Normalize()
	return s
}

// bothWays returns two buckets of the same values, at most ten: one built from samples, and one coarsened from buckets
// with one sample each.
func bothWays(values []float64) *Buckets {
	s := &chunk.Samples{}
	for i, v := range values {
		s.AppendFloat(int64(i+1), 0, v)
	}
	var fine, b Buckets
	AppendEvery(&b, s, 10)
	AppendEvery(&fine, s, 1)
	Coarsen(&b, &fine, 20)
	return &b
}

// histogramOf returns a histogram with these bucket counts, which may be 0.
func histogramOf(
	counts []int64, schema int32, threshold float64, hint histogram.CounterResetHint,
) *histogram.Histogram {
	h := &histogram.Histogram{Schema: schema, ZeroThreshold: threshold, CounterResetHint: hint,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: uint32(len(counts))}}}
	if schema == histogram.CustomBucketsSchema {
		h.ZeroThreshold = 0
		for i := range counts {
			h.CustomValues = append(h.CustomValues, float64(i+1)*0.25)
		}
	}
	before := int64(0)
	for i, c := range counts {
		h.PositiveBuckets = append(h.PositiveBuckets, c-before)
		before = c
		h.Count += uint64(c)
		h.Sum += 0.1 * float64(i) * float64(c)
	}
	return h
}

// withStarts returns the samples with start timestamps of a kind in soak.StartKinds.
func withStarts(s *chunk.Samples, kind string, seed uint64) *chunk.Samples {
	starts := soak.Starts{Rand: rand.New(rand.NewPCG(seed, 8)), Kind: kind}
	out := &chunk.Samples{}
	before := math.Inf(-1)
	for h := s.H; len(out.T) < len(s.T) || len(h) > 0; {
		if k := len(out.T); k < len(s.T) && (len(h) == 0 || s.T[k] < h[0].T) {
			out.AppendFloat(s.T[k], starts.Next(s.T[k], s.V[k] < before), s.V[k])
			before = s.V[k]
			continue
		}
		first := h[0]
		first.ST = starts.Next(first.T, starts.Rand.IntN(20) == 0)
		out.AppendHistogram(first)
		h = h[1:]
	}
	return out
}

// named is a named input of a test.
type named struct {
	name    string
	samples *chunk.Samples
}

// series returns series of all kinds with about n samples each.
func series(t testing.TB, n int) []named {
	var all []named
	for seed := range soak.Seeds(t, 2) {
		for _, sh := range append(usualShapes(), unusualShapes()...) {
			all = append(all, named{sh.name, sh.floats(n, seed)}, named{sh.name + ", ragged", sh.ragged(n, seed)})
		}
		for _, float := range []bool{false, true} {
			all = append(all, named{"histograms", histograms(t, n, seed, float, false)},
				named{"odd histograms", histograms(t, n, seed, float, true)})
		}
		for _, kind := range soak.StartKinds {
			usual, unusual := usualShapes(), unusualShapes()
			for _, sh := range []shape{usual[0], usual[1], unusual[0], unusual[1], unusual[5], unusual[9]} {
				all = append(all, named{sh.name + " with starts, " + kind, withStarts(sh.floats(n, seed), kind, seed)})
			}
			all = append(all,
				named{"histograms with starts, " + kind, withStarts(histograms(t, n, seed, true, false), kind, seed)},
				named{
					"odd histograms with starts, " + kind, withStarts(histograms(t, n, seed, true, true), kind, seed),
				})
		}
	}
	return all
}
