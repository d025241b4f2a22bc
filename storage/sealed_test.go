package storage

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// TestCorruptRowsAreNamedAndLeftOut checks invariant I8: corrupt rows are reported and skipped, and the other rows are
// returned.
func TestCorruptRowsAreNamedAndLeftOut(t *testing.T) {
	good := labels.FromStrings(labels.MetricName, "up", "k", "good")
	bad := labels.FromStrings(labels.MetricName, "up", "k", "bad")
	samples := &chunk.Samples{T: []int64{0}, V: []float64{1}}
	for _, c := range []struct {
		name   string
		damage func(w *rowFixture, slot int64)
		table  string
		says   string
		series int
		metric string
	}{
		{"labels that are cut", func(w *rowFixture, slot int64) {
			id := format.SeriesIDOf(bad)
			w.put(
				engine.Raw, w.partition(w.s.period.RawWindowOfSlot(slot), bad), format.RawLabelsKey(id.String()),
				append(format.AppendLabels(nil, labels.EmptyLabels()), 9, 'k'),
			)
		}, "raw", "malformed labels", 1, "up"},
		{"labels of another series", func(w *rowFixture, slot int64) {
			id := format.SeriesIDOf(bad)
			w.put(
				engine.Raw, w.partition(w.s.period.RawWindowOfSlot(slot), bad), format.RawLabelsKey(id.String()),
				format.AppendLabels(nil, good),
			)
		}, "raw", "another series", 1, "up"},
		{"a chunk with a changed byte", func(w *rowFixture, slot int64) {
			value := chunk.AppendChunk(nil, samples)
			value[len(value)/2] ^= 1
			w.chunkBytes(slot, good, value)
		}, "raw", "chunk: corrupt", 1, "up"},
		{"an empty chunk", func(w *rowFixture, slot int64) {
			w.chunkBytes(slot, good, nil)
		}, "raw", "chunk: corrupt", 1, "up"},
		{"a number of shards", func(w *rowFixture, slot int64) {
			w.put(
				engine.Shards, format.ShardsPartition(w.s.period.RawWindowOfSlot(slot), "default"),
				engine.Key{engine.Text("up")}, []byte{0xff},
			)
		}, "shards", "malformed shard count", 1, "up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ts := openUncheckedStore(t)
			slot := ts.period.SlotOf(ts.now.UnixMilli()) - 2
			samples.T[0] = ts.period.SlotEnd(slot)
			w := newRowFixture(t, ts.Store, "default")
			w.chunk(slot, good, samples)
			c.damage(w, slot)
			w.mark(slot)
			for round := range 2 {
				var told []error
				found, err := ts.Select(
					t.Context(),
					query.Query{Tenant: "default", MaxT: 1 << 52, Warn: func(err error) { told = append(told, err) }},
				)
				require.NoError(t, err)
				require.Len(t, found, c.series)
				require.Equal(t, good, found[0].Labels)
				var got chunk.Samples
				require.NoError(t, found[0].Samples(&got))
				require.Equal(t, samples.T, got.T)
				if c.table == "shards" && round == 1 {
					require.Empty(t, told, "the list of metrics is cached, with one shard")
					continue
				}
				require.Len(t, told, 1)
				var corrupt *damage.CorruptRowError
				require.ErrorAs(t, told[0], &corrupt)
				require.Equal(t, c.table, corrupt.Table.Name)
				require.Equal(t, c.metric, corrupt.Metric)
				require.Equal(t, ts.period.RawWindowOfSlot(slot), corrupt.Window)
				require.ErrorContains(t, told[0], c.says)
				require.ErrorContains(t, told[0], `tenant "default"`)
			}
			require.Positive(t, testutil.ToFloat64(ts.metrics.corrupt.WithLabelValues(c.table)))
		})
	}
}

