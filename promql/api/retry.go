package api

import "net/http"

// unavailableRetryDelay is the Retry-After of a 503, in seconds. It is short because an unavailable engine or a full
// queue usually recovers soon.
const unavailableRetryDelay = "1"

// retryWriter adds a Retry-After header to the errors of requests that can't be served now.
type retryWriter struct{ http.ResponseWriter }

func withRetry(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { h(retryWriter{w}, r) }
}

// WriteHeader implements http.ResponseWriter.
func (w retryWriter) WriteHeader(code int) {
	if h := w.Header(); code == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", unavailableRetryDelay)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher, which streamed answers need.
func (w retryWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is used by http.ResponseController.
func (w retryWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
