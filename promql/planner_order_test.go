package promql

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// askInOrder returns the labels of an answer's series in their order. ok is false if the query is invalid or fails.
func (a asked) askInOrder(t *testing.T, with func() (promengine.Query, error)) (series []labels.Labels, ok bool) {
	q, err := with()
	if err != nil {
		return nil, false
	}
	defer q.Close()
	result := q.Exec(t.Context())
	switch v := result.Value.(type) {
	case promengine.Vector:
		for _, s := range v {
			series = append(series, s.Metric)
		}
	case promengine.Matrix:
		for _, s := range v {
			series = append(series, s.Metric)
		}
	}
	return series, result.Err == nil
}

// TestSeriesComeInTheOrderOfLabels checks that answers have the order that Prometheus' evaluator returns for a storage
// that sorts series by labels, and that limitk chooses the same series. topk and bottomk may choose other series among
// equal values. Answers that the evaluator reads from a map have no defined order.
func TestSeriesComeInTheOrderOfLabels(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	store := readyStore(t)
	s := sampler{t: t, rnd: rand.New(rand.NewPCG(seed, 11)), store: store}
	s.fill()
	for _, sealed := range []bool{false, true} {
		if sealed {
			require.NoError(t, store.SealAll(t.Context()))
		}
		r := newRivals(t, NewQueryable(store), func(o *Options) { o.NoOrder = false })
		a, asked, several, limited := &asker{rnd: rand.New(rand.NewPCG(seed, 12))}, 0, 0, 0
		for n := 0; n < 3000; n++ {
			q := askedOf(a)
			limits := strings.Contains(q.text, "limitk")
			if n%2 == 0 && !limits {
				q.end = 0
			}
			switch {
			case strings.Contains(q.text, "topk") || strings.Contains(q.text, "bottomk"),
				strings.Contains(q.text, "count_values") || strings.Contains(q.text, "histogram_quantile"):
				continue
			}
			plain := func() (promengine.Query, error) {
				return q.with(t.Context(), r.plain, &orderedQueryable{Queryable: r.q, ordered: true})
			}
			want, ok := q.askInOrder(t, plain)
			if !ok {
				continue
			}
			got, ok := q.askInOrder(t, func() (promengine.Query, error) { return q.query(t.Context(), r.planned, r.q) })
			require.True(t, ok, q)
			asked++
			if len(want) > 1 {
				several++
			}
			if limits && len(want) > 0 {
				limited++
			}
			undecided := false // With multiple steps, as in subqueries, the evaluator returns the order of a map.
			for i := 0; i < orders && !undecided && fmt.Sprint(want) != fmt.Sprint(got); i++ {
				again, _ := q.askInOrder(t, plain)
				undecided = fmt.Sprint(want) != fmt.Sprint(again)
			}
			if !undecided {
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "seed %d: %s", seed, q)
			}
		}
		require.Greater(t, several, asked/8)
		require.Positive(t, limited)
	}
}

// TestLargeAnswersComeInTheOrderOfLabels checks that a large answer is in order before its order is cached, after that,
// and if the order of another query is cached.
func TestLargeAnswersComeInTheOrderOfLabels(t *testing.T) {
	t.Parallel()
	const n = 4500 // more series than the minimum for which the order is cached
	store := readyStore(t)
	rnd := rand.New(rand.NewPCG(soak.Seed(t), 13))
	write := func(from, to int) {
		batch := store.NewBatch("default")
		for i := from; i < to; i++ {
			ls := labels.FromStrings(labels.MetricName, "big", "host", fmt.Sprint("host-", i%7), "id",
				fmt.Sprintf("%08x", i*2654435761), "zone", fmt.Sprint("z", rnd.IntN(3)))
			at := someDay + minute
			if rnd.IntN(5) == 0 {
				at -= hour // Most queries find the series, but no sample.
			}
			storagetest.Add(t, batch, ls, storagetest.FloatSample{T: at, V: float64(rnd.IntN(1000))},
				storagetest.FloatSample{T: at + 30_000, V: float64(rnd.IntN(1000))})
		}
		require.NoError(t, batch.Commit(t.Context()))
	}
	r := newRivals(t, NewQueryable(store), func(o *Options) { o.NoOrder = false })
	queries := []string{
		`big`, `rate(big[2h])`, `last_over_time(big[2h])`, `count by (id) (big)`, `max by (host) (big)`,
		`sum by (id, zone) (big)`, `avg without (id) (big)`, `sum(big)`,
		`group by (id) (big > 500)`, `quantile by (zone) (0.5, big)`, `limitk(4000, big)`,
	}
	for _, step := range []func(){
		func() { write(0, n/2) }, func() { require.NoError(t, store.SealAll(t.Context())) },
		func() { write(n/3, n-n/5) }, func() { write(n/2, n) },
	} {
		step()
		for _, text := range slices.Concat(queries, queries) {
			for _, q := range []asked{{text: text, start: someDay + 2*minute},
				{text: text, start: someDay - minute, end: someDay + 5*minute, step: time.Minute}} {
				want, ok := q.askInOrder(t, func() (promengine.Query, error) {
					return q.with(t.Context(), r.plain, &orderedQueryable{Queryable: r.q, ordered: true})
				})
				require.True(t, ok, q)
				got, ok := q.askInOrder(t, func() (promengine.Query, error) {
					return q.query(t.Context(), r.planned, r.q)
				})
				require.True(t, ok, q)
				if text == `big` || q.end > 0 {
					require.True(t, slices.IsSortedFunc(got, labels.Compare), q)
				}
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), q)
				differs, _ := r.difference(q)
				require.Empty(t, differs, q)
			}
		}
	}
}

// TestLargeAnswersOfOneAmongTenantsComeInTheOrderOfLabels checks the order of series that already have a label
// __tenant_id__. A query of multiple tenants renames this label and adds the label of the tenant, which changes the
// order.
func TestLargeAnswersOfOneAmongTenantsComeInTheOrderOfLabels(t *testing.T) {
	t.Parallel()
	store := readyStore(t)
	batch := store.NewBatch("b")
	const n = 5000
	for i := range n {
		ls := labels.FromStrings(labels.MetricName, "big", "a", fmt.Sprint(i%3), tenantLabel, fmt.Sprint(i*7919%n))
		storagetest.Add(t, batch, ls, storagetest.FloatSample{T: someDay, V: 1})
	}
	require.NoError(t, batch.Commit(t.Context()))
	e := NewEngine(DefaultOptions())
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	for range 2 {
		for tenants, text := range map[string]string{"b": `big`, "a|b": `big{__tenant_id__="b"}`} {
			ctx := tenant.NewContext(t.Context(), tenants)
			q, err := asked{text: text, start: someDay}.query(ctx, e, NewQueryable(store))
			require.NoError(t, err)
			vector := q.Exec(ctx).Value.(promengine.Vector)
			require.Len(t, vector, n)
			require.True(t, slices.IsSortedFunc(vector, func(a, b promengine.Sample) int {
				return labels.Compare(a.Metric, b.Metric)
			}), tenants)
			q.Close()
		}
	}
}
