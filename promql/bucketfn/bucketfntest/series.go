package bucketfntest

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

// SeriesKinds are the kinds of series that GenerateSeries can generate.
var SeriesKinds = append([]string{
	"counter", "counter with resets", "gauge", "special values", "great integers", "overflowing", "constant",
	"large positive", "large negative", "largest", "large and special",
	"histograms", "histograms with resets", "histograms of several sorts", "float histograms", "integer histograms",
	"custom buckets", "gauge histograms", "hinted histograms", "floats and histograms",
	"histograms of changing layouts", "custom buckets of changing bounds",
	"gauge histograms of changing layouts",
}, observedKinds...)

// GenerateSeries generates normalized samples of one kind, about every 15 s around time 0, with gaps, irregular
// intervals, stale markers and start timestamps.
func GenerateSeries(r *rand.Rand, kind string, n int) *chunk.Samples {
	s := &chunk.Samples{}
	g := SeriesGenerator{Rand: r, Kind: kind}
	at := int64(-n/2) * 15_000
	jitter := r.IntN(2) == 0
	starts, before := soak.Starts{Rand: r, Kind: soak.StartKinds[r.IntN(len(soak.StartKinds))]}, math.Inf(-1)
	for range n {
		at += 15_000
		if jitter {
			at += r.Int64N(4000) - 2000
		}
		if r.IntN(40) == 0 {
			at += r.Int64N(600_000) // a gap
		}
		stale := r.IntN(30) == 0
		if g.Next(); g.H == nil {
			v := g.V
			if stale {
				v = math.Float64frombits(value.StaleNaN)
			}
			s.AppendFloat(at, starts.Next(at, v < before), v)
			before = v
			continue
		}
		h := *g.H
		if stale {
			h = chunk.Histogram{Float: &histogram.FloatHistogram{Sum: math.Float64frombits(value.StaleNaN)}}
		}
		h.T, h.ST = at, starts.Next(at, r.IntN(30) == 0)
		s.AppendHistogram(h)
	}
	return s
}

// SeriesGenerator generates the values of one series, one after the other.
type SeriesGenerator struct {
	Rand *rand.Rand
	// Kind is one of SeriesKinds.
	Kind string

	// V is the current value, if H is nil.
	V float64
	// H is the current native histogram. If it is nil, the current value is V.
	H *chunk.Histogram

	counts [4]int64
	zero   int64
	sum    float64
	sort   int
	hist   bool
	// observed are the observations of a kind in observedKinds.
	observed []float64
}

// Next generates the next value into V and H.
func (s *SeriesGenerator) Next() {
	r := s.Rand
	switch s.Kind {
	case "counter":
		s.V += float64(r.IntN(100))
	case "counter with resets":
		s.V += r.Float64() * 100
		if r.IntN(4) == 0 {
			s.V = r.Float64() * 10
		}
	case "gauge":
		s.V = math.Round(r.NormFloat64()*1e6) / 100
	case "special values":
		special := []float64{
			math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), math.Float64frombits(0x7ff8000000001234),
			1e-310,
		}
		s.V = r.NormFloat64()
		if r.IntN(3) == 0 {
			s.V = special[r.IntN(len(special))]
		}
	case "great integers":
		s.V = float64(1<<60 + r.Int64N(1<<20)*1024 - int64(r.IntN(2))<<61)
	case "overflowing":
		s.V = r.NormFloat64()
		if r.IntN(30) == 0 {
			s.V = math.MaxFloat64 * (r.Float64() - 0.5)
		}
	case "large positive", "large negative":
		s.V = r.Float64() * 100
		if r.IntN(20) == 0 {
			s.V = []float64{math.MaxFloat64, 1e300, 1e299, 1e281}[r.IntN(4)] * (1 - r.Float64()*float64(r.IntN(2)))
		}
		if s.Kind == "large negative" {
			s.V = -s.V
		}
	case "largest":
		s.V = math.MaxFloat64
		if r.IntN(50) == 0 {
			s.V = math.NaN()
		}
	case "large and special":
		s.V = float64(r.IntN(3))
		if r.IntN(20) == 0 {
			s.V = []float64{
				math.MaxFloat64, 1e300, 1e285, math.Inf(1), math.NaN(), math.SmallestNonzeroFloat64,
			}[r.IntN(6)] * float64(r.IntN(3)-1)
		}
	case "constant":
		s.V = 42
	case "floats and histograms":
		if r.IntN(10) == 0 {
			s.hist = !s.hist
		}
		s.V += float64(r.IntN(100))
		s.nextHistogram()
		if !s.hist {
			s.H = nil
		}
	default:
		if slices.Contains(observedKinds, s.Kind) {
			s.nextObserved()
			return
		}
		s.nextHistogram()
	}
}

