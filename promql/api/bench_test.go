package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/storagetest"
)

// BenchmarkSmall measures small queries over an hour of one target. There are 20 targets with 200 metrics each, all
// sealed.
func BenchmarkSmall(b *testing.B) {
	store := storagetest.Open(b, storagetest.Pebble(b), storagetest.KeepForever)
	for i := range 20 {
		batch := store.NewBatch("default")
		for m := range 200 {
			ls := labels.FromStrings(model.MetricNameLabel, fmt.Sprintf("metric_%d", m), "instance",
				fmt.Sprintf("host-%d:9100", i), "job", "node")
			storagetest.Add(b, batch, ls, storagetest.Samples(0, 15_000, 240, func(k int) float64 {
				return float64(i + k)
			})...)
		}
		require.NoError(b, batch.Commit(b.Context()))
	}
	require.NoError(b, store.SealAll(b.Context()))
	h := apiOver(b, store, nil)
	of := `{instance="host-7:9100"}`
	for name, path := range map[string]string{
		"instant": "/query?time=3000&query=" + url.QueryEscape("metric_7"+of),
		"rate":    "/query_range?start=600&end=3600&step=60&query=" + url.QueryEscape("rate(metric_7"+of+"[5m])"),
		"target":  "/query?time=3000&query=" + url.QueryEscape(of),
		"names":   "/label/__name__/values?start=0&end=3600&match[]=" + url.QueryEscape(of),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Prefix+path, nil))
				require.Equal(b, http.StatusOK, w.Code)
			}
		})
	}
}
