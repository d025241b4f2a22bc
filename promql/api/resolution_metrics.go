package api

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/promql"
)

// newAnswerCounter returns the counter of queries by the resolutions that answered them.
func newAnswerCounter(reg prometheus.Registerer) *prometheus.CounterVec {
	return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "cassia_query_answers_total",
		Help: "Queries by the resolutions they read, and by window edges: exact, snapped to bucket edges, or widened " +
			"to buckets. A query that reads multiple resolutions counts for each.",
	}, []string{"resolution", "edges"})
}

// countAnswer counts a query once for each different pair of a resolution and a kind of edges that answered it.
func (a *api) countAnswer(report *promql.Report) {
	type answer struct{ resolution, edges string }
	counted := map[answer]bool{}
	count := func(resolution, edges string) {
		if one := (answer{resolution, edges}); !counted[one] {
			counted[one] = true
			a.answerCounter.WithLabelValues(resolution, edges).Inc()
		}
	}
	for _, p := range report.Fragments() {
		if p.IsFromRaw() {
			count("raw", "exact")
			continue
		}
		for _, s := range p.Segments {
			count(s.Resolution, s.Edges)
		}
	}
}
