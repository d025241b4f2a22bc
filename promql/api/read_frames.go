package api

import (
	"net/http"
	"strings"
)

// framesPiece is from how many bytes of frames on they are sent.
const framesPiece = 32 << 10

// inPieces makes a handler of remote read whose frames are sent some at once: Prometheus' handler writes each series by three calls.
func inPieces(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f := &frameWriter{ResponseWriter: w}
		h(f, r)
		_ = f.send() // A client that is gone takes no answer; net/http notices.
	}
}

// frameWriter collects the frames of a streamed answer.
type frameWriter struct {
	http.ResponseWriter
	frames []byte // not sent yet
}

// Write implements http.ResponseWriter.
func (w *frameWriter) Write(p []byte) (int, error) {
	if !strings.HasPrefix(w.Header().Get("Content-Type"), streamedFrames) {
		return w.ResponseWriter.Write(p)
	}
	if w.frames = append(w.frames, p...); len(w.frames) >= framesPiece {
		if err := w.send(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// WriteHeader implements http.ResponseWriter. An error takes the place of frames that weren't sent.
func (w *frameWriter) WriteHeader(code int) {
	if code != http.StatusOK {
		w.frames = nil
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *frameWriter) send() error {
	if len(w.frames) == 0 {
		return nil
	}
	_, err := w.ResponseWriter.Write(w.frames)
	w.frames = w.frames[:0]
	return err
}

// Flush implements http.Flusher, which streamed answers need. Frames are sent when there are enough, and at the end.
func (w *frameWriter) Flush() {}

// Unwrap is what http.ResponseController asks for.
func (w *frameWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
