package promql

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
)

// askInOrder returns the labels of the series of an answer, as they come; ok is false for a query that is none, or fails.
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

// Answers are in the order in which Prometheus' evaluator gives them over a storage whose series are in the order of their labels, and
// limitk chooses the same series. Of equal values topk and bottomk may choose others, and what takes the order of a map has none.
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
			undecided := false // The evaluator takes the order of a map where there are several steps, as in subqueries.
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
