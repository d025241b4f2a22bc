package roundtrip

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/exporter"
	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/blocks"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/adapter/importer/lines"
	"github.com/cassia-db/cassia/adapter/importer/remoteread"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/storagetest"
)

const dayMS = int64(24 * time.Hour / time.Millisecond)

func newStore(t *testing.T) *storage.Store {
	return storagetest.Open(t, storagetest.Pebble(t), storagetest.KeepForever)
}

// heldSamples contains the samples of a store by series, as text that preserves every bit.
type heldSamples map[string][]string

// read returns the samples of a store. change returns a replacement for each float, or false to omit it.
func read(t *testing.T, s *storage.Store, change func(v float64) (float64, bool), histograms, starts bool) heldSamples {
	list, err := s.Select(t.Context(), query.Query{Tenant: "default", MinT: math.MinInt64, MaxT: math.MaxInt64})
	require.NoError(t, err)
	out := heldSamples{}
	for _, series := range list {
		var c chunk.Samples
		require.NoError(t, series.Samples(&c))
		name := series.Labels.String()
		for i, at := range c.T {
			v, ok := change(c.V[i])
			st := int64(0)
			if starts && len(c.ST) > 0 {
				st = c.ST[i]
			}
			if ok {
				out[name] = append(out[name], fmt.Sprintf("%d %d %016x", at, st, math.Float64bits(v)))
			}
		}
		for _, h := range c.H {
			if !histograms {
				break
			}
			st := h.ST
			if !starts {
				st = 0
			}
			if h.Int != nil {
				out[name] = append(out[name], fmt.Sprintf("%d %d int %#v", h.T, st, *h.Int))
			} else {
				out[name] = append(out[name], fmt.Sprintf("%d %d float %#v", h.T, st, *h.Float))
			}
		}
		slices.Sort(out[name])
	}
	return out
}

func requireSame(t *testing.T, want, got heldSamples) {
	t.Helper()
	for series, all := range want {
		require.Len(t, got[series], len(all), series)
		for i := range all {
			require.Equal(t, all[i], got[series][i], series)
		}
	}
	require.Len(t, got, len(want))
}

func asIs(v float64) (float64, bool) { return v, true }

// usualNaN replaces every NaN with the standard NaN, as a text format does, and omits stale markers.
func usualNaN(v float64) (float64, bool) {
	if math.IsNaN(v) {
		return math.Float64frombits(value.NormalNaN), !value.IsStaleNaN(v)
	}
	return v, true
}

// midnight returns the start of the day (UTC) three days ago, in milliseconds.
func midnight() int64 { return time.Now().UnixMilli()/dayMS*dayMS - 3*dayMS }

// fillStore writes samples of every kind that an export could lose or change. With old, it also writes samples from
// around 1970 and earlier.
func fillStore(t *testing.T, s *storage.Store, old bool) {
	b := s.NewBatch("default")
	defer b.Release()
	series := func(ls ...string) *storage.Series {
		ref, err := b.Define(nil, labels.FromStrings(ls...))
		require.NoError(t, err)
		return ref
	}
	float := func(ref *storage.Series, at, st int64, v float64) { require.NoError(t, b.Float(ref, at, st, v)) }
	day := midnight()
	long := series("__name__", "requests_total", "job", "a")
	for i := range int64(900) {
		float(long, day-dayMS+i*301_007, 0, float64(i)*0.1)
	}
	odd := series("__name__", "odd", "q", "a\"b\\c\nd,e}", "é", "日本 <&>")
	for i, v := range []float64{
		0, math.Copysign(0, -1), -1.5, math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(value.StaleNaN),
		math.Float64frombits(0xfff8dead0000beef), math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1, 1.0 / 3, 1e21,
		123456789.000000001,
	} {
		float(odd, day+int64(i)*997, 0, v)
	}
	float(series("__name__", "early", "A", "1"), day, 0, 1)
	float(series("__name__", "with.dots and \"quotes\"", "a.b", "c"), day+1, 0, 2)
	float(series("__name__", "started_total"), day+2, day-dayMS, 3)
	if old {
		for i, at := range []int64{-1_777_000_000_567, -1, 0, 1, 7_200_000, 1_000_000_000_567} {
			float(series("__name__", "old"), at, 0, float64(i))
		}
	}
	ints, floats := series("__name__", "latency", "kind", "int"), series("__name__", "latency", "kind", "float")
	custom, gauge := series("__name__", "latency", "kind", "custom"), series("__name__", "latency", "kind", "gauge")
	floatGauge, floatCustom, changes := series("__name__", "latency", "kind", "float gauge"),
		series("__name__", "latency", "kind", "float custom"), series("__name__", "latency", "kind", "changes")
	for i := range int64(150) {
		at := day + i*15_000
		require.NoError(t, b.Histogram(ints, at, 0, tsdbutil.GenerateTestHistogram(i), nil))
		require.NoError(t, b.Histogram(floats, at, day-dayMS, nil, tsdbutil.GenerateTestFloatHistogram(i)))
		require.NoError(t, b.Histogram(custom, at, 0, tsdbutil.GenerateTestCustomBucketsHistogram(i), nil))
		require.NoError(t, b.Histogram(gauge, at, 0, tsdbutil.GenerateTestGaugeHistogram(100-i%50), nil))
		require.NoError(t, b.Histogram(floatGauge, at, 0, nil, tsdbutil.GenerateTestGaugeFloatHistogram(100-i%50)))
		require.NoError(t, b.Histogram(floatCustom, at, 0, nil, tsdbutil.GenerateTestCustomBucketsFloatHistogram(i)))
		changing := tsdbutil.GenerateTestHistogram(i)
		if i >= 75 { // Use a coarser schema and a wider zero bucket.
			changing.Schema, changing.ZeroThreshold = 0, 0.01
		}
		require.NoError(t, b.Histogram(changes, at, 0, changing, nil))
	}
	require.NoError(
		t, b.Histogram(ints, day+dayMS/2, 0, &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}, nil),
	)
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, s.SealAll(t.Context()))
}

