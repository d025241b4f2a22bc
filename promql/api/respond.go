package api

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/prometheus/util/httputil"

	"github.com/cassia-db/cassia/storage"
)

// answer is the JSON format of all answers, the same as Prometheus'.
type answer struct {
	Status    string `json:"status"`
	Data      any    `json:"data,omitempty"`
	ErrorType string `json:"errorType,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (a *api) respond(w http.ResponseWriter, r *http.Request, data any) {
	a.write(w, r, http.StatusOK, answer{Status: "success", Data: data})
}

// fail writes an error. kind is one of Prometheus' types of errors.
func (a *api) fail(w http.ResponseWriter, r *http.Request, code int, kind, message string) {
	a.write(w, r, code, answer{Status: "error", ErrorType: kind, Error: storage.PlainText(message)})
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
		a.Logger.Debug("can't write a response", "path", r.URL.Path, "err", err)
	}
}

// failWith writes an error of the store.
func (a *api) failWith(w http.ResponseWriter, r *http.Request, err error) {
	code, ok := statusOf(0, err)
	if !ok {
		code = http.StatusInternalServerError
	}
	a.fail(w, r, code, errorType(code), err.Error())
}
