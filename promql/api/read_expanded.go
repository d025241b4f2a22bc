package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/promql"
)

// newExpandedReadsCounter returns the counter of answers to remote read that contain samples made from buckets. The
// format of these answers has no warnings.
func newExpandedReadsCounter(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "cassia_remote_read_expanded_total",
		Help: "Remote read responses that contain samples reconstructed from rollups, because the raw samples have expired.",
	})
}

// withReading returns a handler for remote read. For times whose raw samples have expired, it makes samples from
// buckets, or rejects the request if Options.RefuseRollups is set.
func (a *api) withReading(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reading := &promql.Reading{Refuse: a.RefuseRollups}
		h(&readErrorWriter{w, reading}, r.WithContext(promql.WithReading(r.Context(), reading)))
		if reading.HasMadeSamples() {
			a.expandedReads.Inc()
		}
	}
}

// readErrorWriter replaces the status 500, which Prometheus' handler returns for every error, by 422 if the request was
// refused, or by the status that statusOf returns for the error.
type readErrorWriter struct {
	http.ResponseWriter
	reading *promql.Reading
}

// WriteHeader implements http.ResponseWriter.
func (w *readErrorWriter) WriteHeader(code int) {
	if code == http.StatusInternalServerError {
		if w.reading.WasRefused() {
			code = http.StatusUnprocessableEntity
		} else if known, ok := statusOf(0, w.reading.Err()); ok {
			code = known
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher, which streamed answers need.
func (w *readErrorWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
