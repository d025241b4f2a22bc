package server

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// notFoundHandler passes requests without a route to NotFound. A catch-all route can't be used, because it would also
// match requests with a wrong method, to which the mux responds with 405.
func (h *handler) notFoundHandler(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.hasPrefix() {
			w = &redirectWriter{w, r.URL.Path}
		}
		known, pattern := mux.Handler(r)
		if h.NotFound != nil && pattern == "" {
			told := statusRecorder{header: http.Header{}, code: http.StatusOK}
			known.ServeHTTP(&told, r) // This only checks the method and writes one line.
			if told.code == http.StatusNotFound && hasRowWithoutSlash(mux, r) {
				redirectTo(w, http.StatusFound, "../"+path.Base(r.URL.Path), r.URL.RawQuery)
				return
			}
			if told.code == http.StatusNotFound {
				h.NotFound(w, r)
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// hasRowWithoutSlash reports whether the path of a read request ends with a slash and there is a route for the path
// without the slash.
func hasRowWithoutSlash(mux *http.ServeMux, r *http.Request) bool {
	shorter, ok := strings.CutSuffix(r.URL.Path, "/")
	if !ok || shorter == "" || strings.HasSuffix(shorter, "/") || r.Method != http.MethodGet &&
		r.Method != http.MethodHead {
		return false
	}
	other := new(http.Request)
	*other = *r
	other.URL = &url.URL{Path: shorter}
	_, pattern := mux.Handler(other)
	return pattern != ""
}

// statusRecorder records the status of a response and discards the rest.
type statusRecorder struct {
	header http.Header
	code   int
}

func (s *statusRecorder) Header() http.Header { return s.header }

func (s *statusRecorder) Write(p []byte) (int, error) { return len(p), nil }

func (s *statusRecorder) WriteHeader(code int) { s.code = code }
