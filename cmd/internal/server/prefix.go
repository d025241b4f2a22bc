package server

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// underPrefix serves next below a path prefix. It removes the prefix from the path, so that next and its routes don't
// depend on the prefix. Other paths return 404, as in Prometheus. The root, and the prefix without a trailing slash,
// redirect to the web page.
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
			redirectTo(w, http.StatusFound, "."+prefix+"/", r.URL.RawQuery)
		case reads && ok && rest == "":
			redirectTo(w, http.StatusFound, "./"+path.Base(prefix)+"/", r.URL.RawQuery)
		default:
			writeText(w, http.StatusNotFound,
				"404 page not found; Cassia is served under "+prefix+"/ (--web.route-prefix)")
		}
	})
}

// hasPrefix reports whether the URLs of the server have a path prefix. If they don't, the mux sends redirects as in
// Prometheus.
func (h *handler) hasPrefix() bool {
	return h.RoutePrefix != "" || h.ExternalURL != nil && h.ExternalURL.Path != ""
}

// redirectTo sends a redirect to a path relative to the request's path. It doesn't use absolute paths because a proxy
// may have changed the start of the path.
func redirectTo(w http.ResponseWriter, code int, to, query string) {
	w.Header().Set("Location", (&url.URL{Path: to, RawQuery: query}).String())
	w.WriteHeader(code)
}

// redirectWriter makes redirects relative. The start of the path may name the tenant, and handlers don't see it. If a
// redirect led to a path below the root, the client would read or write the data of another tenant.
type redirectWriter struct {
	http.ResponseWriter
	path string // path of the request as passed to the handler
}

func (w *redirectWriter) WriteHeader(code int) {
	if to := w.Header().Get("Location"); strings.HasPrefix(to, "/") && code >= http.StatusMultipleChoices &&
		code < http.StatusBadRequest {
		w.Header().Set("Location", rootOf(w.path)+to[1:])
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *redirectWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap supports http.ResponseController.
func (w *redirectWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// rootOf returns the relative path from a path to the root.
func rootOf(path string) string { return "./" + strings.Repeat("../", strings.Count(path, "/")-1) }
