package api

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/prometheus/util/httputil"
)

// answer is Prometheus' form of every answer.
type answer struct {
	Status    string `json:"status"`
	Data      any    `json:"data,omitempty"`
	ErrorType string `json:"errorType,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (a *api) respond(w http.ResponseWriter, r *http.Request, data any) {
	a.write(w, r, http.StatusOK, answer{Status: "success", Data: data})
}

// fail answers with an error; kind is one of Prometheus' types of errors.
func (a *api) fail(w http.ResponseWriter, r *http.Request, code int, kind, message string) {
	a.write(w, r, code, answer{Status: "error", ErrorType: kind, Error: message})
}

func (a *api) write(w http.ResponseWriter, r *http.Request, code int, v answer) {
	httputil.SetCORS(w, a.cors, r)
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		a.Logger.Debug("writing an answer", "path", r.URL.Path, "err", err)
	}
}

// get serves GET, HEAD and OPTIONS, compressed where the client takes it.
func (a *api) get(h http.HandlerFunc) http.HandlerFunc {
	return a.method(h, http.MethodGet, http.MethodHead)
}

func (a *api) method(h http.HandlerFunc, allowed ...string) http.HandlerFunc {
	return httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			httputil.SetCORS(w, a.cors, r)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		for _, m := range allowed {
			if r.Method == m {
				h(w, r)
				return
			}
		}
		w.Header().Set("Allow", allowed[0])
		a.fail(w, r, http.StatusMethodNotAllowed, "bad_data", "use "+allowed[0])
	})}.ServeHTTP
}
