package promql

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

func readyStore(t *testing.T) *storage.Store {
	return storagetest.Open(t, memory.New(), storagetest.KeepForever)
}

// put writes one float per timestamp, with the timestamp as its value.
func put(t *testing.T, store *storage.Store, tenant string, ls labels.Labels, at ...int64) {
	samples := make([]storagetest.FloatSample, len(at))
	for i, ts := range at {
		samples[i] = storagetest.FloatSample{T: ts, V: float64(ts)}
	}
	storagetest.Write(t, store, tenant, ls, samples...)
}

func name(s string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, s)
}

// found lists the series and the times of their samples.
func found(t *testing.T, set promstorage.SeriesSet) (out []string) {
	t.Helper()
	var it chunkenc.Iterator
	for set.Next() {
		it = set.At().Iterator(it)
		out = append(out, fmt.Sprint(set.At().Labels(), times(it)))
		require.NoError(t, it.Err())
	}
	require.NoError(t, set.Err())
	require.Empty(t, set.Warnings())
	return out
}

func TestQuerierReadsItsRangeOfItsTenant(t *testing.T) {
	store := readyStore(t)
	for i, at := range [][]int64{{-5000, 0, 1000, 2000}, {1500}, {9000}} {
		put(t, store, "default", labels.FromStrings(model.MetricNameLabel, "m", "i", fmt.Sprint(i)), at...)
	}
	put(t, store, "other", labels.FromStrings(model.MetricNameLabel, "m", "i", "other"), 1000)
	q, err := NewQueryable(store).Querier(0, 2000)
	require.NoError(t, err)
	defer q.Close()

	for _, c := range []struct {
		about string
		hints *promstorage.SelectHints
		want  []string
	}{
		{"no hints", nil, []string{`{__name__="m", i="0"} [0 1000 2000]`, `{__name__="m", i="1"} [1500]`}},
		{"hints without times", &promstorage.SelectHints{}, []string{`{__name__="m", i="0"} [0 1000 2000]`,
			`{__name__="m", i="1"} [1500]`}},
		{"narrower hints", &promstorage.SelectHints{Start: 500, End: 1200}, []string{`{__name__="m", i="0"} [1000]`}},
		{"wider hints", &promstorage.SelectHints{Start: -9000, End: 9000},
			[]string{`{__name__="m", i="0"} [0 1000 2000]`, `{__name__="m", i="1"} [1500]`}},
		{"a limit", &promstorage.SelectHints{Limit: 1}, []string{`{__name__="m", i="0"} [0 1000 2000]`}},
	} {
		var with []string
		for _, s := range found(t, q.Select(t.Context(), true, c.hints, name("m"))) {
			// A series may be listed although all its samples are outside the range. Its list of samples is then empty.
			if s[len(s)-2:] != "[]" {
				with = append(with, s)
			}
		}
		require.Equal(t, c.want, with, c.about)
	}
	require.Equal(t, []string{`{__name__="m", i="other"} [1000]`},
		found(t, q.Select(tenant.NewContext(t.Context(), "other"), true, nil, name("m"))))
	require.Empty(t, found(t, q.Select(tenant.NewContext(t.Context(), "nobody"), true, nil, name("m"))))
}

func TestShardsSplitTheSeries(t *testing.T) {
	store := readyStore(t)
	const series, shards = 30, 4
	for i := range series {
		put(t, store, "default", labels.FromStrings(model.MetricNameLabel, "m", "i", fmt.Sprint(i)), 1000)
	}
	q, err := NewQueryable(store).Querier(0, 2000)
	require.NoError(t, err)
	seen := map[string]int{}
	for shard := range uint64(shards) {
		fragment := found(t, q.Select(t.Context(), true,
			&promstorage.SelectHints{Start: 0, End: 2000, ShardCount: shards, ShardIndex: shard, Limit: 1}, name("m")))
		require.Less(t, len(fragment), series)
		for _, s := range fragment {
			seen[s]++
		}
	}
	require.Len(t, seen, series)
}

