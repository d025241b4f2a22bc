package promql

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

func matcher(t labels.MatchType, name, value string) *labels.Matcher {
	return labels.MustNewMatcher(t, name, value)
}

func TestSeriesOfSeveralTenants(t *testing.T) {
	store := readyStore(t)
	put(t, store, "a", labels.FromStrings("__name__", "m", "i", "2"), 1000)
	put(t, store, "b", labels.FromStrings("__name__", "m", "i", "1"), 1000, 2000)
	put(t, store, "b", labels.FromStrings("__name__", "m", "i", "3", tenantLabel, "forged"), 1000)
	put(t, store, "c", labels.FromStrings("__name__", "m", "secret", "1"), 1000)
	q, err := NewQueryable(store).Querier(0, 2000)
	require.NoError(t, err)
	ctx := tenant.NewContext(t.Context(), "a|b")

	a := `{__name__="m", __tenant_id__="a", i="2"} [1000]`
	b1 := `{__name__="m", __tenant_id__="b", i="1"} [1000 2000]`
	b3 := `{__name__="m", __tenant_id__="b", i="3", original___tenant_id__="forged"} [1000]`
	for _, c := range []struct {
		matchers []*labels.Matcher
		hints    *promstorage.SelectHints
		want     []string
	}{
		{[]*labels.Matcher{name("m")}, nil, []string{a, b1, b3}},
		{[]*labels.Matcher{name("m")}, &promstorage.SelectHints{Limit: 2}, []string{a, b1}},
		{[]*labels.Matcher{name("m"), matcher(labels.MatchEqual, tenantLabel, "b")}, nil, []string{b1, b3}},
		{[]*labels.Matcher{name("m"), matcher(labels.MatchNotRegexp, tenantLabel, "b|c")}, nil, []string{a}},
		{[]*labels.Matcher{name("m"), matcher(labels.MatchEqual, tenantLabel, "c")}, nil, nil},
		{[]*labels.Matcher{name("m"), matcher(labels.MatchEqual, originalLabel, "forged")}, nil, []string{b3}},
	} {
		require.Equal(t, c.want, found(t, q.Select(ctx, true, c.hints, c.matchers...)), "%v", c.matchers)
	}

	names, _, err := q.LabelNames(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"__name__", tenantLabel, "i", originalLabel}, names)
	for label, want := range map[string][]string{
		"i": {"1", "2", "3"}, tenantLabel: {"a", "b"}, originalLabel: {"forged"}, "secret": nil,
	} {
		values, _, err := q.LabelValues(ctx, label, nil)
		require.NoError(t, err)
		require.Equal(t, want, values, label)
	}
	values, _, err := q.LabelValues(ctx, tenantLabel, nil, matcher(labels.MatchEqual, "i", "2"))
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, values)
}

func TestQueriesOfSeveralTenants(t *testing.T) {
	store := readyStore(t)
	for _, name := range []string{"a", "b", "c"} {
		put(t, store, name, labels.FromStrings("__name__", "m"), 1000, 61_000)
	}
	e := NewEngine(DefaultOptions())
	defer e.Close()
	ctx := tenant.NewContext(t.Context(), "a|b")
	for expr, want := range map[string]string{
		"sum(m)":                         "{} => 122000 @[61000]", // put writes the time as the value
		"count by (__tenant_id__) (m)":   "{__tenant_id__=\"a\"} => 1 @[61000]\n{__tenant_id__=\"b\"} => 1 @[61000]",
		"m{__tenant_id__=\"b\"}":         "{__name__=\"m\", __tenant_id__=\"b\"} => 61000 @[61000]",
		"sum(count_over_time(m[5m]))":    "{} => 4 @[61000]",
		"sum(m{__tenant_id__=~\"c|d\"})": "",
	} {
		q, err := e.NewInstantQuery(ctx, NewQueryable(store), nil, expr, time.UnixMilli(61_000))
		require.NoError(t, err)
		result := q.Exec(ctx)
		require.NoError(t, result.Err, expr)
		require.Equal(t, want, result.String(), expr)
		q.Close()
	}
}

func TestExemplarsOfSeveralTenants(t *testing.T) {
	store := readyStore(t)
	for i, name := range []string{"a", "b", "c"} {
		b := store.NewBatch(name)
		s, err := b.Define(nil, labels.FromStrings("__name__", "m"))
		require.NoError(t, err)
		require.NoError(t, b.Exemplar(s, exemplar.Exemplar{
			Ts: 1000, Value: float64(i), Labels: labels.FromStrings("trace", name),
		}))
		require.NoError(t, b.Commit(t.Context()))
	}
	q, err := NewExemplars(store).ExemplarQuerier(tenant.NewContext(t.Context(), "a|b"))
	require.NoError(t, err)
	all, err := q.Select(0, 2000, []*labels.Matcher{name("m")})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, `{__name__="m", __tenant_id__="a"}`, all[0].SeriesLabels.String())
	one, err := q.Select(0, 2000, []*labels.Matcher{name("m"), matcher(labels.MatchEqual, tenantLabel, "b")})
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, "b", one[0].Exemplars[0].Labels.Get("trace"))
}

