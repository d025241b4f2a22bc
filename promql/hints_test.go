package promql

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// shorterThanAChunk is the maximum number of samples for which Prometheus doesn't limit the size of a chunk of
// histograms. In series of this length, Prometheus starts only the chunks that the values require.
const shorterThanAChunk = 9

// TestHintsAreThoseOfPrometheus checks that this package's iterator and a real Prometheus TSDB return the same types,
// hints and values for random series of histograms and floats.
func TestHintsAreThoseOfPrometheus(t *testing.T) {
	series := 3000
	if testing.Short() {
		series = 300
	}
	db := teststorage.New(t)
	app := db.Appender(t.Context())
	given := make([]chunk.Samples, series)
	for i := range given {
		g := generator{rnd: rand.New(rand.NewPCG(uint64(i), 7))}
		ls := labels.FromStrings(model.MetricNameLabel, "m", "i", strconv.Itoa(i))
		for ts := int64(1); ts <= shorterThanAChunk; ts++ {
			var err error
			if g.rnd.IntN(12) == 0 {
				v := g.rnd.Float64()
				given[i].T, given[i].V = append(given[i].T, ts*1000), append(given[i].V, v)
				_, err = app.Append(0, ls, ts*1000, v)
			} else {
				h := g.next()
				h.T = ts * 1000
				given[i].H = append(given[i].H, h)
				c := h // Prometheus changes its input.
				if c.Int != nil {
					c.Int = c.Int.Copy()
				} else {
					c.Float = c.Float.Copy()
				}
				_, err = app.AppendHistogram(0, ls, c.T, c.Int, c.Float)
			}
			require.NoError(t, err)
		}
	}
	require.NoError(t, app.Commit())

	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer q.Close()
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "m"))
	var found [4]int
	var ours, theirs chunkenc.Iterator
	n := 0
	for set.Next() {
		i, err := strconv.Atoi(set.At().Labels().Get("i"))
		require.NoError(t, err)
		ours, theirs = iteratorFor(ours, 0, over(given[i])), set.At().Iterator(theirs)
		requireSame(t, theirs, ours, &found, i)
		n++
	}
	require.NoError(t, set.Err())
	require.Equal(t, series, n)
	require.Zero(t, found[histogram.CounterReset], "Prometheus never says so itself")
	for _, hint := range []histogram.CounterResetHint{histogram.UnknownCounterReset, histogram.NotCounterReset,
		histogram.GaugeType} {
		require.Greater(t, found[hint], series/4, "hint %d hardly came up", hint)
	}
}

func requireSame(t *testing.T, theirs, ours chunkenc.Iterator, found *[4]int, series int) {
	t.Helper()
	for {
		want := theirs.Next()
		require.Equal(t, want, ours.Next())
		if want == chunkenc.ValNone {
			return
		}
		require.Equal(t, theirs.AtT(), ours.AtT())
		if want == chunkenc.ValFloat {
			continue
		}
		_, h := theirs.AtFloatHistogram(nil)
		_, mine := ours.AtFloatHistogram(nil)
		require.Equal(t, h.CounterResetHint, mine.CounterResetHint, "series %d at %d: %s", series, ours.AtT(), mine)
		require.Equal(t, value.IsStaleNaN(h.Sum), value.IsStaleNaN(mine.Sum))
		if !value.IsStaleNaN(h.Sum) {
			require.True(t, h.Copy().Compact(0).Equals(mine.Compact(0)), "series %d at %d: %s, not %s", series,
				ours.AtT(), mine, h)
		}
		if want == chunkenc.ValHistogram {
			_, h := ours.AtHistogram(nil)
			require.Equal(t, mine.CounterResetHint, h.CounterResetHint)
		}
		found[mine.CounterResetHint]++
	}
}

// generator generates a series of histograms whose counts mostly increase. Sometimes it makes any other change that a
// client may make.
type generator struct {
	rnd   *rand.Rand
	begun bool

	float    bool
	schema   int32
	zero     float64
	zeros    int64
	gauge    bool
	bounds   []float64
	pos, neg map[int32]int64
}

func (g *generator) begin() {
	g.begun = true
	g.float = g.rnd.IntN(2) == 0
	g.pos, g.neg = map[int32]int64{0: 1, 1: 0, 3: 2}, map[int32]int64{-1: 1}
	if g.rnd.IntN(4) == 0 {
		g.schema, g.bounds, g.neg = histogram.CustomBucketsSchema, []float64{1, 2, 3, 4, 5, 6, 7}, nil
	}
}

