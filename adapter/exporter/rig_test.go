package exporter

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testNow is the current time of the stores in these tests.
var testNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const (
	nowMS    = int64(1_777_636_800_000) // testNow
	midnight = nowMS - dayMS/2
)

func newStore(t testing.TB) *storage.Store {
	return storagetest.Open(t, storagetest.Pebble(t), storagetest.FixedClock(testNow), storagetest.KeepForever)
}

// held maps each series to its samples. Two samples have the same text only if they are equal bit by bit.
type held map[string][]string

func (h held) float(ls labels.Labels, t, st int64, v float64) {
	h[ls.String()] = append(h[ls.String()], fmt.Sprintf("%d %d %016x", t, st, math.Float64bits(v)))
}

func (h held) histogram(t testing.TB, ls labels.Labels, x chunk.Histogram) {
	x, err := chunk.CanonicalHistogram(x)
	require.NoError(t, err)
	// Prometheus' reader never returns a sender's hint of a reset.
	if x.Int != nil && x.Int.CounterResetHint == histogram.CounterReset {
		x.Int = x.Int.Copy()
		x.Int.CounterResetHint = histogram.UnknownCounterReset
	}
	if x.Float != nil && x.Float.CounterResetHint == histogram.CounterReset {
		x.Float = x.Float.Copy()
		x.Float.CounterResetHint = histogram.UnknownCounterReset
	}
	text := ""
	if x.Int != nil {
		text = fmt.Sprintf("%d %d int %#v", x.T, x.ST, *x.Int)
	} else {
		text = fmt.Sprintf("%d %d float %#v", x.T, x.ST, *x.Float)
	}
	h[ls.String()] = append(h[ls.String()], text)
}

// same fails the test at the first difference between want and got.
func same(t testing.TB, want, got held) {
	t.Helper()
	for series, lines := range want {
		require.Len(t, got[series], len(lines), series)
		for i := range lines {
			require.Equal(t, lines[i], got[series][i], series)
		}
	}
	require.Len(t, got, len(want))
}

func (h held) sort() held {
	for _, lines := range h {
		slices.Sort(lines)
	}
	return h
}

// stored returns the samples of a tenant.
func stored(t testing.TB, s *storage.Store, tenant string, minT, maxT int64, ms ...*labels.Matcher) held {
	list, err := s.Select(t.Context(), query.Query{Tenant: tenant, MinT: minT, MaxT: maxT, Matchers: ms})
	require.NoError(t, err)
	out := held{}
	for _, series := range list {
		var c chunk.Samples
		require.NoError(t, series.Samples(&c))
		for i, at := range c.T {
			out.float(series.Labels, at, startOf(&c, i), c.V[i])
		}
		for _, x := range c.H {
			out.histogram(t, series.Labels, x)
		}
	}
	return out.sort()
}

// filler writes samples.
type filler struct {
	t testing.TB
	b *storage.Batch
	n int
}

func fill(t testing.TB, s *storage.Store, tenant string, do func(f *filler)) {
	f := &filler{t: t, b: s.NewBatch(tenant)}
	do(f)
	require.NoError(t, f.b.Commit(t.Context()))
	f.b.Release()
}

func (f *filler) series(ls ...string) *storage.Series {
	ref, err := f.b.Define(nil, labels.FromStrings(ls...))
	require.NoError(f.t, err)
	return ref
}

func (f *filler) float(ref *storage.Series, t, st int64, v float64) {
	require.NoError(f.t, f.b.Float(ref, t, st, v))
	f.n++
}

func (f *filler) histogram(ref *storage.Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) {
	require.NoError(f.t, f.b.Histogram(ref, t, st, h, fh))
	f.n++
}

// odd are floats that are easily corrupted by conversions.
var odd = []float64{
	0, math.Copysign(0, -1), 1, -1.5, math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(value.NormalNaN),
	math.Float64frombits(value.StaleNaN), math.Float64frombits(0xfff8dead0000beef), math.MaxFloat64,
	math.SmallestNonzeroFloat64, 0.1, 1.0 / 3, 1e21, 123456789.000000001, math.Pi, 5e-324, 1 << 53, 0x1p-1022,
}

