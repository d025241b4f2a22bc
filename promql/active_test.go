package promql

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/tenant"
)

// stuck is a Queryable whose selects return only when the query's context ends.
type stuck struct{ begun chan struct{} }

func (s stuck) Querier(int64, int64) (promstorage.Querier, error) {
	return stuckQuerier{promstorage.NoopQuerier(), s}, nil
}

type stuckQuerier struct {
	promstorage.Querier
	stuck
}

func (q stuckQuerier) Select(ctx context.Context, _ bool, _ *promstorage.SelectHints,
	_ ...*labels.Matcher) promstorage.SeriesSet {
	close(q.begun)
	<-ctx.Done()
	return promstorage.ErrSeriesSet(ctx.Err())
}

func TestActiveQueriesAreSeenAndCanceledByTheirTenant(t *testing.T) {
	var log bytes.Buffer
	o := DefaultOptions()
	o.LogSlowerThan, o.Logger = time.Nanosecond, slog.New(slog.NewTextHandler(&log, nil))
	e := NewEngine(o)
	data := stuck{make(chan struct{})}
	ctx := Origin{Address: "1.2.3.4:5", UserAgent: strings.Repeat("u", 300),
		RequestID: "r"}.Into(tenant.NewContext(t.Context(), "a"))
	q, err := e.NewRangeQuery(ctx, data, nil, `sum(`+strings.Repeat("x", 2000)+`)`, time.Unix(60, 0), time.Unix(120, 0),
		time.Minute)
	require.NoError(t, err)
	ended := make(chan *promengine.Result)
	go func() { ended <- q.Exec(ctx) }()
	<-data.begun

	active := e.ActiveQueries([]string{"a"})
	require.Len(t, active, 1)
	require.Equal(t, []string{"a"}, active[0].Tenants)
	require.Equal(t, "r", active[0].Origin.RequestID)
	require.Equal(t, 60.0, active[0].Step)
	require.EqualValues(t, 120, active[0].End.Unix())
	require.Len(t, e.ActiveQueries([]string{"b", "a"}), 1)
	require.Empty(t, e.ActiveQueries([]string{"b"}))
	require.False(t, e.CancelQuery(active[0].ID, []string{"b"}), "another tenant's")
	require.False(t, e.CancelQuery("nothing", []string{"a"}))
	require.True(t, e.CancelQuery(active[0].ID, []string{"a"}))

	var canceled promengine.ErrQueryCanceled
	require.ErrorAs(t, (<-ended).Err, &canceled)
	require.Empty(t, e.ActiveQueries([]string{"a"}))
	q.Close()
	require.NoError(t, e.Close())

	line := log.String()
	require.Equal(t, 1, strings.Count(line, "\n"))
	require.Less(t, len(line), 2*slowQueryBytes)
	for _, fragment := range []string{"tenant=a", "sum(xxx", "took=", "step=1m0s", "request_id=r", "err="} {
		require.Contains(t, line, fragment)
	}
}

func TestQueriesThatAreQuickEnoughArentLogged(t *testing.T) {
	var log bytes.Buffer
	nobody := promstorage.QueryableFunc(func(int64, int64) (promstorage.Querier, error) {
		return promstorage.NoopQuerier(), nil
	})
	for _, than := range []time.Duration{0, time.Hour} {
		o := DefaultOptions()
		o.LogSlowerThan, o.Logger = than, slog.New(slog.NewTextHandler(&log, nil))
		e := NewEngine(o)
		q, err := e.NewInstantQuery(t.Context(), nobody, nil, "1", time.Unix(0, 0))
		require.NoError(t, err)
		require.NoError(t, q.Exec(t.Context()).Err)
		q.Close()
		require.NoError(t, e.Close())
	}
	require.Empty(t, log.String())
}

func TestShortenedEndsBetweenLetters(t *testing.T) {
	require.Equal(t, "äö", truncateText("äö", 4))
	require.Equal(t, "ä…", truncateText("äö", 3))
	require.Equal(t, "…", truncateText("ä", 1))
}
