package promql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// fullGate is a QueryTracker that rejects every query.
type fullGate struct{ err error }

func (g fullGate) GetMaxConcurrent() int                       { return 1 }
func (g fullGate) Delete(int)                                  {}
func (g fullGate) Close() error                                { return nil }
func (g fullGate) Insert(context.Context, string) (int, error) { return -1, g.err }

func TestWhatIsToldOfAQueryThatIsntLetIn(t *testing.T) {
	var timeout promengine.ErrQueryTimeout
	var canceled promengine.ErrQueryCanceled
	for _, c := range []struct {
		err error
		is  func(error) bool
	}{
		{fmt.Errorf("x: %w", ErrTooManyQueries), func(err error) bool { return errors.Is(err, tsdb.ErrNotReady) && errors.Is(err, ErrTooManyQueries) }},
		{context.DeadlineExceeded, func(err error) bool { return errors.As(err, &timeout) }},
		{context.Canceled, func(err error) bool { return errors.As(err, &canceled) }},
	} {
		o := DefaultOptions()
		e := &Engine{opts: o, engine: promengine.NewEngine(promengine.EngineOpts{
			MaxSamples: 1, Timeout: time.Minute, ActiveQueryTracker: errorTracker{fullGate{c.err}},
		})}
		q, err := e.NewInstantQuery(t.Context(), nil, nil, "1", time.Unix(0, 0))
		require.NoError(t, err, "the API would say that the query's text is wrong")
		require.True(t, c.is(q.Exec(t.Context()).Err), "%v", c.err)
		q.Close()
		require.NoError(t, e.Close())
	}
}

func TestWhatEndsAQuery(t *testing.T) {
	var timeout promengine.ErrQueryTimeout
	var canceled promengine.ErrQueryCanceled
	require.ErrorAs(t, asQueryError(fmt.Errorf("expanding series: %w", context.DeadlineExceeded)), &timeout)
	require.ErrorAs(t, asQueryError(fmt.Errorf("expanding series: %w", context.Canceled)), &canceled)
	for _, err := range []error{storage.ErrNotReady, engine.ErrUnavailable} {
		for _, told := range []error{asQueryError(fmt.Errorf("x: %w", err)), asPrometheus(fmt.Errorf("x: %w", err))} {
			require.ErrorIs(t, told, tsdb.ErrNotReady)
			require.ErrorIs(t, told, err)
		}
	}
	var stored promengine.ErrStorage
	for _, err := range []error{meter.ErrQueryTooLarge, resolution.ErrRawExpired, engine.ErrBadKey,
		&tenant.LimitError{},
		context.Canceled, context.DeadlineExceeded} {
		require.False(t, errors.As(asPrometheus(fmt.Errorf("x: %w", err)), &stored), "%v", err)
	}
	other := errors.New("any other")
	require.ErrorAs(t, asQueryError(fmt.Errorf("expanding series: %w", asPrometheus(other))), &stored)
	require.NoError(t, asPrometheus(nil))
	require.Equal(t, other, asQueryError(other))
	require.NoError(t, asQueryError(nil))
}
