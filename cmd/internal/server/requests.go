package server

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// maxRequests bounds the requests under way: with HTTP/2 a connection has many.
	maxRequests = 2048
	// maxClientRequests bounds those of one client. It is less than maxConnections: a client with a request on each of its
	// connections can't take all of them.
	maxClientRequests = maxConnections * 3 / 4
	// maxWatchers bounds the requests for /metrics under way.
	maxWatchers = 64
)

// errCrowded means that as many requests are under way as may be.
var errCrowded = errors.New("too many requests in progress")

// requests bounds the requests under way: all, and those of one client, which is a user, or an address where nobody shows
// who they are. A request whose body is under way doesn't count among its client's. Where there are as many as may be, the request whose client sends
// or reads slowest makes room for a new one, if its client keeps the process waiting.
type requests struct {
	limit, each int

	mu      sync.Mutex
	places  map[*requestPlace]struct{}
	clients map[string]int
}

// requestPlace is that of one request.
type requestPlace struct {
	client   string
	exchange *Exchange // nil: it isn't known how long the client is waited for
}

func newRequests(limit, each int) *requests {
	return &requests{limit: limit, each: each, places: map[*requestPlace]struct{}{}, clients: map[string]int{}}
}

// enter takes a place. Unless it returns an error, the caller must call leave.
func (q *requests) enter(client string, e *Exchange) (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.clients[client] >= q.each && q.computing(client) >= q.each && !q.makeRoom(minWait, func(p *requestPlace) bool { return p.client == client }) {
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

// computing counts the requests of a client whose bodies aren't under way.
func (q *requests) computing(client string) (n int) {
	for p := range q.places {
		if p.client == client && (p.exchange == nil || !p.exchange.isSending()) {
			n++
		}
	}
	return n
}

// makeRoom gives up the request among some whose client has kept the process waiting longest, and at least for a time: one of a client that
// has more than its share of the places, if there is any. It returns false if there is none.
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

// remove needs the lock. It may be called more than once.
func (q *requests) remove(p *requestPlace) {
	if _, ok := q.places[p]; !ok {
		return
	}
	delete(q.places, p)
	if q.clients[p.client]--; q.clients[p.client] == 0 {
		delete(q.clients, p.client)
	}
}