// limitedStore returns a store whose limits are in a file.
func limitedStore(t *testing.T, file string) (*storage.Store, *tenant.Limiter) {
	table, err := tenant.ParseLimits([]byte(file))
	require.NoError(t, err)
	limiter := tenant.NewLimiter(time.Now, nil)
	limiter.Set(table)
	return storagetest.Open(t, memory.New(), storagetest.KeepForever, func(o *storage.Options) {
		o.Limiter = limiter
	}), limiter
}

func TestLimitsOfAQuery(t *testing.T) {
	store, limiter := limitedStore(
		t, `tenants: {series: {query_series: 5}, samples: {query_samples: 50}, range: {query_range: 1h}}`,
	)
	tenants := []string{"series", "samples", "range", "free"}
	for _, name := range tenants {
		for i := range 6 {
			put(t, store, name, labels.FromStrings("__name__", "m", "i", fmt.Sprint(i)), 1e4, 2e4, 3e4, 4e4, 5e4, 6e4,
				7e4, 8e4, 9e4, 1e5)
		}
	}
	for _, planned := range []bool{true, false} {
		o := DefaultOptions()
		o.Limiter, o.NoPlanner = limiter, !planned
		e := NewEngine(o)
		defer e.Close()
		for _, c := range []struct {
			tenant, expr string
			rng          time.Duration
			limit        string
		}{
			{"series", `sum(rate(m[1m]))`, time.Minute, tenant.KeyQuerySeries},
			{"series", `sum(rate(m{i="1"}[1m]))`, time.Minute, ""},
			{"series", `m{i=~"[0-2]"} + m{i=~"[3-5]"}`, time.Minute, tenant.KeyQuerySeries},
			{"samples", `sum(rate(m[1m]))`, time.Minute, tenant.KeyQuerySamples},
			{"samples", `sum(rate(m{i=~"[0-3]"}[1m]))`, time.Minute, ""},
			{"range", `m`, time.Hour, ""},
			{"range", `m`, time.Hour + time.Second, tenant.KeyQueryRange},
			{"range", `sum_over_time(m[30m])`, time.Hour, tenant.KeyQueryRange},
			{"range", `max_over_time(rate(m[30m])[20m:])`, 10 * time.Minute, ""},
			{"range", `1 + max_over_time(rate(m[30m])[20m:])`, 11 * time.Minute, tenant.KeyQueryRange},
			{"free|series", `sum(m)`, time.Minute, tenant.KeyQuerySeries},
			{"free|samples", `sum(m{i="1"})`, time.Minute, ""},
			{"free|range", `m`, 2 * time.Hour, tenant.KeyQueryRange},
			{"free", `sum(rate(m[1d]))`, time.Hour, ""},
		} {
			about := fmt.Sprint(c.tenant, " ", c.expr, " ", c.rng, " ", planned)
			ctx := tenant.NewContext(t.Context(), c.tenant)
			q, err := e.NewRangeQuery(ctx, NewQueryable(store), nil, c.expr, time.UnixMilli(1e5).Add(-c.rng),
				time.UnixMilli(1e5), time.Minute)
			require.NoError(t, err)
			result := q.Exec(ctx)
			if c.limit == "" {
				require.NoError(t, result.Err, about)
			} else {
				var limit *tenant.LimitError
				require.ErrorAs(t, result.Err, &limit, about)
				require.Equal(t, c.limit, limit.Limit, about)
				require.Equal(t, 422, limit.Status)
			}
			q.Close()
		}
	}
}

func TestLimitsOfOtherReads(t *testing.T) {
	store, _ := limitedStore(t, `tenants: {a: {query_range: 1h}, b: {query_bytes: 30}}`)
	put(t, store, "a", labels.FromStrings("__name__", "old"), 1000)
	put(t, store, "a", labels.FromStrings("__name__", "new"), 2*time.Hour.Milliseconds())
	ctx := tenant.NewContext(t.Context(), "a")
	q, err := NewQueryable(store).Querier(0, 2*time.Hour.Milliseconds())
	require.NoError(t, err)
	names, notes, err := q.LabelValues(ctx, "__name__", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, names, "a list is cut")
	require.Len(t, notes, 1, "and says so")
	put(t, store, "b", labels.FromStrings("__name__", "m", "x", "1"), 1000)
	_, _, err = q.LabelNames(tenant.NewContext(t.Context(), "b"), nil)
	require.ErrorContains(t, err, "limit query_bytes")
	set := q.Select(ctx, true, nil, name("old"))
	require.False(t, set.Next())
	require.ErrorContains(t, set.Err(), "limit query_range", "a remote read isn't")
	set = q.Select(ctx, true, &promstorage.SelectHints{Func: "series", Start: 0, End: 2 * time.Hour.Milliseconds()},
		matcher(labels.MatchRegexp, "__name__", ".+"))
	require.True(t, set.Next())
	require.False(t, set.Next())
	require.NoError(t, set.Err())
	require.Len(t, set.Warnings(), 1)
}
