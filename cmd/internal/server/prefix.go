package server

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// underPrefix serves next under a path prefix, which it removes: next and its routes don't depend on the prefix. Other paths aren't
// found, as in Prometheus. The root, and the prefix without a slash at its end, redirect to the page.
func underPrefix(prefix string, next http.Handler) http.Handler {
	if prefix == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, prefix)
		if ok && strings.HasPrefix(rest, "/") {
			inner := new(http.Request)
			*inner = *r
			inner.URL = new(url.URL)
			*inner.URL = *r.URL
			inner.URL.Path = rest
			next.ServeHTTP(w, inner)
			return
		}
		switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
		case reads && r.URL.Path == "/":
			redirect(w, http.StatusFound, "."+prefix+"/", r.URL.RawQuery)
		case reads && ok && rest == "":
			redirect(w, http.StatusFound, "./"+path.Base(prefix)+"/", r.URL.RawQuery)
		default:
			text(w, http.StatusNotFound, "404 page not found; Cassia is served under "+prefix+"/ (--web.route-prefix)")
		}
	})
}

// underPath reports whether clients find the server under a path. Otherwise redirects are those of the mux, as in Prometheus.
func (h *handler) underPath() bool {
	return h.RoutePrefix != "" || h.ExternalURL != nil && h.ExternalURL.Path != ""
}

// redirect leads to a path relative to that of the request: a proxy may have changed the start of it.
func redirect(w http.ResponseWriter, code int, to, query string) {
	w.Header().Set("Location", (&url.URL{Path: to, RawQuery: query}).String())
	w.WriteHeader(code)
}

// relocating makes redirects relative. Their handlers don't see the start of the path, which may name the tenant: a client that followed a location
// at the root would read or write another tenant's data.
type relocating struct {
	http.ResponseWriter
	path string // of the request, as the handler gets it
}

// WriteHeader implements http.ResponseWriter.
func (w *relocating) WriteHeader(code int) {
	if to := w.Header().Get("Location"); strings.HasPrefix(to, "/") && code >= http.StatusMultipleChoices && code < http.StatusBadRequest {
		w.Header().Set("Location", rootOf(w.path)+to[1:])
	}
	w.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher.
func (w *relocating) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (w *relocating) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// rootOf leads from a path to the root.
func rootOf(path string) string { return "./" + strings.Repeat("../", strings.Count(path, "/")-1) }
