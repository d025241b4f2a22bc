package api

import "net/http"

// retryUnavailable is the Retry-After of a 503, in seconds. It is short because an unavailable engine or a full queue
// usually recovers soon.
const retryUnavailable = "1"

// retryLater adds a Retry-After header to the errors of requests that can't be served now.
type retryLater struct{ http.ResponseWriter }

func withRetry(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { h(retryLater{w}, r) }
}

// WriteHeader implements http.ResponseWriter.
func (w retryLater) WriteHeader(code int) {
	if h := w.Header(); code == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", retryUnavailable)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher, which streamed answers need.
func (w retryLater) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is used by http.ResponseController.
func (w retryLater) Unwrap() http.ResponseWriter { return w.ResponseWriter }
