package server

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// maxRequests is the max number of requests in progress. It is needed because an HTTP/2 connection can have many
	// requests.
	maxRequests = 2048
	// maxClientRequests is the max number of requests of one client. It is less than maxConnections, so that a client
	// with a request on each of its connections can't occupy all of them.
	maxClientRequests = maxConnections * 3 / 4
	// maxWatchers is the max number of requests for /metrics in progress.
	maxWatchers = 64
)

// errCrowded means that the max number of requests is in progress.
var errCrowded = errors.New("too many requests in progress")

// requestLimiter limits the number of requests in progress, in total and per client. A client is a user or, without
// authentication, an address. While the body of a request is being received, the request doesn't count for its client.
// At the limit, a new request replaces the request whose client keeps the process waiting longest, if there is one.
type requestLimiter struct {
	limit, each int

	mu      sync.Mutex
	places  map[*requestPlace]struct{}
	clients map[string]int
}

// requestPlace is the slot of a request in progress.
type requestPlace struct {
	client   string
	exchange *Exchange // nil: the time that the client keeps the process waiting isn't measured
}

func newRequests(limit, each int) *requestLimiter {
	return &requestLimiter{limit: limit, each: each, places: map[*requestPlace]struct{}{}, clients: map[string]int{}}
}

// enterRequest adds a request to the requests in progress. If it returns no error, the caller must call leave after the
// request.
func (r *requestLimiter) enterRequest(client string, e *Exchange) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients[client] >= r.each && r.countComputing(client) >= r.each &&
		!r.makeRoom(minWait, func(p *requestPlace) bool { return p.client == client }) {
		return nil, fmt.Errorf("%w: %d from this client; try again", errCrowded, r.each)
	}
	if len(r.places) >= r.limit && !r.makeRoom(minWait, func(*requestPlace) bool { return true }) &&
		!r.makeRoom(0, func(p *requestPlace) bool { return r.clients[p.client] > r.each }) {
		return nil, fmt.Errorf("%w: %d; try again", errCrowded, r.limit)
	}
	p := &requestPlace{client, e}
	r.places[p] = struct{}{}
	r.clients[client]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.remove(p)
	}, nil
}

// countComputing returns the number of requests of a client whose bodies have been received.
func (r *requestLimiter) countComputing(client string) (n int) {
	for p := range r.places {
		if p.client == client && (p.exchange == nil || !p.exchange.isSending()) {
			n++
		}
	}
	return n
}

// makeRoom aborts one request for which among returns true: the one whose client has kept the process waiting longest,
// and at least for the duration least. Requests of clients that have more than their share are aborted first. It
// returns false if there is no such request.
func (r *requestLimiter) makeRoom(least time.Duration, among func(*requestPlace) bool) bool {
	var victim *requestPlace
	longest, ofMany := least, false
	now := time.Now()
	for p := range r.places {
		if p.exchange == nil || !among(p) {
			continue
		}
		waited, waits := p.exchange.Overdue(now)
		many := r.clients[p.client] > r.limit/manyConnections
		if waits && (many && !ofMany && waited >= least || many == ofMany && waited >= longest) {
			victim, longest, ofMany = p, waited, many
		}
	}
	if victim == nil {
		return false
	}
	victim.exchange.GiveUp()
	r.remove(victim)
	return true
}

// remove removes a request, if it hasn't been removed before. The caller must hold the lock.
func (r *requestLimiter) remove(p *requestPlace) {
	if _, ok := r.places[p]; !ok {
		return
	}
	delete(r.places, p)
	if r.clients[p.client]--; r.clients[p.client] == 0 {
		delete(r.clients, p.client)
	}
}