func (g *generator) next() chunk.Histogram {
	if !g.begun {
		g.begin()
	}
	if g.rnd.IntN(15) == 0 {
		return g.made(&histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)})
	}
	custom := g.bounds != nil
	switch g.rnd.IntN(16) {
	case 0:
		g.float = !g.float
	case 1:
		g.gauge = !g.gauge
	case 2:
		clear(g.pos)
		g.pos[0] = 1
	case 3: // One bucket is missing, the count is unchanged.
		g.pos[0], g.pos[3] = g.pos[0]+g.pos[3], 0
	case 4:
		delete(g.pos, int32(g.rnd.IntN(6)))
	case 5:
		if custom {
			g.bounds = slices.Clone(g.bounds)
			g.bounds[6]++
		} else {
			g.schema++
		}
	case 6:
		if !custom {
			g.zero += 0.001
		}
	case 7:
		if !custom {
			g.zeros = 0
		}
	}
	for range g.rnd.IntN(4) {
		g.pos[int32(g.rnd.IntN(7))] += int64(g.rnd.IntN(3))
		if !custom {
			g.neg[int32(g.rnd.IntN(4))] += int64(g.rnd.IntN(2))
			g.zeros += int64(g.rnd.IntN(2))
		}
	}
	h := &histogram.Histogram{Schema: g.schema, ZeroThreshold: g.zero, CustomValues: g.bounds,
		ZeroCount: uint64(g.zeros), Sum: g.rnd.Float64()}
	h.Count = h.ZeroCount
	h.PositiveSpans, h.PositiveBuckets = g.side(g.pos, h)
	h.NegativeSpans, h.NegativeBuckets = g.side(g.neg, h)
	if g.gauge {
		h.CounterResetHint = histogram.GaugeType
	} else {
		h.CounterResetHint = []histogram.CounterResetHint{
			histogram.UnknownCounterReset, histogram.UnknownCounterReset, histogram.NotCounterReset,
			histogram.UnknownCounterReset, histogram.UnknownCounterReset, histogram.CounterReset,
		}[g.rnd.IntN(6)]
	}
	return g.made(h)
}

func (g *generator) made(h *histogram.Histogram) chunk.Histogram {
	if g.float {
		return chunk.Histogram{Float: h.ToFloat(nil)}
	}
	return chunk.Histogram{Int: h}
}

// side lays out buckets as clients do: runs of buckets in spans, and sometimes an empty span.
func (g *generator) side(counts map[int32]int64, h *histogram.Histogram) (spans []histogram.Span, deltas []int64) {
	var last int64
	next := int32(0)
	for i := int32(-3); i < 8; i++ {
		n, ok := counts[i]
		if !ok {
			continue
		}
		switch {
		case len(spans) > 0 && i == next:
			spans[len(spans)-1].Length++
		case len(spans) > 0 && i > next+1 && g.rnd.IntN(4) == 0:
			spans = append(spans, histogram.Span{Offset: 1}, histogram.Span{Offset: i - next - 1, Length: 1})
		default:
			spans = append(spans, histogram.Span{Offset: i - next, Length: 1})
		}
		next = i + 1
		deltas = append(deltas, n-last)
		last = n
		h.Count += uint64(n)
	}
	return spans, deltas
}

func TestHintOfFirstInRangeNeedsTheOneBefore(t *testing.T) {
	h := &histogram.Histogram{Count: 1, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{1}}
	s := chunk.Samples{H: []chunk.Histogram{{T: 1, Int: h}, {T: 2, Int: h}, {T: 4, Int: h}}}
	hintAt := func(s chunk.Samples, mint int64) histogram.CounterResetHint {
		it := iteratorFor(nil, mint, over(s))
		it.Next()
		_, h := it.AtHistogram(nil)
		return h.CounterResetHint
	}
	require.Equal(t, histogram.UnknownCounterReset, hintAt(s, 1))
	require.Equal(t, histogram.NotCounterReset, hintAt(s, 2))
	s.T, s.V = []int64{3}, []float64{1}
	require.Equal(t, histogram.UnknownCounterReset, hintAt(s, 4), "after a float")
}
