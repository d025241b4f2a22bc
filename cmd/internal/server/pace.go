package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/cassia-db/cassia/adapter"
)

// pace is how fast a client must send and read: fast enough to be somebody who wants something, slow enough for a
// bad line. Time that the process itself takes doesn't count.
type pace struct {
	// grace is the time that a body may take beside what its bytes are allowed at rate, bytes a second; total bounds
	// both. No single wait takes longer than grace.
	grace, total time.Duration
	rate         int64
	// stuck is the time in which a client must have read piece bytes of an answer, stuckStream that for an answer that is made
	// while it is read.
	stuck, stuckStream time.Duration
	piece              int
}

// usualPace gives 10 MiB at most 5 minutes. It gives up answers of which a client reads less than 4 KiB a second, and streams of which it
// reads less than 2.
func usualPace() pace {
	return pace{
		grace: 20 * time.Second, total: 5 * time.Minute, rate: 8 << 10,
		stuck: 15 * time.Second, stuckStream: 30 * time.Second, piece: 64 << 10,
	}
}

var (
	errSlow = errors.New("the client sent the body too slowly")
	// errGivenUp means that a body came slowly while others waited for what its request held.
	errGivenUp = errors.New("the client sent the body too slowly while other requests were waiting")
)

// handler keeps clients at the pace. It must get the ResponseWriter of net/http.
func (p pace) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		e := &Exchange{conn: conn, code: http.StatusOK}
		defer e.end()
		if r.ProtoMajor > 1 {
			e.stream = r.Context()
		}
		r = r.WithContext(adapter.WithSender(context.WithValue(r.Context(), exchangeKey{}, e), e))
		if r.Body == nil || r.Body == http.NoBody {
			// net/http watches the connection for its end: with the deadline of reading still set, it would take that
			// for the end of the client, and stop a long answer.
			_ = conn.SetReadDeadline(time.Time{})
		} else {
			if !e.isReset() {
				_ = conn.SetReadDeadline(time.Now().Add(p.grace)) // Also for the rest of the body after an early answer.
			}
			r.Body = &pacedBody{ReadCloser: r.Body, pace: p, conn: conn, exchange: e}
		}
		paced := &pacedWriter{ResponseWriter: w, pace: p, conn: conn, exchange: e}
		defer paced.finish() // net/http writes what it has buffered once the handler is done.
		next.ServeHTTP(paced, r)
	})
}

// pacedBody fails once a client has kept the reader waiting for longer than what it sent allows.
type pacedBody struct {
	io.ReadCloser
	pace     pace
	conn     *http.ResponseController
	exchange *Exchange
	read     int64
	waited   time.Duration
}

// Read implements io.Reader.
func (b *pacedBody) Read(into []byte) (int, error) {
	left := min(b.pace.grace+time.Duration(b.read)*time.Second/time.Duration(b.pace.rate), b.pace.total) - b.waited
	if left <= 0 {
		return 0, b.late(errSlow)
	}
	if !b.exchange.wait(false, time.Now().Add(min(left, b.pace.grace))) {
		return 0, b.late(errGivenUp)
	}
	n, err := b.ReadCloser.Read(into)
	b.read += int64(n)
	b.waited += b.exchange.got(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{}) // As in handler.
	case errors.Is(err, os.ErrDeadlineExceeded) && b.exchange.givenUp():
		err = b.late(errGivenUp)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = b.late(errSlow)
	}
	return n, err
}

func (b *pacedBody) late(why error) error {
	return fmt.Errorf("%w: %d bytes in %s", why, b.read, b.waited.Round(time.Second))
}

// pacedWriter cuts off a client that doesn't read its answer. While it reads, an answer may take any time.
type pacedWriter struct {
	http.ResponseWriter
	pace     pace
	conn     *http.ResponseController
	exchange *Exchange
	// streams is set when the answer is flushed in between: little of it is in memory.
	streams bool
}

func (w *pacedWriter) wait() {
	stuck := w.pace.stuck
	if w.streams {
		stuck = w.pace.stuckStream
	}
	w.exchange.wait(true, time.Now().Add(stuck))
}

func (w *pacedWriter) finish() {
	w.wait()
	w.exchange.got(0)
}

// WriteHeader implements http.ResponseWriter.
func (w *pacedWriter) WriteHeader(code int) {
	w.exchange.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *pacedWriter) Write(b []byte) (written int, err error) {
	for {
		w.wait()
		n, err := w.ResponseWriter.Write(b[:min(len(b), w.pace.piece)])
		w.exchange.got(n)
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// Flush implements http.Flusher.
func (w *pacedWriter) Flush() {
	w.streams = true
	w.wait()
	_ = w.conn.Flush()
	w.exchange.got(0)
}

// Unwrap lets http.ResponseController reach the rest.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
