package server

import (
	"net/http"
	"net/url"
	"path"
	"reflect"
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

// redirecting is the type of the handlers by which http.ServeMux leads to another spelling of a path.
var redirecting = reflect.TypeOf(http.RedirectHandler("/", http.StatusMovedPermanently))

// withRelativeRedirects makes the redirects of a mux relative.
func withRelativeRedirects(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known, _ := mux.Handler(r); !redirected(w, r, known) {
			mux.ServeHTTP(w, r)
		}
	})
}

// redirected answers with a relative redirect, if a mux answers a request with a redirect of its own. Its location starts at the root, without
// the prefix that was removed from the path.
func redirected(w http.ResponseWriter, r *http.Request, known http.Handler) bool {
	if reflect.TypeOf(known) != redirecting {
		return false
	}
	told := verdict{header: http.Header{}, code: http.StatusOK}
	known.ServeHTTP(&told, r)
	to, err := url.Parse(told.header.Get("Location"))
	if err != nil || !strings.HasPrefix(to.Path, "/") {
		return false
	}
	redirect(w, told.code, rootOf(r.URL.Path)+to.Path[1:], to.RawQuery)
	return true
}

// rootOf leads from a path to the root.
func rootOf(path string) string { return "./" + strings.Repeat("../", strings.Count(path, "/")-1) }
