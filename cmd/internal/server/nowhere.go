package server

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// elsewhere leads requests whose path is in no row of the table to NotFound. Those whose method is the wrong one are
// answered by the table, as ever: a row for all other paths would take them, too.
func (h *handler) elsewhere(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.underPath() {
			w = &relocating{w, r.URL.Path}
		}
		known, pattern := mux.Handler(r)
		if h.NotFound != nil && pattern == "" {
			told := verdict{header: http.Header{}, code: http.StatusOK}
			known.ServeHTTP(&told, r) // It looks at nothing but the method, and writes a line.
			if told.code == http.StatusNotFound && hasRowWithoutSlash(mux, r) {
				redirect(w, http.StatusFound, "../"+path.Base(r.URL.Path), r.URL.RawQuery)
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

// hasRowWithoutSlash reports whether a path that reads ends with a slash, and is in a row of the table without it.
func hasRowWithoutSlash(mux *http.ServeMux, r *http.Request) bool {
	shorter, ok := strings.CutSuffix(r.URL.Path, "/")
	if !ok || shorter == "" || strings.HasSuffix(shorter, "/") || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	other := new(http.Request)
	*other = *r
	other.URL = &url.URL{Path: shorter}
	_, pattern := mux.Handler(other)
	return pattern != ""
}

// verdict keeps the status of an answer, and drops the rest.
type verdict struct {
	header http.Header
	code   int
}

// Header implements http.ResponseWriter.
func (v *verdict) Header() http.Header { return v.header }

// Write implements http.ResponseWriter.
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (v *verdict) WriteHeader(code int) { v.code = code }
