package server

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// fairRate is the rate, in bytes per second, at which a client must send and read while other clients wait for its
	// connection.
	fairRate = 64 << 10
	// maxCredit is the max time that a client can accumulate by being faster than fairRate.
	maxCredit = 2 * time.Second
	// minWait is how long a client may keep the process waiting even while other clients wait for its connection.
	minWait = time.Second
)

// Exchange is a request and its response. It measures how long the process has waited for the client to send the body
// or to read the response. The time for processing the request doesn't count.
//
//	owed  -maxCredit ─────────── 0 ────────── minWait ──────────►
//	      the client was fast    as fairRate          aborted if others need the resources of the request
type Exchange struct {
	mu    sync.Mutex
	owed  time.Duration // measured up to since
	since time.Time     // start of the current wait; zero if the process isn't waiting for the client
	// isReading is set while the process waits for the client to read the response, and not set while it waits for the
	// body.
	isReading bool
	// conn sets the deadlines that interrupt a wait. It is nil after the request has ended.
	conn *http.ResponseController
	// stream is the context of an HTTP/2 request, which ends when the client resets the stream. It is nil with HTTP/1.
	stream context.Context
	// isGivenUp is set if the request was aborted because others needed its resources.
	isGivenUp bool

	// merit becomes the merit of the connection unless the response is an error. code is the status of the response.
	// Only the handler's goroutine uses these fields.
	merit merit
	code  int
}

// beginWait must be called before the process waits for the client to send or to read, until deadline. It returns false
// if the request was aborted by GiveUp, whose deadline then stays in effect.
func (e *Exchange) beginWait(toRead bool, deadline time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isGivenUp || e.conn == nil {
		return false
	}
	e.since, e.isReading = time.Now(), toRead
	if e.isReset() {
		return true // The next read or write fails immediately. net/http wouldn't stop the timer of a deadline.
	}
	if toRead {
		_ = e.conn.SetWriteDeadline(deadline)
	} else {
		_ = e.conn.SetReadDeadline(deadline)
	}
	return true
}

func (e *Exchange) isReset() bool { return e.stream != nil && e.stream.Err() != nil }

// endWait must be called after each wait. n is the number of bytes that the client has sent or read. It returns the
// length of the wait.
func (e *Exchange) endWait(n int) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.since.IsZero() {
		return 0
	}
	waited := time.Since(e.since)
	e.owed = max(e.owed+waited-time.Duration(n)*time.Second/fairRate, -maxCredit)
	e.since = time.Time{}
	return waited
}

// Overdue returns how long the client has kept the process waiting, minus the time that the transferred bytes take at
// fairRate. It returns false if the process isn't waiting for the client.
func (e *Exchange) Overdue(now time.Time) (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.since.IsZero() {
		return 0, false
	}
	return e.owed + now.Sub(e.since), true
}

// isSending reports whether the process is waiting for the client to send.
func (e *Exchange) isSending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.since.IsZero() && !e.isReading
}

// GiveUp aborts the request: the current wait and all later ones fail. It has no effect after the request has ended.
func (e *Exchange) GiveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil || e.isGivenUp {
		return
	}
	e.isGivenUp = true
	past := time.Unix(1, 0)
	_ = e.conn.SetReadDeadline(past)
	if e.isReading {
		_ = e.conn.SetWriteDeadline(past)
	} else {
		_ = e.conn.SetWriteDeadline(time.Now().Add(minWait)) // Leave time to send the error, which is short.
	}
}

func (e *Exchange) isAborted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isGivenUp
}

// finish must be called when the handler returns. The ResponseWriter must not be used afterwards.
func (e *Exchange) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conn = nil
}

type exchangeKey struct{}

// ExchangeOf returns the exchange of a request, or nil if the request wasn't received by a Server.
func ExchangeOf(r *http.Request) *Exchange {
	e, _ := r.Context().Value(exchangeKey{}).(*Exchange)
	return e
}
