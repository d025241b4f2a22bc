package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// away is a store whose engine is unavailable.
type away struct{}

func (away) Querier(int64, int64) (promstorage.Querier, error) {
	return nil, fmt.Errorf("cassandra: scan tails: %w: 0 of 1 nodes up", engine.ErrUnavailable)
}

func (away) ChunkQuerier(int64, int64) (promstorage.ChunkQuerier, error) {
	return nil, engine.ErrUnavailable
}

// TestRetryAfter checks that, while no node of the engine is up, every route returns the time after which to retry.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	var federation http.Handler
	r := newRig(t, func(o *Options) {
		o.Queryable = away{}
		o.Now = time.Now
		o.Enter = func(ctx context.Context) (context.Context, func(), error) { return ctx, func() {}, nil }
		federation = NewFederationHandler(*o, time.Minute)
		o.AdminAPI = true
		o.CleanTombstones = func(context.Context, string) error { return engine.ErrUnavailable }
	})
	for _, path := range []string{"/query?query=m&time=299", "/query_range?query=m&start=1&end=299&step=1",
		"/series?match[]=m", "/labels", "/label/job/values"} {
		w := r.get(Prefix + path)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s: %s", path, w.Body)
		require.Equal(t, "1", w.Header().Get("Retry-After"), path)
	}
	federated := httptest.NewRecorder()
	federation.ServeHTTP(federated, httptest.NewRequest(http.MethodGet, FederatePath+"?match[]=m", nil))
	for _, w := range []*httptest.ResponseRecorder{federated,
		r.do(httptest.NewRequest(http.MethodPost, Prefix+"/admin/tsdb/clean_tombstones", nil))} {
		require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s", w.Body)
		require.Equal(t, "1", w.Header().Get("Retry-After"))
	}
	require.Empty(t, newRig(t, nil).get(Prefix+"/labels").Header().Get("Retry-After"))
}
