package api

import (
	"bytes"
	"net/http"
)

// errorType returns the type of an error with this status, one of Prometheus' types.
func errorType(code int) string {
	switch code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return "bad_data"
	case http.StatusNotFound:
		return "not_found"
	case http.StatusServiceUnavailable:
		return "unavailable"
	case http.StatusUnprocessableEntity, http.StatusTooManyRequests:
		return "execution"
	default:
		return "internal"
	}
}

// withErrorTypes gives errors the type that fits their status. Prometheus' handlers give errors of the storage the type
// internal, whatever status statusOf returns.
func withErrorTypes(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { h(&typedErrors{ResponseWriter: w}, r) }
}

// typedErrors changes the type of an error. Prometheus' handlers write an error with a single call of Write.
type typedErrors struct {
	http.ResponseWriter
	kind string // of an error whose body isn't written yet
}

// WriteHeader implements http.ResponseWriter.
func (w *typedErrors) WriteHeader(code int) {
	if code >= http.StatusBadRequest {
		w.kind = errorType(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *typedErrors) Write(p []byte) (int, error) {
	const internal = `{"status":"error","errorType":"internal",`
	rest, ok := bytes.CutPrefix(p, []byte(internal))
	if !ok || w.kind == "" || w.kind == "internal" {
		return w.ResponseWriter.Write(p)
	}
	typed := append([]byte(`{"status":"error","errorType":"`+w.kind+`",`), rest...)
	if _, err := w.ResponseWriter.Write(typed); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush implements http.Flusher, which streamed answers need.
func (w *typedErrors) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is used by http.ResponseController.
func (w *typedErrors) Unwrap() http.ResponseWriter { return w.ResponseWriter }
