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

// minPace is the min speed at which a client must send and read. It is low enough for a bad network, but stops clients
// that merely hold a connection open. The time for processing a request doesn't count.
type minPace struct {
	// A body may take grace plus the time for its bytes at rate, in bytes per second, but at most total. No single read
	// may take longer than grace.
	grace, total time.Duration
	rate         int64
	// stuck is the time within which a client must read piece bytes of a response. stuckStream is the same limit for
	// responses that are generated while they are sent.
	stuck, stuckStream time.Duration
	piece              int
}

// usualPace returns the pace of a server. No body may take longer than 5 minutes. A response is aborted if the client
// reads less than about 4 KiB per second, or 2 KiB per second if the response is streamed.
func usualPace() minPace {
	return minPace{
		grace: 20 * time.Second, total: 5 * time.Minute, rate: 8 << 10,
		stuck: 15 * time.Second, stuckStream: 30 * time.Second, piece: 64 << 10,
	}
}

var (
	errSlow = errors.New("the client sent the body too slowly")
	// errGivenUp means that a request was aborted because its body arrived slowly while other requests waited for its
	// resources.
	errGivenUp = errors.New("the client sent the body too slowly while other requests were waiting")
)

// wrapHandler enforces the pace. Its ResponseWriter must be the one that net/http passes.
func (p minPace) wrapHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		e := &Exchange{conn: conn, code: http.StatusOK}
		defer e.finish()
		if r.ProtoMajor > 1 {
			e.stream = r.Context()
		}
		r = r.WithContext(adapter.WithSender(context.WithValue(r.Context(), exchangeKey{}, e), e))
		if r.Body == nil || r.Body == http.NoBody {
			// net/http reads in the background to detect a disconnected client. If the read deadline were still set,
			// net/http would treat the timeout as a disconnect and cancel a long response.
			_ = conn.SetReadDeadline(time.Time{})
		} else {
			if !e.isReset() {
				// This deadline also applies to the rest of the body, which net/http reads after an early response.
				_ = conn.SetReadDeadline(time.Now().Add(p.grace))
			}
			r.Body = &pacedBody{ReadCloser: r.Body, pace: p, conn: conn, exchange: e}
		}
		paced := &pacedWriter{ResponseWriter: w, pace: p, conn: conn, exchange: e}
		defer paced.finish() // net/http writes its buffer after the handler has returned.
		next.ServeHTTP(paced, r)
	})
}

// pacedBody returns an error if the client sends the body more slowly than pace allows.
type pacedBody struct {
	io.ReadCloser
	pace     minPace
	conn     *http.ResponseController
	exchange *Exchange
	read     int64
	waited   time.Duration
}

func (b *pacedBody) Read(into []byte) (int, error) {
	left := min(b.pace.grace+time.Duration(b.read)*time.Second/time.Duration(b.pace.rate), b.pace.total) - b.waited
	if left <= 0 {
		return 0, b.lateError(errSlow)
	}
	if !b.exchange.beginWait(false, time.Now().Add(min(left, b.pace.grace))) {
		return 0, b.lateError(errGivenUp)
	}
	n, err := b.ReadCloser.Read(into)
	b.read += int64(n)
	b.waited += b.exchange.endWait(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{}) // See wrapHandler.
	case errors.Is(err, os.ErrDeadlineExceeded) && b.exchange.isAborted():
		err = b.lateError(errGivenUp)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = b.lateError(errSlow)
	}
	return n, err
}

func (b *pacedBody) lateError(why error) error {
	return fmt.Errorf("%w: %d bytes in %s", why, b.read, b.waited.Round(time.Second))
}

// pacedWriter aborts the response if the client stops reading it. While the client reads, there is no limit on the time
// that a response takes.
type pacedWriter struct {
	http.ResponseWriter
	pace     minPace
	conn     *http.ResponseController
	exchange *Exchange
	// isStreaming is set once the handler has flushed the response, which means that only a small part of it is in
	// memory.
	isStreaming bool
}

func (w *pacedWriter) wait() {
	stuck := w.pace.stuck
	if w.isStreaming {
		stuck = w.pace.stuckStream
	}
	w.exchange.beginWait(true, time.Now().Add(stuck))
}

func (w *pacedWriter) finish() {
	w.wait()
	w.exchange.endWait(0)
}

func (w *pacedWriter) WriteHeader(code int) {
	w.exchange.code = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *pacedWriter) Write(b []byte) (written int, err error) {
	for {
		w.wait()
		n, err := w.ResponseWriter.Write(b[:min(len(b), w.pace.piece)])
		w.exchange.endWait(n)
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

func (w *pacedWriter) Flush() {
	w.isStreaming = true
	w.wait()
	_ = w.conn.Flush()
	w.exchange.endWait(0)
}

// Unwrap supports http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
