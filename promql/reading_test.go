package promql

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestReadingsWhereRawIsGone checks that, after raw samples have expired, a read of samples or chunks gets samples made
// from buckets or an error, depending on its Reading. The Reading reports either case.
func TestReadingsWhereRawIsGone(t *testing.T) {
	store, now := expiringStore(t)
	count := func(set promstorage.ChunkSeriesSet) (n int, err error) {
		for set.Next() {
			it := set.At().Iterator(nil)
			for it.Next() {
				n += it.At().Chunk.NumSamples()
			}
			require.NoError(t, it.Err())
		}
		return n, set.Err()
	}
	for _, c := range []struct {
		about         string
		ago           time.Duration
		refuse        bool
		made, refused bool
	}{
		{"samples are there", 2 * time.Hour, false, false, false},
		{"samples are there, none may be made", 2 * time.Hour, true, false, false},
		{"samples are gone", 72 * time.Hour, false, true, false},
		{"samples are gone, none may be made", 72 * time.Hour, true, false, true},
	} {
		reading := &Reading{Refuse: c.refuse}
		to := now.Add(-c.ago)
		q, err := NewQueryable(store).ChunkQuerier(to.Add(-time.Hour).UnixMilli()+1, to.UnixMilli())
		require.NoError(t, err)
		// The function in a client's hints can't be trusted, because the client may need the samples themselves.
		n, err := count(q.Select(WithReading(t.Context(), reading), true, &promstorage.SelectHints{
			Start: to.Add(-time.Hour).UnixMilli() + 1, End: to.UnixMilli(), Func: "idelta",
		}, name("requests_total")))
		if c.refused {
			require.ErrorIs(t, err, resolution.ErrRawExpired, c.about)
			require.ErrorContains(t, err, "--remote-read.rollups=expand", c.about)
		} else {
			require.NoError(t, err, c.about)
			require.Equal(t, 240, n, c.about)
		}
		require.Equal(t, c.made, reading.HasMadeSamples(), c.about)
		require.Equal(t, c.refused, reading.WasRefused(), c.about)
		require.NoError(t, q.Close())
	}
}

// TestSeriesAreListedWhereRawIsGone checks that, after raw samples have expired, a list of series contains the series
// with buckets in the requested range, but not the series of other times in the same window of rollups.
func TestSeriesAreListedWhereRawIsGone(t *testing.T) {
	now := time.Date(2026, 5, 11, 0, 0, 0, 0, time.UTC)
	begin := now.Add(-10 * 24 * time.Hour)
	clock := begin.Add(time.Hour)
	store := storagetest.Open(
		t, memory.New(), storagetest.Clock(func() time.Time { return clock }), func(o *storage.Options) {
			o.Retention, o.Retention5m = 24*time.Hour, 48*time.Hour
		},
	)
	clock = now
	series := func(name string, from, to time.Time) storage.ImportedSeries {
		samples := &chunk.Samples{}
		for at := from.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
			samples.AppendFloat(at.UnixMilli(), 0, 1)
		}
		return storage.ImportedSeries{Labels: labels.FromStrings(labels.MetricName, "m", "i", name), Samples: samples}
	}
	_, err := store.Import(t.Context(), "default", []storage.ImportedSeries{
		series("younger", now.Add(-4*24*time.Hour), now), series("older", begin, now.Add(-6*24*time.Hour)),
		series("always", begin, now),
	})
	require.NoError(t, err)

	list := func(from, to time.Time, sorted bool, limit int) (found []string) {
		q, err := NewQueryable(store).Querier(from.UnixMilli(), to.UnixMilli())
		require.NoError(t, err)
		set := q.Select(t.Context(), sorted, &promstorage.SelectHints{Start: from.UnixMilli(), End: to.UnixMilli(),
			Func: "series", Limit: limit}, name("m"))
		for set.Next() {
			found = append(found, set.At().Labels().Get("i"))
			require.Equal(t, chunkenc.ValNone, set.At().Iterator(nil).Next(), "only labels are wanted")
		}
		require.NoError(t, set.Err())
		require.Empty(t, set.Warnings())
		return found
	}
	daysAgo := func(n int) time.Time { return now.Add(-time.Duration(n) * 24 * time.Hour) }
	require.Equal(t, []string{"always", "older"}, list(daysAgo(9), daysAgo(8), true, 0))
	require.Equal(t, []string{"always"}, list(daysAgo(6).Add(2*time.Hour), daysAgo(4), true, 0),
		"between the two others")
	require.Equal(t, []string{"always", "younger"}, list(daysAgo(3), daysAgo(2), true, 0))
	require.Equal(t, []string{"always", "older", "younger"}, list(daysAgo(9), now, true, 0),
		"from samples and from buckets")
	require.Len(t, list(daysAgo(9), now, true, 2), 2)
	require.Len(t, list(daysAgo(9), now, false, 1), 1)
	require.Empty(t, list(daysAgo(12), daysAgo(11), true, 0))
}

// TestSeriesAreListedForRemoteRead checks the list of series that Prometheus requests by a remote read with the
// function name "series". The streamed answer contains only series with chunks.
func TestSeriesAreListedForRemoteRead(t *testing.T) {
	store, now := expiringStore(t)
	for _, c := range []struct {
		about        string
		ago          time.Duration
		refuse       bool
		listed, made bool
	}{
		{"samples are there", 2 * time.Hour, false, true, false},
		{"samples are there, none may be made", 2 * time.Hour, true, true, false},
		{"there are 5m rollups", 36 * time.Hour, false, true, true},
		{"there are 1h rollups", 72 * time.Hour, false, true, true},
		{"samples are gone, none may be made", 72 * time.Hour, true, false, false},
	} {
		reading := &Reading{Refuse: c.refuse}
		to := now.Add(-c.ago)
		hints := &promstorage.SelectHints{Start: to.Add(-time.Hour).UnixMilli(), End: to.UnixMilli(), Func: "series"}
		q, err := NewQueryable(store).ChunkQuerier(hints.Start, hints.End)
		require.NoError(t, err)
		set := q.Select(WithReading(t.Context(), reading), true, hints, name("requests_total"))
		require.True(t, set.Next(), c.about)
		require.Equal(t, "api", set.At().Labels().Get("job"))
		chunks := set.At().Iterator(nil)
		require.Equal(t, c.listed, chunks.Next(), c.about)
		require.NoError(t, chunks.Err(), c.about)
		require.False(t, set.Next(), c.about)
		require.NoError(t, set.Err(), c.about)
		require.Empty(t, set.Warnings(), c.about)
		require.Equal(t, c.made, reading.HasMadeSamples(), c.about)
		require.False(t, reading.WasRefused(), c.about)
		require.NoError(t, q.Close())
	}
}