// nextHistogram generates the next native histogram.
func (s *SeriesGenerator) nextHistogram() {
	r := s.Rand
	for i := range s.counts {
		s.counts[i] += int64(r.IntN(3) * r.IntN(20))
	}
	s.zero += int64(r.IntN(2))
	s.sum += r.Float64() * 100
	if s.Kind == "histograms with resets" && r.IntN(5) == 0 {
		s.counts, s.zero, s.sum = [4]int64{int64(r.IntN(5))}, 0, r.Float64()
	}
	if s.Kind == "histograms of several sorts" && r.IntN(40) == 0 {
		s.sort = r.IntN(4)
		s.counts, s.zero, s.sum = [4]int64{1, 2, 3, 4}, 0, 1
	}
	if strings.HasSuffix(s.Kind, "histograms of changing layouts") && r.IntN(15) == 0 {
		s.changeLayout()
	}
	h := histogram.FloatHistogram{
		Schema: int32(1 + s.sort%2), ZeroThreshold: 0.001 * float64(1+s.sort/2), ZeroCount: float64(s.zero), Sum: s.sum,
		PositiveSpans:   []histogram.Span{{Offset: -1, Length: 2}, {Offset: 2, Length: 1}},
		PositiveBuckets: []float64{float64(s.counts[0]), float64(s.counts[1]), float64(s.counts[2])},
		NegativeSpans:   []histogram.Span{{Offset: 3, Length: 1}}, NegativeBuckets: []float64{float64(s.counts[3])},
	}
	switch {
	case s.Kind == "custom buckets" || s.Kind == "histograms of several sorts" && s.sort == 3:
		h = histogram.FloatHistogram{
			Schema: histogram.CustomBucketsSchema, CustomValues: []float64{0.1, 1, 10}, Sum: s.sum,
			PositiveSpans:   []histogram.Span{{Offset: 0, Length: 4}},
			PositiveBuckets: []float64{float64(s.counts[0]), float64(s.counts[1]), float64(s.counts[2]), float64(s.counts[3])},
		}
	case s.Kind == "custom buckets of changing bounds":
		h = s.newCustomHistogram()
	case strings.HasSuffix(s.Kind, "histograms of changing layouts"):
		h.Schema, h.ZeroThreshold = int32(s.sort%4), []float64{0, 1e-128, 0.001, 0.25}[s.sort/4]
		if s.Kind[0] == 'g' {
			h.CounterResetHint = histogram.GaugeType
		}
	case s.Kind == "gauge histograms":
		h.CounterResetHint = histogram.GaugeType
	case s.Kind == "hinted histograms": // Prometheus' storage compares buckets, and ignores the sender's hint.
		h.CounterResetHint = histogram.CounterResetHint(r.IntN(3))
	case s.Kind == "histograms with resets" && r.IntN(6) == 0:
		h.Sum = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
	case s.Kind == "float histograms":
		for i := range h.PositiveBuckets {
			h.PositiveBuckets[i] *= 1.1
		}
		if r.IntN(50) == 0 {
			h.Sum = math.NaN()
		}
	}
	if h.UsesCustomBuckets() {
		h.ZeroCount, h.ZeroThreshold = 0, 0
	}
	h.Count = h.ZeroCount
	for _, c := range h.PositiveBuckets {
		h.Count += c
	}
	for _, c := range h.NegativeBuckets {
		h.Count += c
	}
	s.H = &chunk.Histogram{Float: &h}
	if s.Kind == "integer histograms" {
		s.H = &chunk.Histogram{Int: &histogram.Histogram{
			Schema: h.Schema, ZeroThreshold: h.ZeroThreshold, ZeroCount: uint64(h.ZeroCount), Count: uint64(h.Count), Sum: h.Sum,
			PositiveSpans: h.PositiveSpans, NegativeSpans: h.NegativeSpans, NegativeBuckets: []int64{s.counts[3]},
			PositiveBuckets: []int64{s.counts[0], s.counts[1] - s.counts[0], s.counts[2] - s.counts[1]},
		}}
	}
}

// changeLayout changes the schema and the zero threshold in one of several ways. It makes the buckets coarser, as an
// SDK does with many buckets, or resets them to fine ones, as after a restart, or chooses a random layout.
func (s *SeriesGenerator) changeLayout() {
	switch r := s.Rand; r.IntN(4) {
	case 0:
		s.sort = r.IntN(16)
	case 1:
		s.sort, s.counts, s.zero, s.sum = 3, [4]int64{int64(r.IntN(2)), 1}, 0, r.Float64()
	default:
		s.sort = s.sort/4*4 + max(0, s.sort%4-1)
	}
}

// newCustomHistogram generates a histogram with custom bounds. It may change some of the bounds of the previous
// histogram.
func (s *SeriesGenerator) newCustomHistogram() histogram.FloatHistogram {
	r := s.Rand
	if r.IntN(15) == 0 {
		if s.sort = r.IntN(5); r.IntN(2) == 0 {
			s.counts = [4]int64{1, 0, 1, 0}
		}
	}
	bounds := [][]float64{{0.1, 1, 10}, {0.1, 10}, {0.1, 1, 5, 10}, {1, 10}, {0.2, 2}}[s.sort]
	h := histogram.FloatHistogram{
		Schema: histogram.CustomBucketsSchema, CustomValues: bounds, Sum: s.sum,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: uint32(len(bounds) + 1)}},
	}
	for i := range len(bounds) + 1 {
		h.PositiveBuckets = append(h.PositiveBuckets, float64(s.counts[i%4]))
	}
	return h
}

// SortedKeys returns the keys of a set, ascending.
func SortedKeys(set map[int64]bool) []int64 { return slices.Sorted(maps.Keys(set)) }