func exportAll() exporter.Options {
	return exporter.Options{
		Tenant: "default", MinT: math.MinInt64, MaxT: math.MaxInt64, BlockWidth: 18 * dayMS / 24, Now: time.Now,
	}
}

// moveIn imports a source into a new store and returns the store. It imports twice, because the second import must not
// change anything.
func moveIn(t *testing.T, source importer.Source) *storage.Store {
	s := newStore(t)
	for range 2 {
		_, err := importer.Run(t.Context(), importer.Options{
			Into: importer.NewLocal(s, time.Now), Tenant: "default", Source: source,
		})
		require.NoError(t, err)
	}
	return s
}

func newFolder(t *testing.T, path string) *exporter.Folder {
	f, err := exporter.NewFolder(path)
	require.NoError(t, err)
	return f
}

// TestThereAndBack checks that all samples that a format supports are unchanged after they were exported in that format
// and imported again.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	fillStore(t, s, true)
	dir := t.TempDir()

	o := exportAll()
	o.StartTimestamps = true
	_, err := exporter.Blocks(t.Context(), s, o, newFolder(t, filepath.Join(dir, "blocks")))
	require.NoError(t, err)
	back := moveIn(t, blocks.New(blocks.Options{
		Dirs: []string{filepath.Join(dir, "blocks")}, Selection: importer.Everything(),
	}))
	requireSame(t, read(t, s, asIs, true, true), read(t, back, asIs, true, true))

	text := filepath.Join(dir, "all.jsonl")
	_, err = exporter.TextFile(t.Context(), s, exporter.JSONLines, exportAll(), text)
	require.NoError(t, err)
	back = moveIn(t, lines.New(lines.Options{Path: text, Format: lines.JSONLines, Selection: importer.Everything()}))
	requireSame(t, withoutEmpty(read(t, s, asIs, false, false)), read(t, back, asIs, false, false))

	text = filepath.Join(dir, "all.om")
	_, err = exporter.TextFile(t.Context(), s, exporter.OpenMetrics, exportAll(), text)
	require.NoError(t, err)
	back = moveIn(t, lines.New(lines.Options{Path: text, Format: lines.OpenMetrics, Selection: importer.Everything()}))
	requireSame(t, withoutEmpty(read(t, s, usualNaN, false, false)), read(t, back, asIs, false, false))
}

// withoutEmpty removes series without samples, which are those that had only histograms.
func withoutEmpty(h heldSamples) heldSamples {
	for series, all := range h {
		if len(all) == 0 {
			delete(h, series)
		}
	}
	return h
}

