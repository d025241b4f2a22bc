package adapter

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

func TestAppendable(t *testing.T) {
	store := newStore(t)
	a := NewAppendable(func(tenant string) Batch { return store.NewBatch(tenant) })
	ctx, at := tenant.NewContext(t.Context(), "team-a"), testNow.UnixMilli()
	series := labels.FromStrings(labels.MetricName, "m", "host", "a")

	app := a.Appender(ctx)
	app.SetOptions(&promstorage.AppendOptions{DiscardOutOfOrder: true})
	_, err := app.Append(0, series, at, 1)
	require.NoError(t, err)
	_, err = app.Append(0, series, at-60_000, 2)
	require.NoError(t, err, "any order")
	h := tsdbutil.GenerateTestFloatHistogram(1)
	_, err = app.AppendHistogram(0, labels.FromStrings(labels.MetricName, "h"), at, nil, h)
	require.NoError(t, err)
	require.Equal(t, tsdbutil.GenerateTestFloatHistogram(1), h, "it stays the caller's")
	_, err = app.AppendHistogram(
		0, labels.FromStrings(labels.MetricName, "h"), at-1, tsdbutil.GenerateTestHistogram(1), nil,
	)
	require.NoError(t, err)
	_, err = app.AppendExemplar(0, series, exemplar.Exemplar{
		Labels: labels.FromStrings("trace", "1"), Value: 1, Ts: at,
	})
	require.NoError(t, err)

	// A rejected sample doesn't prevent the others from being stored.
	_, err = app.Append(0, series, at-testNow.UnixMilli(), 3)
	require.ErrorIs(t, err, promstorage.ErrTooOldSample)
	_, err = app.Append(0, series, testNow.Add(time.Hour).UnixMilli(), 3)
	require.ErrorIs(t, err, storage.ErrTooFarAhead)
	_, err = app.Append(0, labels.EmptyLabels(), at, 3)
	require.Error(t, err)
	for _, rejected := range []func() (promstorage.SeriesRef, error){
		func() (promstorage.SeriesRef, error) { return app.UpdateMetadata(0, series, metadata.Metadata{}) },
		func() (promstorage.SeriesRef, error) { return app.AppendSTZeroSample(0, series, at, at-1) },
		func() (promstorage.SeriesRef, error) {
			return app.AppendHistogramSTZeroSample(0, series, at, at-1, nil, h)
		},
	} {
		_, err = rejected()
		require.ErrorIs(t, err, errNotAppended)
	}
	require.NoError(t, app.Commit())
	n, samples := countStored(t, store, "team-a", "m")
	require.Equal(t, []int{1, 2}, []int{n, samples})
	_, samples = countStored(t, store, "team-a", "h")
	require.Equal(t, 2, samples)

	app = a.Appender(ctx)
	_, err = app.Append(0, series, at+1, 1)
	require.NoError(t, err)
	require.NoError(t, app.Rollback())
	n, _ = countStored(t, store, tenant.Default, "m")
	require.Zero(t, n)
	_, samples = countStored(t, store, "team-a", "m")
	require.Equal(t, 2, samples)
}

// failingBatch is a Batch that rejects every sample with an error that isn't specific to one sample.
type failingBatch struct{ Batch }

func (failingBatch) Float(*storage.Series, int64, int64, float64) error { return storage.ErrOverloaded }

// After an error that isn't specific to one sample, nothing is committed.
func TestAppendableThatBreaks(t *testing.T) {
	store := newStore(t)
	commits := 0
	a := NewAppendable(func(tenant string) Batch {
		return failingBatch{countingBatch{store.NewBatch(tenant), &commits}}
	})
	app := a.Appender(context.Background())
	for range 2 {
		_, err := app.Append(0, labels.FromStrings(labels.MetricName, "m"), testNow.UnixMilli(), 1)
		require.ErrorIs(t, err, storage.ErrOverloaded)
	}
	require.ErrorIs(t, app.Commit(), storage.ErrOverloaded)
	require.Zero(t, commits)
}
