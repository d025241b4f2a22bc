package server

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// fairRate is how fast a client should send and read while others wait for its connection, bytes per second.
	fairRate = 64 << 10
	// maxCredit bounds the time that a client saves up by being faster.
	maxCredit = 2 * time.Second
	// minWait is the time that every client may keep the process waiting, however many others want its connection.
	minWait = time.Second
)

// Exchange is a request and its answer. It measures how long the process has waited for the client to send its body, or to read
// its answer. Time that the process takes itself doesn't count.
//
//	owed  -maxCredit ─────────── 0 ────────── minWait ──────────►
//	      the client was fast    as fairRate          may be given up if others need what the request holds
type Exchange struct {
	mu    sync.Mutex
	owed  time.Duration // until since
	since time.Time     // when the current wait started; zero: the process doesn't wait for the client
	// toRead: the client is to read; otherwise it is to send.
	toRead bool
	// conn is used to interrupt the wait; nil once the request has ended.
	conn *http.ResponseController
	// stream is a request of HTTP/2, which ends when the client resets it; nil: it is one of HTTP/1.
	stream context.Context
	// isGivenUp is set when the request was interrupted because others needed what it held.
	isGivenUp bool

	// merit is that of the connection if the answer is no error, code the answer's status. They are the handler's.
	merit merit
	code  int
}

// wait is called before the process waits for the client until deadline, to send or to read. It returns false if the request was
// given up; then the deadline stays as GiveUp set it.
func (e *Exchange) wait(toRead bool, deadline time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isGivenUp || e.conn == nil {
		return false
	}
	e.since, e.toRead = time.Now(), toRead
	if e.isReset() {
		return true // Reading and writing fail at once. net/http wouldn't stop the timer of a deadline.
	}
	if toRead {
		_ = e.conn.SetWriteDeadline(deadline)
	} else {
		_ = e.conn.SetReadDeadline(deadline)
	}
	return true
}

func (e *Exchange) isReset() bool { return e.stream != nil && e.stream.Err() != nil }

// got is called after a wait, in which the client has sent or read n bytes. It returns the length of the wait.
func (e *Exchange) got(n int) time.Duration {
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

// Overdue returns how long the client has kept the process waiting beyond what its bytes allow, and false if the process doesn't wait
// for it now.
func (e *Exchange) Overdue(now time.Time) (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.since.IsZero() {
		return 0, false
	}
	return e.owed + now.Sub(e.since), true
}

// isSending returns true if the process waits for the client to send.
func (e *Exchange) isSending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.since.IsZero() && !e.toRead
}

// GiveUp makes the current wait and later ones fail. It does nothing once the request has ended.
func (e *Exchange) GiveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil || e.isGivenUp {
		return
	}
	e.isGivenUp = true
	past := time.Unix(1, 0)
	_ = e.conn.SetReadDeadline(past)
	if e.toRead {
		_ = e.conn.SetWriteDeadline(past)
	} else {
		_ = e.conn.SetWriteDeadline(time.Now().Add(minWait)) // The refusal is short.
	}
}

func (e *Exchange) givenUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isGivenUp
}

// end is called when the handler returns: the ResponseWriter must not be used any more.
func (e *Exchange) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conn = nil
}

type exchangeKey struct{}

// ExchangeOf returns the exchange of a request, or nil if it doesn't come from a Server.
func ExchangeOf(r *http.Request) *Exchange {
	e, _ := r.Context().Value(exchangeKey{}).(*Exchange)
	return e
}
