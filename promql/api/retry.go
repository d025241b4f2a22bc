package api

import "net/http"

// retryUnavailable is the Retry-After of a 503, seconds: the engine is away, or the queue is full, for moments.
const retryUnavailable = "1"

// retryLater adds to errors of requests that can't be answered now when to ask again.
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

// Flush implements http.Flusher, which streamed answers ask for.
func (w retryLater) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is what http.ResponseController asks for.
func (w retryLater) Unwrap() http.ResponseWriter { return w.ResponseWriter }
