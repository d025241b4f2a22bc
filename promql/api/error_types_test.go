package api

import (
	"context"
	"testing"

	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

type failingQueryable struct{ cause func() error }

func (q failingQueryable) Querier(int64, int64) (promstorage.Querier, error) { return nil, q.cause() }

func (q failingQueryable) ChunkQuerier(int64, int64) (promstorage.ChunkQuerier, error) {
	return nil, q.cause()
}

// TestErrorTypesFitTheStatus checks that, if the store fails, the error type fits the status, for each route that
// reads.
func TestErrorTypesFitTheStatus(t *testing.T) {
	var cause error
	r := newRig(t, func(o *Options) {
		o.Queryable = failingQueryable{func() error { return cause }}
		o.Enter = func(ctx context.Context) (context.Context, func(), error) { return ctx, func() {}, nil }
	})
	for _, cause = range []error{
		meter.ErrQueryTooLarge, engine.ErrUnavailable, &tenant.LimitError{Status: 429}, storage.ErrBadDelete,
		engine.ErrClosed,
	} {
		want, known := statusOf(0, cause)
		for _, path := range []string{
			"/query?query=m", "/query_range?query=m&start=1&end=299&step=1", "/labels", "/series?match[]=m",
			"/label/i/values",
		} {
			w := r.get(Prefix + path)
			kind, _ := failure(t, w)
			if known {
				require.Equal(t, want, w.Code, "%s: %s", path, w.Body)
				require.Contains(t, []string{errorType(want), "execution"}, kind, path)
			}
		}
	}
}