func TestLabelsOfTheTenant(t *testing.T) {
	store := readyStore(t)
	put(t, store, "default", labels.FromStrings(model.MetricNameLabel, "a", "x", "1"), 1000)
	put(t, store, "default", labels.FromStrings(model.MetricNameLabel, "b", "x", "2", "y", "3"), 1000)
	put(t, store, "other", labels.FromStrings(model.MetricNameLabel, "c", "z", "9"), 1000)
	q, err := NewQueryable(store).ChunkQuerier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer q.Close()

	names, warnings, err := q.LabelNames(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, []string{model.MetricNameLabel, "x", "y"}, names)
	names, _, err = q.LabelNames(tenant.NewContext(t.Context(), "other"), &promstorage.LabelHints{Limit: 1})
	require.NoError(t, err)
	require.Len(t, names, 1)
	values, _, err := q.LabelValues(t.Context(), "x", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, values)
	values, _, err = q.LabelValues(t.Context(), "x", nil, name("b"))
	require.NoError(t, err)
	require.Equal(t, []string{"2"}, values)
}

// TestHintsDontDependOnTheRangeOrOnSealing checks that the first histogram of a range is compared with the previous one
// before the range, whether that one is sealed or not.
func TestHintsDontDependOnTheRangeOrOnSealing(t *testing.T) {
	store := readyStore(t)
	b := store.NewBatch("default")
	s, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "h"))
	require.NoError(t, err)
	for i, count := range []uint64{1, 2, 3, 1, 2} {
		h := &histogram.Histogram{Count: count, Sum: 1, PositiveSpans: []histogram.Span{{Length: 1}},
			PositiveBuckets: []int64{int64(count)}}
		require.NoError(t, b.Histogram(s, int64(i)*60_000, 0, h, nil))
	}
	require.NoError(t, b.Commit(t.Context()))

	const unknown, not = histogram.UnknownCounterReset, histogram.NotCounterReset
	all := []histogram.CounterResetHint{unknown, not, not, unknown, not}
	for _, sealed := range []bool{false, true} {
		if sealed {
			require.NoError(t, store.SealAll(t.Context()))
		}
		for first := range all {
			q, err := NewQueryable(store).Querier(int64(first)*60_000, math.MaxInt64)
			require.NoError(t, err)
			set := q.Select(t.Context(), false, nil, name("h"))
			require.True(t, set.Next())
			var got []histogram.CounterResetHint
			for it := set.At().Iterator(nil); it.Next() != chunkenc.ValNone; {
				_, h := it.AtHistogram(nil)
				got = append(got, h.CounterResetHint)
			}
			require.Equal(t, all[first:], got, "sealed=%v from %d", sealed, first)
		}
	}
}

// slowEngine blocks the scans that rebuild the head until the test allows them.
type slowEngine struct {
	engine.Engine
	may chan struct{}
}

func (e slowEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	e.wait(r.Table)
	return e.Engine.Scan(ctx, r)
}

func (e slowEngine) Partitions(
	ctx context.Context, t *engine.Table, prefix engine.Key, damaged func(engine.Damage),
) iter.Seq2[engine.Key, error] {
	e.wait(t)
	return e.Engine.Partitions(ctx, t, prefix, damaged)
}

func (e slowEngine) wait(t *engine.Table) {
	if t == engine.Stage || t == engine.Staged {
		<-e.may
	}
}

func TestQueriesWaitForTheHead(t *testing.T) {
	eng := slowEngine{memory.New(), make(chan struct{})}
	store, err := storage.Open(t.Context(), eng, storage.DefaultOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	q := NewQueryable(store)
	_, err = q.Querier(0, 1)
	require.ErrorIs(t, err, storage.ErrNotReady)
	require.ErrorIs(t, err, tsdb.ErrNotReady, "as Prometheus' API knows it")
	_, err = q.ChunkQuerier(0, 1)
	require.ErrorIs(t, err, storage.ErrNotReady)
	close(eng.may)
	require.NoError(t, store.WaitReady(t.Context()))
	_, err = q.Querier(0, 1)
	require.NoError(t, err)
}

func TestSeriesSetEndsWithTheContext(t *testing.T) {
	store := readyStore(t)
	put(t, store, "default", labels.FromStrings(model.MetricNameLabel, "m"), 1000)
	q, err := NewQueryable(store).Querier(0, 2000)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	set := q.Select(ctx, false, nil, name("m"))
	cancel()
	require.False(t, set.Next())
	require.ErrorIs(t, set.Err(), context.Canceled)
}