// mixed writes samples of all kinds, some of them sealed, over days with gaps and at odd times, and returns their
// number.
func mixed(t testing.TB, s *storage.Store) (samples int) {
	fill(t, s, "default", func(f *filler) {
		long := f.series("__name__", "requests_total", "job", "a", "code", "200")
		for i := range int64(700) { // multiple chunks per block, and multiple blocks
			f.float(long, midnight-3*dayMS+i*301_007, 0, float64(i)*0.1)
		}
		edges := f.series("__name__", "requests_total", "job", "b", "code", "500")
		for i, at := range []int64{midnight - 1, midnight, midnight + 1, 18 * dayMS / 24 * 2742, 18*dayMS/24*2742 - 1} {
			f.float(edges, at, 0, float64(i))
		}
		strange := f.series("__name__", "strange", "q", "quote \" backslash \\ newline \n comma, brace } end",
			"é", "日本 <&>")
		for i, v := range odd {
			f.float(strange, midnight-dayMS+int64(i)*997, 0, v)
		}
		early := f.series("__name__", "zzz", "Alpha", "1", "B", "2")
		f.float(early, midnight-dayMS, 0, 1)
		utf8 := f.series("__name__", "with.dots and \"quotes\"", "a.b", "c")
		f.float(utf8, midnight-dayMS+5, 0, 2)
		old := f.series("__name__", "old", "job", "a")
		for i, at := range []int64{-1_777_000_000_567, -dayMS, -1, 0, 1, 7_199_999, 7_200_000, 1_000_000_000_567} {
			f.float(old, at, 0, float64(i))
		}
		f.n += starts(f)
		histograms(f)
		samples += f.n
	})
	require.NoError(t, s.SealAll(t.Context()))
	fill(t, s, "default", func(f *filler) {
		late := f.series("__name__", "requests_total", "job", "a", "code", "200")
		for i := range int64(50) {
			f.float(late, midnight+i*1000+7, 0, float64(i))
		}
		samples += f.n
	})
	fill(t, s, "other", func(f *filler) { f.float(f.series("__name__", "secret"), midnight, 0, 1) })
	return samples
}

// starts writes series with start timestamps.
func starts(f *filler) int {
	ref := f.series("__name__", "started_total", "job", "a")
	for i := range int64(10) {
		st := midnight - dayMS
		if i == 4 {
			st = 0
		}
		require.NoError(f.t, f.b.Float(ref, midnight-dayMS+i*15_000+1, st, float64(i)))
	}
	return 10
}

// histograms writes native histograms of all kinds with floats in between.
func histograms(f *filler) {
	at := midnight - 2*dayMS
	ints := f.series("__name__", "latency", "kind", "int")
	for i := range int64(300) {
		h := tsdbutil.GenerateTestHistogram(i % 70) // with resets
		f.histogram(ints, at+i*15_000, 0, h, nil)
	}
	f.histogram(ints, at+301*15_000, 0, &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}, nil)
	f.float(ints, at+302*15_000, 0, 5)
	floats := f.series("__name__", "latency", "kind", "float")
	for i := range int64(20) {
		h := tsdbutil.GenerateTestFloatHistogram(i)
		if i%7 == 6 {
			h.CounterResetHint = histogram.CounterReset
		}
		f.histogram(floats, at+i*15_000, 0, nil, h)
	}
	gauge := f.series("__name__", "latency", "kind", "gauge")
	for i := range int64(5) {
		f.histogram(gauge, at+i*15_000, 0, tsdbutil.GenerateTestGaugeHistogram(5-i), nil)
		f.histogram(gauge, at+dayMS+i*15_000, 0, nil, tsdbutil.GenerateTestGaugeFloatHistogram(5-i))
	}
	custom := f.series("__name__", "latency", "kind", "custom")
	for i := range int64(5) {
		h := tsdbutil.GenerateTestCustomBucketsHistogram(i)
		if i > 2 { // other bounds
			h.CustomValues = []float64{0, 1, 2, 3, 5}
		}
		f.histogram(custom, at+i*15_000, at-dayMS, h, nil)
		f.histogram(custom, at+dayMS+i*15_000, 0, nil, tsdbutil.GenerateTestCustomBucketsFloatHistogram(i))
	}
}

func everything() Options {
	return Options{
		Tenant: "default", MinT: math.MinInt64, MaxT: math.MaxInt64, BlockWidth: 18 * dayMS / 24,
		Now: func() time.Time { return testNow },
	}
}
