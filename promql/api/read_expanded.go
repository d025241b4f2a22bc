package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/promql"
)

// newReadsMade returns the counter of answers to remote read that contain samples made from buckets. The format of
// these answers has no warnings.
func newReadsMade(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "cassia_remote_read_expanded_total",
		Help: "Remote read responses that contain samples reconstructed from rollups, because the raw samples have expired.",
	})
}

// reading returns a handler for remote read. For times whose raw samples have expired, it makes samples from buckets,
// or rejects the request if Options.RefuseRollups is set.
func (a *api) reading(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reading := &promql.Reading{Refuse: a.RefuseRollups}
		h(&refusedWriter{w, reading}, r.WithContext(promql.WithReading(r.Context(), reading)))
		if reading.Made() {
			a.readsMade.Inc()
		}
	}
}

// refusedWriter returns 422 or 503 instead of the 500 that Prometheus' handler returns for every error.
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
