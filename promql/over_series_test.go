package promql

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

// seriesKinds are what generateSeries can make.
var seriesKinds = []string{
	"counter", "counter with resets", "gauge", "special values", "great integers", "overflowing", "constant",
	"histograms", "histograms with resets", "histograms of several sorts", "float histograms", "integer histograms", "custom buckets",
	"gauge histograms", "hinted histograms", "floats and histograms",
}

// generateSeries makes normalized samples of one kind, about every 15 s around time 0, with gaps, irregular
// intervals, stale markers and start timestamps.
func generateSeries(r *rand.Rand, kind string, n int) *chunk.Samples {
	s := &chunk.Samples{}
	g := seriesGenerator{r: r, kind: kind}
	at := int64(-n/2) * 15_000
	jitter := r.IntN(2) == 0
	for range n {
		at += 15_000
		if jitter {
			at += r.Int64N(4000) - 2000
		}
		if r.IntN(40) == 0 {
			at += r.Int64N(600_000) // a gap
		}
		stale := r.IntN(30) == 0
		if g.next(); g.h == nil {
			v := g.v
			if stale {
				v = math.Float64frombits(value.StaleNaN)
			}
			s.AppendFloat(at, at-r.Int64N(2)*1000, v)
			continue
		}
		h := *g.h
		if stale {
			h = chunk.Histogram{Float: &histogram.FloatHistogram{Sum: math.Float64frombits(value.StaleNaN)}}
		}
		h.T = at
		s.AppendHistogram(h)
	}
	return s
}

// seriesGenerator makes values of one series, one after the other.
type seriesGenerator struct {
	r    *rand.Rand
	kind string

	v      float64
	h      *chunk.Histogram
	counts [4]int64
	zero   int64
	sum    float64
	sort   int
	hist   bool
}

func (g *seriesGenerator) next() {
	r := g.r
	switch g.kind {
	case "counter":
		g.v += float64(r.IntN(100))
	case "counter with resets":
		g.v += r.Float64() * 100
		if r.IntN(4) == 0 {
			g.v = r.Float64() * 10
		}
	case "gauge":
		g.v = math.Round(r.NormFloat64()*1e6) / 100
	case "special values":
		special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), math.Float64frombits(0x7ff8000000001234), 1e-310}
		g.v = r.NormFloat64()
		if r.IntN(3) == 0 {
			g.v = special[r.IntN(len(special))]
		}
	case "great integers":
		g.v = float64(1<<60 + r.Int64N(1<<20)*1024 - int64(r.IntN(2))<<61)
	case "overflowing":
		g.v = r.NormFloat64()
		if r.IntN(30) == 0 {
			g.v = math.MaxFloat64 * (r.Float64() - 0.5)
		}
	case "constant":
		g.v = 42
	case "floats and histograms":
		if r.IntN(10) == 0 {
			g.hist = !g.hist
		}
		g.v += float64(r.IntN(100))
		g.histogram()
		if !g.hist {
			g.h = nil
		}
	default:
		g.histogram()
	}
}

// histogram makes the next native histogram.
func (g *seriesGenerator) histogram() {
	r := g.r
	for i := range g.counts {
		g.counts[i] += int64(r.IntN(3) * r.IntN(20))
	}
	g.zero += int64(r.IntN(2))
	g.sum += r.Float64() * 100
	if g.kind == "histograms with resets" && r.IntN(5) == 0 {
		g.counts, g.zero, g.sum = [4]int64{int64(r.IntN(5))}, 0, r.Float64()
	}
	if g.kind == "histograms of several sorts" && r.IntN(40) == 0 {
		g.sort = r.IntN(4)
		g.counts, g.zero, g.sum = [4]int64{1, 2, 3, 4}, 0, 1
	}
	h := histogram.FloatHistogram{
		Schema: int32(1 + g.sort%2), ZeroThreshold: 0.001 * float64(1+g.sort/2), ZeroCount: float64(g.zero), Sum: g.sum,
		PositiveSpans:   []histogram.Span{{Offset: -1, Length: 2}, {Offset: 2, Length: 1}},
		PositiveBuckets: []float64{float64(g.counts[0]), float64(g.counts[1]), float64(g.counts[2])},
		NegativeSpans:   []histogram.Span{{Offset: 3, Length: 1}}, NegativeBuckets: []float64{float64(g.counts[3])},
	}
	switch {
	case g.kind == "custom buckets" || g.sort == 3:
		h = histogram.FloatHistogram{
			Schema: histogram.CustomBucketsSchema, CustomValues: []float64{0.1, 1, 10}, Sum: g.sum,
			PositiveSpans:   []histogram.Span{{Offset: 0, Length: 4}},
			PositiveBuckets: []float64{float64(g.counts[0]), float64(g.counts[1]), float64(g.counts[2]), float64(g.counts[3])},
		}
	case g.kind == "gauge histograms":
		h.CounterResetHint = histogram.GaugeType
	case g.kind == "hinted histograms": // Prometheus' storage compares buckets, whatever the sender says
		h.CounterResetHint = histogram.CounterResetHint(r.IntN(3))
	case g.kind == "histograms with resets" && r.IntN(6) == 0:
		h.Sum = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
	case g.kind == "float histograms":
		for i := range h.PositiveBuckets {
			h.PositiveBuckets[i] *= 1.1
		}
		if r.IntN(50) == 0 {
			h.Sum = math.NaN()
		}
	}
	h.Count = h.ZeroCount
	for _, c := range h.PositiveBuckets {
		h.Count += c
	}
	for _, c := range h.NegativeBuckets {
		h.Count += c
	}
	g.h = &chunk.Histogram{Float: &h}
	if g.kind == "integer histograms" {
		g.h = &chunk.Histogram{Int: &histogram.Histogram{
			Schema: h.Schema, ZeroThreshold: h.ZeroThreshold, ZeroCount: uint64(h.ZeroCount), Count: uint64(h.Count), Sum: h.Sum,
			PositiveSpans: h.PositiveSpans, NegativeSpans: h.NegativeSpans, NegativeBuckets: []int64{g.counts[3]},
			PositiveBuckets: []int64{g.counts[0], g.counts[1] - g.counts[0], g.counts[2] - g.counts[1]},
		}}
	}
}

// generateWindows makes windows of all sorts over what generateSeries makes.
func generateWindows(r *rand.Rand) windows {
	step := 1000 * (1 + r.Int64N(900))
	span := []int64{step, step * (1 + r.Int64N(20)), 1000 * (1 + r.Int64N(2000)), 1 + r.Int64N(3_000_000)}[r.IntN(4)]
	w := windows{First: r.Int64N(4_000_000) - 3_000_000, Step: step, Steps: 1 + r.IntN(60), Span: span}
	if r.IntN(4) == 0 {
		w.Snap = 1000 * (1 + r.Int64N(600))
	}
	return w
}

func sortedKeys(set map[int64]bool) []int64 { return slices.Sorted(maps.Keys(set)) }