// TestHistogramsOfEarlierVersions reads histograms that earlier versions accepted, although they make the evaluator
// loop or fail. They must be skipped with a warning, and other samples must be returned.
func TestHistogramsOfEarlierVersions(t *testing.T) {
	ts := openTestStore(t, nil)
	slot := ts.period.SlotOf(ts.now.UnixMilli()) - 2
	at := ts.period.SlotEnd(slot)
	bad := labels.FromStrings(labels.MetricName, "h", "job", "bad")
	good := labels.FromStrings(labels.MetricName, "h", "job", "good")
	h := func(t int64, threshold float64) chunk.Histogram {
		return chunk.Histogram{T: t, Float: &histogram.FloatHistogram{ZeroThreshold: threshold, ZeroCount: 1, Count: 1}}
	}
	w := newRowFixture(t, ts.Store, "default")
	w.chunk(slot, bad, &chunk.Samples{H: []chunk.Histogram{h(at-2, 1), h(at-1, math.NaN()), h(at, math.NaN())}})
	w.chunk(slot, good, &chunk.Samples{H: []chunk.Histogram{h(at, 1)}})
	w.mark(slot)

	var told []error
	found, err := ts.Select(
		t.Context(),
		query.Query{Tenant: "default", MaxT: 1 << 52, Sorted: true, Warn: func(err error) { told = append(told, err) }},
	)
	require.NoError(t, err)
	require.Len(t, found, 2)
	for i, want := range [][]int64{{at - 2}, {at}} {
		var got chunk.Samples
		require.NoError(t, found[i].Samples(&got))
		var times []int64
		for _, h := range got.H {
			times = append(times, h.T)
		}
		require.Equal(t, want, times)
	}
	require.Len(t, told, 1)
	require.ErrorContains(t, told[0], `skipped 2 native histograms of {__name__="h", job="bad"}`)
	require.ErrorContains(t, told[0], "the zero threshold is NaN")
}

func TestMarksMakeRowsVisible(t *testing.T) {
	ts := openTestStore(t, nil)
	w := newRowFixture(t, ts.Store, "default")
	slot := ts.period.SlotOf(ts.now.UnixMilli()) - 2
	q := query.Query{Tenant: "default", MaxT: 1 << 52}
	count := func() int {
		found, err := ts.Select(t.Context(), q)
		require.NoError(t, err)
		return len(found)
	}
	for i := range 3 {
		ls := labels.FromStrings(labels.MetricName, "up", "i", fmt.Sprint(i))
		w.chunk(slot, ls, &chunk.Samples{T: []int64{ts.period.SlotEnd(slot)}, V: []float64{1}})
		w.flush()
		require.Equal(t, i, count(), "the window is as it was cached")
		w.mark(slot)
		require.Equal(t, i+1, count())
	}
	hits := ts.cache.Tally().Hits
	require.Equal(t, 3, count())
	require.Greater(t, ts.cache.Tally().Hits, hits)

	q.MinT = ts.period.SlotEnd(slot) + 1
	require.Zero(t, count(), "another slot of the window isn't sealed")
}

// TestOnlyRetentionHides reads samples that are further ahead of the clock than samples may be when they are written.
// They must be returned, because the clock may have been set back since.
func TestOnlyRetentionHides(t *testing.T) {
	ts := openTestStore(t, nil)
	w := newRowFixture(t, ts.Store, "default")
	ls := labels.FromStrings(labels.MetricName, "up")
	horizon, ahead := ts.now.Add(-ts.opts.Retention).UnixMilli(), ts.now.Add(MaxAhead).UnixMilli()
	for _, at := range []int64{horizon - 1, horizon, horizon + 1, ahead, ahead + 1} {
		w.chunk(ts.period.SlotOf(at), ls, &chunk.Samples{T: []int64{at}, V: []float64{1}})
		w.mark(ts.period.SlotOf(at))
	}
	require.Equal(t, []sample{{horizon + 1, 1}, {ahead, 1}, {ahead + 1, 1}}, ts.all("default")[ls.String()])
}

func TestTimesAroundZero(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Retention = 0 })
	w := newRowFixture(t, ts.Store, "default")
	ls := labels.FromStrings(labels.MetricName, "up")
	day := ts.period.All()[0].RawWindowMS
	times := []int64{-day - 1, -day, -day + 1, -1, 0, 1, day, day + 1}
	for _, at := range times {
		w.chunk(ts.period.SlotOf(at), ls, &chunk.Samples{T: []int64{at}, V: []float64{1}})
		w.mark(ts.period.SlotOf(at))
	}
	for from := range times {
		for to := from; to < len(times); to++ {
			found, err := ts.Select(t.Context(), query.Query{Tenant: "default", MinT: times[from], MaxT: times[to]})
			require.NoError(t, err)
			require.Len(t, found, 1)
			var samples chunk.Samples
			require.NoError(t, found[0].Samples(&samples))
			require.Equal(t, times[from:to+1], samples.T)
		}
	}
}
