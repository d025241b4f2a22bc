package server

import "net/http"

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
			if told.code == http.StatusNotFound {
				h.NotFound(w, r)
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
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
