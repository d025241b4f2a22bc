package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// pace is how fast a client must send and read: fast enough to be somebody who wants something, slow enough for a
// bad line. Time that the process itself takes doesn't count.
type pace struct {
	// grace is the time that a body may take beside what its bytes are allowed at rate, bytes a second; total bounds
	// both.
	grace, total time.Duration
	rate         int64
	// stuck is the time in which a client must have read piece bytes of an answer.
	stuck time.Duration
	piece int
}

// usualPace gives 10 MiB at most 5 minutes, and cuts off who reads less than 2 KiB a second.
func usualPace() pace {
	return pace{grace: 20 * time.Second, total: 5 * time.Minute, rate: 8 << 10, stuck: 30 * time.Second, piece: 64 << 10}
}

var errSlow = errors.New("server: the body came too slowly")

// handler keeps clients at the pace. It must get the ResponseWriter of net/http.
func (p pace) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		if r.Body == nil || r.Body == http.NoBody {
			// net/http watches the connection for its end: with the deadline of reading still set, it would take that
			// for the end of the client, and stop a long answer.
			_ = conn.SetReadDeadline(time.Time{})
		} else {
			_ = conn.SetReadDeadline(time.Now().Add(p.grace)) // Also for the rest of the body after an early answer.
			r.Body = &pacedBody{ReadCloser: r.Body, pace: p, conn: conn}
		}
		paced := &pacedWriter{ResponseWriter: w, pace: p, conn: conn}
		defer paced.extend() // net/http writes what it has buffered once the handler is done.
		next.ServeHTTP(paced, r)
	})
}

// pacedBody fails once a client has kept the reader waiting for longer than what it sent allows.
type pacedBody struct {
	io.ReadCloser
	pace   pace
	conn   *http.ResponseController
	read   int64
	waited time.Duration
}

// Read implements io.Reader.
func (b *pacedBody) Read(into []byte) (int, error) {
	left := min(b.pace.grace+time.Duration(b.read)*time.Second/time.Duration(b.pace.rate), b.pace.total) - b.waited
	if left <= 0 {
		return 0, fmt.Errorf("%w: %d bytes in %s", errSlow, b.read, b.waited.Round(time.Second))
	}
	began := time.Now()
	_ = b.conn.SetReadDeadline(began.Add(left))
	n, err := b.ReadCloser.Read(into)
	b.read += int64(n)
	b.waited += time.Since(began)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{}) // As in handler.
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w: %d bytes in %s", errSlow, b.read, b.waited.Round(time.Second))
	}
	return n, err
}

// pacedWriter cuts off a client that doesn't read its answer. As long as it does, an answer may take for ever.
type pacedWriter struct {
	http.ResponseWriter
	pace pace
	conn *http.ResponseController
}

func (w *pacedWriter) extend() { _ = w.conn.SetWriteDeadline(time.Now().Add(w.pace.stuck)) }

// Write implements http.ResponseWriter.
func (w *pacedWriter) Write(b []byte) (written int, err error) {
	for {
		w.extend()
		n, err := w.ResponseWriter.Write(b[:min(len(b), w.pace.piece)])
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// Flush implements http.Flusher.
func (w *pacedWriter) Flush() {
	w.extend()
	_ = w.conn.Flush()
}

// Unwrap lets http.ResponseController reach the rest.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
