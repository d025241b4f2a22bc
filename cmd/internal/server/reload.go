package server

import "net/http"

// Reload answers POST /-/reload as Prometheus does: 403 unless the lifecycle API is enabled, 200 when reload has read
// everything again, and 500 with what is wrong, when nothing has changed.
func Reload(enabled bool, reload func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !enabled:
			text(w, http.StatusForbidden, "the lifecycle API is off; start cassia with --web.enable-lifecycle, or send it a SIGHUP")
			return
		case r.Method != http.MethodPost && r.Method != http.MethodPut:
			w.Header().Set("Allow", "POST, PUT")
			text(w, http.StatusMethodNotAllowed, "use POST or PUT")
			return
		}
		if err := reload(); err != nil {
			text(w, http.StatusInternalServerError, "not reloaded, all stays as it was: "+err.Error())
			return
		}
		text(w, http.StatusOK, "reloaded")
	})
}
