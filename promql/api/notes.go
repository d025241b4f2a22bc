package api

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/damage"
)

// noteHeader is the header that lists the missing parts of an answer whose format can't contain warnings.
const noteHeader = "X-Cassia-Note"

// maxNotes bounds the notes of an answer.
const maxNotes = 10

// notedRoutes are the routes whose answers can't contain warnings in Prometheus' format.
var notedRoutes = map[string]bool{"/query_exemplars": true, "/metadata": true}

// withNotes returns a handler that lists in noteHeader which parts of the data couldn't be read.
func (a *api) withNotes(name string, h http.HandlerFunc) http.HandlerFunc {
	if !notedRoutes[name] {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		notes := &noteWriter{ResponseWriter: w}
		h(notes, r.WithContext(damage.WithWarnings(r.Context(), notes.add)))
	}
}

// noteWriter sets the headers when the answer starts. All data has been read by then.
type noteWriter struct {
	http.ResponseWriter
	begun bool

	mu    sync.Mutex
	notes []string
}

func (w *noteWriter) add(err error) {
	note := storage.PlainText(strings.Join(strings.Fields(err.Error()), " ")) // A header has one line.
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.notes) < maxNotes && !slices.Contains(w.notes, note) {
		w.notes = append(w.notes, note)
	}
}

func (w *noteWriter) WriteHeader(code int) {
	w.setHeaders()
	w.ResponseWriter.WriteHeader(code)
}

func (w *noteWriter) Write(b []byte) (int, error) {
	w.setHeaders()
	return w.ResponseWriter.Write(b)
}

func (w *noteWriter) setHeaders() {
	if w.begun {
		return
	}
	w.begun = true
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, note := range w.notes {
		w.Header().Add(noteHeader, note)
	}
}

// Unwrap is used by http.ResponseController.
func (w *noteWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
