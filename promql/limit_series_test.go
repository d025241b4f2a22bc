package promql

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// listSeries lists series as the API's series endpoint does.
func listSeries(ctx context.Context, t *testing.T, q *Queryable, from, to int64, limit int, sorted bool,
	ms ...*labels.Matcher) []string {
	querier, err := q.Querier(from, to)
	require.NoError(t, err)
	set := querier.Select(ctx, sorted, &promstorage.SelectHints{Start: from, End: to, Func: "series", Limit: limit},
		ms...)
	var list []string
	for set.Next() {
		list = append(list, set.At().Labels().String())
	}
	require.NoError(t, set.Err())
	return list
}

// TestLimitedListsOfSeriesAreFull checks that a limited list of series contains as many series as the limit allows,
// whether they are in the head, sealed, or only in rollups.
func TestLimitedListsOfSeriesAreFull(t *testing.T) {
	x := newBoundedStores(t, rand.New(rand.NewPCG(1, 2)))
	q, ctx := NewQueryable(x.aged), tenant.NewContext(t.Context(), "ta")
	for i := range 3 { // These are in the head only.
		storagetest.Write(t, x.aged, "ta", labels.FromStrings(model.MetricNameLabel, "young", "i", fmt.Sprint(i)),
			storagetest.FloatSample{T: x.now - minute, V: 1})
	}
	any := labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+")
	for _, in := range [][2]int64{{x.now - 10*day, x.now}, {x.now - 9*day, x.now - 7*day},
		{x.now - 4*day, x.now - 3*day}, {x.now - hour, x.now}} {
		all := listSeries(ctx, t, q, in[0], in[1], 0, false, any)
		require.NotEmpty(t, all)
		for limit := 1; limit <= len(all)+1; limit++ {
			for _, sorted := range []bool{false, true} {
				got := listSeries(ctx, t, q, in[0], in[1], limit, sorted, any)
				require.Len(t, got, min(limit, len(all)), "%d of %v", limit, in)
				require.Subset(t, all, got)
			}
		}
	}
}

// TestLimitedListsTakeLittle checks that a limit bounds the memory of a list of unsealed series.
func TestLimitedListsTakeLittle(t *testing.T) {
	const series = 30_000
	store := readyStore(t)
	b := store.NewBatch("default")
	for i := range series {
		storagetest.Add(t, b, labels.FromStrings(model.MetricNameLabel, "big", "id", fmt.Sprint(i)),
			storagetest.FloatSample{T: 1000, V: 1})
	}
	require.NoError(t, b.Commit(t.Context()))
	q := NewQueryable(store)
	bytes := allocated(func() { require.Len(t, listSeries(t.Context(), t, q, 0, 2000, 11, false, name("big")), 11) })
	require.Less(t, bytes, int64(series))
	querier, err := q.Querier(0, 2000)
	require.NoError(t, err)
	bytes = allocated(func() {
		values, _, err := querier.LabelValues(t.Context(), "id", &promstorage.LabelHints{Limit: 11}, name("big"))
		require.NoError(t, err)
		require.Len(t, values, 11)
	})
	require.Less(t, bytes, int64(10*series), "the first of some")
}
