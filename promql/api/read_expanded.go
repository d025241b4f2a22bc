package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/promql"
)

// newReadsMade returns the counter of answers to remote read that can't be annotated themselves.
func newReadsMade(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "cassia_remote_read_expanded_total",
		Help: "Remote read requests over expired raw samples that were answered with samples reconstructed from rollups.",
	})
}

// reading answers requests of remote read with samples made of buckets where raw samples are gone, or refuses to.
func (a *api) reading(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reading := &promql.Reading{Refuse: a.RefuseRollups}
		h(&refusedWriter{w, reading}, r.WithContext(promql.WithReading(r.Context(), reading)))
		if reading.Made() {
			a.readsMade.Inc()
		}
	}
}

// refusedWriter answers 422 or 503 in place of the 500 that Prometheus' handler has for any error.
type refusedWriter struct {
	http.ResponseWriter
	reading *promql.Reading
}

// WriteHeader implements http.ResponseWriter.
func (w *refusedWriter) WriteHeader(code int) {
	if code == http.StatusInternalServerError {
		if w.reading.Refused() {
			code = http.StatusUnprocessableEntity
		} else if known, ok := statusOf(0, w.reading.Err()); ok {
			code = known
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher, which streamed answers need.
func (w *refusedWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
