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

// requests limits the number of requests in progress, in total and per client. A client is a user or, without
// authentication, an address. While the body of a request is being received, the request doesn't count for its client.
// At the limit, a new request replaces the request whose client keeps the process waiting longest, if there is one.
type requests struct {
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

func newRequests(limit, each int) *requests {
	return &requests{limit: limit, each: each, places: map[*requestPlace]struct{}{}, clients: map[string]int{}}
}

// enter adds a request to the requests in progress. If it returns no error, the caller must call leave after the
// request.
func (q *requests) enter(client string, e *Exchange) (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.clients[client] >= q.each && q.computing(client) >= q.each &&
		!q.makeRoom(minWait, func(p *requestPlace) bool { return p.client == client }) {
		return nil, fmt.Errorf("%w: %d from this client; try again", errCrowded, q.each)
	}
	if len(q.places) >= q.limit && !q.makeRoom(minWait, func(*requestPlace) bool { return true }) &&
		!q.makeRoom(0, func(p *requestPlace) bool { return q.clients[p.client] > q.each }) {
		return nil, fmt.Errorf("%w: %d; try again", errCrowded, q.limit)
	}
	p := &requestPlace{client, e}
	q.places[p] = struct{}{}
	q.clients[client]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.remove(p)
	}, nil
}

// computing returns the number of requests of a client whose bodies have been received.
func (q *requests) computing(client string) (n int) {
	for p := range q.places {
		if p.client == client && (p.exchange == nil || !p.exchange.isSending()) {
			n++
		}
	}
	return n
}

// makeRoom aborts one request for which among returns true: the one whose client has kept the process waiting longest,
// and at least for the duration least. Requests of clients that have more than their share are aborted first. It
// returns false if there is no such request.
func (q *requests) makeRoom(least time.Duration, among func(*requestPlace) bool) bool {
	var victim *requestPlace
	longest, ofMany := least, false
	now := time.Now()
	for p := range q.places {
		if p.exchange == nil || !among(p) {
			continue
		}
		waited, waits := p.exchange.Overdue(now)
		many := q.clients[p.client] > q.limit/manyConnections
		if waits && (many && !ofMany && waited >= least || many == ofMany && waited >= longest) {
			victim, longest, ofMany = p, waited, many
		}
	}
	if victim == nil {
		return false
	}
	victim.exchange.GiveUp()
	q.remove(victim)
	return true
}

// remove removes a request, if it hasn't been removed before. The caller must hold the lock.
func (q *requests) remove(p *requestPlace) {
	if _, ok := q.places[p]; !ok {
		return
	}
	delete(q.places, p)
	if q.clients[p.client]--; q.clients[p.client] == 0 {
		delete(q.clients, p.client)
	}
}
