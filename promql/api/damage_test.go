package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestDamageIsNoFaultOfTheQuery checks that a query that ends because of unreadable rows gets 500, as for a fault of
// the server, whichever table the rows are in.
func TestDamageIsNoFaultOfTheQuery(t *testing.T) {
	eng, now := memory.New(), time.Now()
	store := storagetest.Start(t, eng)
	b := store.NewBatch("default")
	series := labels.FromStrings(model.MetricNameLabel, "m", "i", "1")
	storagetest.Add(t, b, series, storagetest.Samples(
		now.Add(-26*time.Hour).UnixMilli(), 60_000, 26*60, func(i int) float64 { return float64(i) },
	)...)
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, store.SealAll(t.Context()))
	require.NoError(t, store.Close())

	times := fmt.Sprintf("&start=%d&end=%d", now.Add(-26*time.Hour).Unix(), now.Unix())
	ended := map[string]bool{} // the tables whose damage ends any request
	for _, table := range engine.Tables {
		var broken atomic.Bool
		over := faultengine.Wrap(eng, func(op faultengine.Op) faultengine.Action {
			if !broken.Load() || op.Kind != faultengine.Scan || op.Table != table {
				return faultengine.Pass()
			}
			return faultengine.Fail(fmt.Errorf("a scan: %w", engine.ErrCorrupt))
		})
		store := storagetest.Start(t, struct{ engine.Engine }{over}, storagetest.SharedTarget("a", "b"),
			func(o *storage.Options) { o.Follow = true })
		r := rig{apiOver(t, store, nil), store}
		broken.Store(true)
		for _, path := range []string{
			"/query?query=m", "/query?query=absent(m)", "/query_range?query=m&step=600" + times,
			"/query_range?query=sum(rate(m[1h]))&step=600" + times,
			"/series?match[]=m", "/labels", "/labels?match[]=m", "/label/i/values", "/label/i/values?match[]=m",
			"/query_exemplars?query=m" + times,
			"/metadata", "/status/tsdb",
		} {
			w := r.get(Prefix + path)
			if w.Code == http.StatusOK {
				continue
			}
			ended[table.Name] = true
			_, message := failure(t, w)
			require.Equal(t, http.StatusInternalServerError, w.Code, "%s, %s: %s", table, path, message)
			require.Contains(t, message, storage.PlainText(engine.ErrCorrupt.Error()))
		}
		broken.Store(false)
		require.NoError(t, store.Close())
	}
	for _, table := range []*engine.Table{engine.Store, engine.Sealed, engine.Windows, engine.Tails, engine.Processes,
		engine.Deletes, engine.Catalog, engine.Raw} {
		require.True(t, ended[table.Name], "%s", table)
	}
}

// TestNamesThatNothingHas checks that a name longer than any stored name is reported as a fault of the query, even if
// the engine fails for it.
func TestNamesThatNothingHas(t *testing.T) {
	store, now := storagetest.Start(t, memory.New()), time.Now()
	b := store.NewBatch("default")
	storagetest.Add(t, b, labels.FromStrings(model.MetricNameLabel, "m"),
		storagetest.Samples(now.Add(-time.Hour).UnixMilli(), 60_000, 60, func(i int) float64 { return 1 })...)
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, store.SealAll(t.Context()))
	r := rig{apiOver(t, store, nil), store}
	long, times := strings.Repeat("x", engine.MaxKeyText+1),
		fmt.Sprintf("&start=%d&end=%d&step=60", now.Add(-time.Hour).Unix(), now.Unix())
	for _, path := range []string{
		"/query?query=" + long, "/query_range?query=" + long + times, "/series?match[]=" + long,
		"/labels?match[]=" + long,
		"/label/" + long + "/values?", "/query_exemplars?query=" + long + times,
	} {
		require.Equal(t, http.StatusUnprocessableEntity, r.get(Prefix+path).Code, path[:16])
	}
	require.NoError(t, store.Close())
}

// TestDamageOfSamplesBesideBuckets checks that the API returns 500 if raw rows are damaged and a query of native
// histograms must read them although rollups exist.
func TestDamageOfSamplesBesideBuckets(t *testing.T) {
	var broken atomic.Bool
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if !broken.Load() || op.Kind != faultengine.Scan || op.Table != engine.Raw {
			return faultengine.Pass()
		}
		return faultengine.Fail(fmt.Errorf("a scan: %w", engine.ErrCorrupt))
	})
	store, now := storagetest.Start(t, struct{ engine.Engine }{eng}), time.Now().Truncate(time.Hour)
	b := store.NewBatch("default")
	ref, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "h"))
	require.NoError(t, err)
	for i, h := range tsdbutil.GenerateTestHistograms(120) {
		require.NoError(t, b.Histogram(ref, now.Add(-6*time.Hour).UnixMilli()+int64(i+1)*60_000, 0, h, nil))
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, store.SealAll(t.Context()))
	r := rig{apiOver(t, store, nil), store}
	broken.Store(true)
	w := r.get(fmt.Sprintf("%s/query?query=last_over_time(h[1h])&resolution=1h&time=%d", Prefix,
		now.Add(-4*time.Hour).Unix()))
	require.Equal(t, http.StatusInternalServerError, w.Code, "%s", w.Body)
	require.NoError(t, store.Close())
}
