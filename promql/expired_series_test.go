package promql

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// boundedSeries is a series whose samples are known, so that the max error of answers can be computed after they have
// expired.
type boundedSeries struct {
	tenant, name, i string
	t               []int64
	v               []float64 // the count, if it is a histogram
	every           float64   // approximate milliseconds between two samples
	// wobbly is true if the samples are at irregular times. Samples made from buckets are always at regular times.
	wobbly bool
}

// boundedMetrics are the metrics of each tenant, with their kinds and numbers of series.
var boundedMetrics = []struct {
	name   string
	series int
	every  int64
	kind   string
}{
	{"g", 3, minute, "gauge"}, {"c", 3, minute, "counter"}, {"s", 2, 7 * minute, "counter"},
	{"j", 2, 45 * second, "gauge"},
	{"b", 2, minute, "gauge"}, {"h", 2, 2 * minute, "histogram"}, {"n_total", 2, minute, "counter"},
}

// boundedStores are two stores with the same series of two tenants over ten days. One keeps all samples. The other
// keeps raw samples for two days and 5m rollups for six.
type boundedStores struct {
	whole, aged *storage.Store
	now         int64
	series      []*boundedSeries
}

func newBoundedStores(t *testing.T, r *rand.Rand) *boundedStores {
	now := time.Date(2026, 5, 11, 0, 0, 0, 0, time.UTC)
	x := &boundedStores{now: now.UnixMilli()}
	imported := map[string][]storage.ImportedSeries{}
	for _, tenant := range []string{"ta", "tb"} {
		for _, m := range boundedMetrics {
			for i := range m.series {
				s := &boundedSeries{tenant: tenant, name: m.name, i: string(rune('0' + i)), every: float64(m.every),
					wobbly: m.name == "j"}
				s.fill(r, [2]int64{x.now - 10*day, x.now}, m.every, m.kind, i)
				x.series = append(x.series, s)
				imported[tenant] = append(imported[tenant], storage.ImportedSeries{
					Labels: labels.FromStrings("__name__", s.name, "i", s.i), Samples: s.samples(m.kind == "histogram"),
				})
			}
		}
	}
	open := func(raw, five time.Duration) *storage.Store {
		clock := now.Add(-10*24*time.Hour + time.Hour)
		store := storagetest.Open(t, memory.New(), func(o *storage.Options) {
			o.Now, o.Retention, o.Retention5m = func() time.Time { return clock }, raw, five
		})
		clock = now
		for tenant, list := range imported {
			for i := range list {
				list[i].Samples = clone(list[i].Samples)
			}
			_, err := store.Import(t.Context(), tenant, list)
			require.NoError(t, err)
		}
		return store
	}
	x.whole, x.aged = open(0, 0), open(2*24*time.Hour, 6*24*time.Hour)
	return x
}

// fill generates the samples of a time range. A gap always contains the end of an hour, so the samples of a bucket are
// contiguous.
func (s *boundedSeries) fill(r *rand.Rand, in [2]int64, every int64, kind string, i int) {
	from, to, gaps := in[0], in[1], s.name == "b"
	value, reset := 50*r.Float64(), from
	if kind != "gauge" {
		value = float64(r.IntN(1000))
	}
	at := from + every
	if gaps {
		at += r.Int64N(30) * hour / 7 / every * every
	}
	for ; at <= to; at += every {
		if gaps && r.IntN(600) == 0 {
			end := bucketfn.CeilTo(at, hour) + 1 + r.Int64N(5*hour)
			at += bucketfn.CeilTo(end-at, every)
		}
		t := at
		if s.wobbly {
			t += r.Int64N(every/3) - every/6
		}
		if kind != "gauge" && r.IntN(400) == 0 && t-reset > 2*hour {
			// At most one reset per bucket is generated, because more resets would need other bounds.
			value, reset = 0, t
		}
		value = next(r, kind, value, i, t)
		s.t, s.v = append(s.t, t), append(s.v, value)
	}
	if n := len(s.t); n > 0 && s.t[n-1] > to {
		s.t, s.v = s.t[:n-1], s.v[:n-1]
	}
}

// next returns the value of the sample after a sample with the given value.
func next(r *rand.Rand, kind string, value float64, i int, t int64) float64 {
	switch {
	case kind == "gauge" && i == 0:
		return 50 + 50*math.Sin(2*math.Pi*float64(t)/float64(4*hour)) + r.Float64()
	case kind == "gauge":
		return value + r.NormFloat64()
	case kind == "counter" && i == 2: // In bursts.
		if r.IntN(40) == 0 {
			return value + float64(r.IntN(500))
		}
		return value
	default:
		return value + float64(r.IntN(20))
	}
}

// points returns the samples in (from, to].
func (s *boundedSeries) points(from, to int64) (p bucketfntest.Points) {
	lo, _ := slices.BinarySearch(s.t, from+1)
	hi, _ := slices.BinarySearch(s.t, to+1)
	for i := lo; i < hi; i++ {
		p.Floats = append(p.Floats, promengine.FPoint{T: s.t[i], F: s.v[i]})
	}
	return p
}

// samples returns the series as a batch of samples.
func (s *boundedSeries) samples(histograms bool) *chunk.Samples {
	out := &chunk.Samples{}
	for k, t := range s.t {
		if !histograms {
			out.AppendFloat(t, 0, s.v[k])
			continue
		}
		n := uint64(s.v[k])
		out.AppendHistogram(chunk.Histogram{T: t, Int: &histogram.Histogram{
			Schema: 1, ZeroThreshold: 0.001, Count: n, Sum: 1.5 * s.v[k], ZeroCount: n - n/2,
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}}, PositiveBuckets: []int64{int64(n / 2)},
		}})
	}
	return out
}
