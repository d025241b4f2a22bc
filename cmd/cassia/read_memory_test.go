package main

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/util/features"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/api"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// heapWatcher receives a streamed response and measures the heap after every megabyte, while the handler is blocked.
type heapWatcher struct {
	*httptest.ResponseRecorder
	bytes, since int
	most         uint64
}

func (w *heapWatcher) Write(b []byte) (int, error) {
	w.bytes += len(b)
	if w.since += len(b); w.since > 1<<20 {
		w.since = 0
		w.most = max(w.most, heapInUse())
	}
	return len(b), nil
}

func (w *heapWatcher) Flush() {}

// heapInUse returns the size of reachable objects. A collection counts objects that are allocated while it runs as
// reachable, so heapInUse collects repeatedly until the size no longer decreases. By then, goroutines that read ahead
// are blocked.
func heapInUse() uint64 {
	var m runtime.MemStats
	least := uint64(math.MaxUint64)
	for same := 0; same < 3; {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if m.HeapAlloc+64<<10 >= least {
			same++
			continue
		}
		same, least = 0, m.HeapAlloc
	}
	return least
}

// TestAStreamedReadDoesntHoldItsAnswer reads many more series from sealed rows than may be in memory at a time.
func TestAStreamedReadDoesntHoldItsAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("stores and reads a million samples: leave -short out")
	}
	const series, samples = 16_000, 240
	eng := memory.New()
	store := storagetest.Open(t, eng, storagetest.KeepForever)
	random := rand.New(rand.NewPCG(1, 2))
	for first := 0; first < series; first += 1000 {
		b := store.NewBatch("default")
		for i := first; i < first+1000; i++ {
			ls := labels.FromStrings("__name__", "big", "i", fmt.Sprint(i))
			storagetest.Add(t, b, ls, storagetest.Samples(1, 15_000, samples, func(int) float64 {
				return random.Float64()
			})...)
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	require.NoError(t, store.SealAll(t.Context()))
	evaluator := promql.NewEngine(promql.DefaultOptions())
	t.Cleanup(func() { require.NoError(t, evaluator.Close()) })
	handler := api.New(api.Options{
		Engine: evaluator, Queryable: promql.NewQueryable(store), Ready: store.Ready, Now: time.Now,
		ExternalURL: &url.URL{}, Features: features.NewRegistry(), Gatherer: prometheus.NewRegistry(),
		Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	body, err := (&prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		Queries: []*prompb.Query{
			{EndTimestampMs: 2 * 3600_000, Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: "big"}}},
		},
	}).Marshal()
	require.NoError(t, err)
	read := func() *heapWatcher {
		r := httptest.NewRequest(
			http.MethodPost, api.Prefix+"/read", strings.NewReader(string(snappy.Encode(nil, body))),
		)
		w := &heapWatcher{ResponseRecorder: httptest.NewRecorder()}
		handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		return w
	}
	read() // Fill the caches of labels and rows.
	before := heapInUse()
	w := read()
	require.Greater(t, w.bytes, series*samples*6, "random values don't get small")
	held := int(w.most) - int(before)
	t.Logf("an answer of %d bytes held %d bytes more in memory", w.bytes, held)
	require.Less(t, held, w.bytes/2)
}
