package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cassia-db/cassia/storage"
)

// Metrics contains the metrics of requests and connections.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	panics   prometheus.Counter
	evicted  prometheus.Counter
}

// NewMetrics creates the metrics and registers them with r, unless r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	return &Metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_http_requests_total",
			Help: "HTTP requests by route and status code."}, []string{"handler", "code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{Name: "cassia_http_request_duration_seconds",
			Help:    "Duration of HTTP requests by route.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}}, []string{"handler"}),
		panics: f.NewCounter(prometheus.CounterOpts{Name: "cassia_http_panics_total",
			Help: "HTTP requests that failed because of a bug in Cassia."}),
		evicted: f.NewCounter(prometheus.CounterOpts{Name: "cassia_http_connections_evicted_total",
			Help: "Connections closed to make room for new ones, because the limit was reached or no file handle was " +
				"left. These clients were slow or idle."}),
	}
}

// Instrument counts and times the requests of a route.
func (m *Metrics) Instrument(route string, h http.HandlerFunc) http.HandlerFunc {
	label := prometheus.Labels{"handler": route}
	return promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(label),
		promhttp.InstrumentHandlerDuration(m.duration.MustCurryWith(label), h))
}

// rejectAPI sends an error response in the format of Prometheus' API.
func rejectAPI(w http.ResponseWriter, code int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": kind,
		"error": storage.PlainText(message)})
}

// recoverPanics prevents a panic in one request from terminating the process. If a part of the response has been sent,
// it aborts the connection, so that the client detects that the response is incomplete.
func recoverPanics(m *Metrics, log *slog.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tracked := &trackingWriter{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			m.panics.Inc()
			log.Error("a request panicked; please report this as a bug", "method", r.Method, "path", r.URL.Path,
				"panic", p, "stack", string(debug.Stack()))
			if tracked.hasBegun {
				panic(http.ErrAbortHandler)
			}
			rejectAPI(w, http.StatusInternalServerError, "internal", "internal error; see Cassia's log")
		}()
		h.ServeHTTP(tracked, r)
	})
}

// trackingWriter records whether the response has started.
type trackingWriter struct {
	http.ResponseWriter
	hasBegun bool
}

func (w *trackingWriter) WriteHeader(code int) {
	w.hasBegun = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *trackingWriter) Write(b []byte) (int, error) {
	w.hasBegun = true
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which streamed remote read requires.
func (w *trackingWriter) Flush() {
	w.hasBegun = true
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap supports http.ResponseController.
func (w *trackingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