// TestHistogramsOfRollups exports native histograms whose raw samples have expired, from 5m and from 1h rollups, and
// imports them again. Each hour must keep its count, its first and last histogram, and its counter correction or, for
// gauges, its sum.
func TestHistogramsOfRollups(t *testing.T) {
	t.Parallel()
	const days = 24 * time.Hour
	full := newStore(t)
	fillStore(t, full, false)
	hours := hoursOf(t, full)
	require.GreaterOrEqual(t, len(hours), 7)
	for name, kept5m := range map[string]time.Duration{"5m": 0, "1h": 5 * days} {
		at := time.Now()
		s := storagetest.Open(t, storagetest.Pebble(t), func(o *storage.Options) {
			o.Retention, o.Retention5m, o.Retention1h, o.Now = 5*days, kept5m, 0, func() time.Time { return at }
		})
		at = at.Add(50 * days)
		whole, err := full.Select(t.Context(), query.Query{Tenant: "default", MinT: math.MinInt64, MaxT: math.MaxInt64})
		require.NoError(t, err)
		var list []storage.ImportedSeries
		for _, x := range whole {
			samples := &chunk.Samples{}
			require.NoError(t, x.Samples(samples))
			list = append(list, storage.ImportedSeries{Labels: x.Labels, Samples: samples})
		}
		stats, err := s.Import(t.Context(), "default", list)
		require.NoError(t, err)
		require.Zero(t, stats.Samples)
		require.Equal(t, name == "1h", stats.HoursOnly > 0)
		dir := t.TempDir()
		exported, err := exporter.Blocks(t.Context(), s, exportAll(), newFolder(t, filepath.Join(dir, "blocks")))
		require.NoError(t, err)
		require.Equal(t, exported.Samples, exported.Made)
		require.EqualValues(t, 7*150, exported.Histograms, name)
		require.EqualValues(t, 1, exported.LeftOut.Buckets, "the odd values can't be added up")
		back := moveIn(t, blocks.New(blocks.Options{
			Dirs: []string{filepath.Join(dir, "blocks")}, Selection: importer.Everything(),
		}))
		require.Equal(t, hours, hoursOf(t, back), name)
	}
}

// hoursOf returns the native histograms of each 1h rollup, by series. For a counter, it returns the sum of the
// correction and the last histogram instead of the correction. The correction alone may have another bucket layout
// after an import, because reconstructed samples before a reset have the hour's coarsest layout; the sum has that
// layout in both stores.
func hoursOf(t *testing.T, s *storage.Store) map[string][]string {
	list, err := s.Select(t.Context(), query.Query{
		Tenant: "default", MinT: math.MinInt64, MaxT: math.MaxInt64, Resolution: rollup.OneHour,
		Columns:  rollup.AllColumns,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "latency")},
	})
	require.NoError(t, err)
	all := map[string][]string{}
	for _, x := range list {
		var b rollup.Buckets
		require.NoError(t, x.Buckets(&b, &query.BucketBuffers{}))
		for i, h := range b.Histograms {
			if h == nil {
				continue
			}
			text := fmt.Sprint(b.End[i], h.Count, h.First, h.Last)
			if h.HasGauges {
				text += fmt.Sprintf(" %.9g %.9g", h.Sum.Count, h.Sum.Sum)
			} else if h.Correction == nil {
				text += " nil"
			} else {
				sum, _, _, err := h.Last.Copy().Add(h.Correction)
				require.NoError(t, err)
				text += fmt.Sprint(sum)
			}
			all[x.Labels.String()] = append(all[x.Labels.String()], text)
		}
	}
	return all
}

// TestThroughPrometheus checks that samples are unchanged after a real Prometheus has opened the exported blocks and
// they were imported from this Prometheus with remote read.
func TestThroughPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Prometheus")
	}
	binary, err := promrig.Binary("CASSIA_TEST_PROMETHEUS", "prometheus")
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s := newStore(t)
	fillStore(t, s, false)
	dir := t.TempDir()
	_, err = exporter.Blocks(ctx, s, exportAll(), newFolder(t, filepath.Join(dir, "data")))
	require.NoError(t, err)
	address, err := promrig.FreeAddress()
	require.NoError(t, err)
	program, err := promrig.Prometheus(binary, dir, address, "{}", "--storage.tsdb.retention.time=100y")
	require.NoError(t, err)
	prometheus, err := promrig.StartReady(ctx, program)
	require.NoError(t, err)
	defer prometheus.Kill()

	answer, err := promrig.API{URL: prometheus.URL()}.Query(ctx, `count_over_time(requests_total[5d])`,
		time.UnixMilli(midnight()+3*dayMS))
	require.NoError(t, err)
	require.Equal(t, 1, answer.Points(), "a Prometheus opens the blocks")
	sel := importer.Everything()
	sel.MinMS = midnight() - 2*dayMS
	u, err := fetch.ParseURL(prometheus.URL()+"/api/v1/read", http.Header{})
	require.NoError(t, err)
	back := moveIn(t, remoteread.New(remoteread.Options{
		Client: fetch.Client{HTTP: http.DefaultClient, URL: u}, Selection: sel, Width: 24 * time.Hour, Now: time.Now,
	}))
	requireSame(t, read(t, s, asIs, true, false), read(t, back, asIs, true, false))
	log, err := os.ReadFile(program.Log)
	require.NoError(t, err)
	require.NotContains(t, string(log), "level=ERROR")
	require.NoError(t, prometheus.Terminate(2*time.Minute))
}
