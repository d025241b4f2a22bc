package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// sealAndDamage seals two series of the metric up and two of the metric load, damages labels of up, and returns the
// window of the series.
func sealAndDamage(t *testing.T, eng engine.Engine) (window int64) {
	store := storagetest.Start(t, eng)
	b := store.NewBatch("default")
	for i := range 4 {
		ls := labels.FromStrings(model.MetricNameLabel, []string{"up", "load"}[i%2], "job", fmt.Sprint("job-", i))
		storagetest.Add(t, b, ls, storagetest.Samples(
			time.Now().Add(-time.Minute).UnixMilli(), 1000, 3, func(i int) float64 { return float64(i) },
		)...)
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, store.SealAll(t.Context()))
	windows, _, err := store.Counts().Churn(t.Context(), "default", 1)
	require.NoError(t, err)
	require.Len(t, windows, 1)
	window = windows[0].Window
	require.NoError(t, store.Close())

	var rows []engine.Mutation
	partition := engine.Key{engine.Int(window), engine.Int(0), engine.Text("default"), engine.Text("up"), engine.Int(0)}
	for _, table := range []*engine.Table{engine.Raw, engine.RawPages} {
		of := engine.Key{engine.Int(format.KindLabels)}
		var batch []engine.Mutation
		for row, err := range eng.Scan(t.Context(), engine.Range{
			Table: table, Partition: partition, From: of, To: of,
		}) {
			require.NoError(t, err)
			batch = append(batch, engine.Mutation{
				Clustering: row.Clustering.Clone(), Timestamp: format.MaxTime, Value: []byte{9},
			})
		}
		if len(batch) > 0 {
			require.NoError(t, eng.Write(t.Context(), []engine.Batch{
				{Table: table, Partition: partition, Mutations: batch},
			}))
		}
		rows = append(rows, batch...)
	}
	require.NotEmpty(t, rows)
	return window
}

// countingStore is a fakeStore that counts the series of a real store.
type countingStore struct {
	*fakeStore
	counts *counts.Statistics
}

func (c countingStore) CountSeries(ctx context.Context, q counts.SeriesQuery) (counts.SeriesCounts, error) {
	return c.counts.CountSeries(ctx, q)
}

// TestCountsThatLackSeriesHaveWarnings damages labels. Responses in which the affected series are missing must have
// warnings, other responses must not.
func TestCountsThatLackSeriesHaveWarnings(t *testing.T) {
	eng := storagetest.Pebble(t)
	window := sealAndDamage(t, eng)
	o := testOptions()
	o.Store = countingStore{&fakeStore{}, storagetest.Open(t, eng).Counts()}
	for range 2 {
		for metric, series := range map[string]int{"": 2, "up": 0, "load": 2} {
			r := get(t, o, fmt.Sprintf("%sseries?window=%d&metric=%s", Prefix, window, metric))
			require.Equal(t, http.StatusOK, r.StatusCode)
			var answer struct {
				Status   string
				Data     struct{ Series int }
				Warnings []string
			}
			require.NoError(t, json.Unmarshal([]byte(readBody(t, r)), &answer))
			require.Equal(t, "success", answer.Status)
			require.Equal(t, series, answer.Data.Series, "of %q", metric)
			if metric == "load" {
				require.Empty(t, answer.Warnings)
				continue
			}
			require.NotEmpty(t, answer.Warnings, "of %q", metric)
			require.Contains(t, answer.Warnings[0], `"up"`)
		}
	}
}
