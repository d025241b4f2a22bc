package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// spareConnections is the max number of spare connections of one listener.
	spareConnections = 128
	// minSpareWait is the min age of a spare connection before a newer connection may replace it.
	minSpareWait = 100 * time.Millisecond
	// spareWait is how long a request on a spare connection waits for a slot among the open connections.
	spareWait = 2 * minWait
	// patienceInterval is the interval between the attempts to get a slot.
	patienceInterval = 50 * time.Millisecond
	// manyConnections is the divisor of the limit on connections that gives the share of one client. Connections of
	// clients above their share are evicted first.
	manyConnections = 8
	// logInterval is the min interval between log lines about evictions.
	logInterval = time.Minute
)

// connections is a listener that limits the number of open connections. At the limit, it evicts a connection for a new
// one if the client of the evicted connection keeps the process waiting: the connection is idle, its request body is
// being received, or its response isn't read. A connection whose request is being processed is never evicted. If no
// client has kept the process waiting for minWait, the new connection becomes a spare connection:
//
//	open   [ limit ]  evicted first:  1. bodies and responses in progress, and clients without a response so far
//	                                  2. idle, requests were answered
//	                                  3. idle, has stored samples
//	spare  [ spare ]  serves /-/healthy, /-/ready, /metrics; other requests wait for a slot in open, then are rejected
type connections struct {
	net.Listener
	limit, spareLimit int
	log               *slog.Logger
	// evictions counts the evicted connections.
	evictions prometheus.Counter

	mu     sync.Mutex
	open   map[*connection]struct{}
	spare  map[*connection]struct{}
	closed chan struct{}
	// clients is the number of connections in open per client.
	clients map[string]int
	// evicted is the number of connections evicted since the start. logged is the time of the last log line about
	// evictions.
	evicted int64
	logged  time.Time
}

// connection is a connection of the listener.
type connection struct {
	net.Conn
	of     *connections
	client string
	// isSpare is true while the connection is in of.spare.
	isSpare atomic.Bool

	// mu guards the fields below. If both locks are needed, of.mu is locked first. The requests of an HTTP/2 connection
	// lock only mu.
	mu sync.Mutex
	// requests contains the requests in progress.
	requests map[*Exchange]struct{}
	// since is the time at which the connection was opened or its last request ended.
	since time.Time
	merit merit
}

// merit is the best result that a request on a connection has had. Connections with the lowest merit are evicted first.
type merit int

const (
	meritNone merit = iota
	// meritAnswered means that a request was authorized and its response was not an error.
	meritAnswered
	// meritWritten means that samples were stored.
	meritWritten
)

func limitConnections(l net.Listener, limit, spare int, evictions prometheus.Counter, log *slog.Logger) *connections {
	all := &connections{
		Listener: l, limit: limit, spareLimit: spare, evictions: evictions, log: log, closed: make(chan struct{}),
		open: map[*connection]struct{}{}, spare: map[*connection]struct{}{}, clients: map[string]int{},
	}
	if s, ok := l.(*spareHandle); ok {
		s.closeIdle = all.releaseHandle
	}
	return all
}

func (l *connections) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: c, of: l, client: clientOf(c.RemoteAddr().String()),
		requests: map[*Exchange]struct{}{}, since: time.Now()}
	for {
		wait := l.add(conn)
		if wait <= 0 {
			return conn, nil
		}
		select {
		case <-time.After(wait):
		case <-l.closed:
			_ = c.Close()
			return nil, net.ErrClosed
		}
	}
}

// add adds a new connection to open or spare. If neither has a free slot, it returns how long the caller must wait
// before it tries again.
func (l *connections) add(c *connection) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.placeConnection(c, now) {
		return 0
	}
	if len(l.spare) >= l.spareLimit {
		oldest, since := l.oldestSpare()
		if wait = minSpareWait - now.Sub(since); wait > 0 {
			return wait
		}
		l.evict(oldest, now, tooMany)
	}
	l.spare[c] = struct{}{}
	c.isSpare.Store(true)
	return 0
}

// placeConnection adds a connection to open, if a slot is free or another connection can be evicted. Otherwise it
// returns false.
func (l *connections) placeConnection(c *connection, now time.Time) bool {
	if len(l.open) >= l.limit {
		victim := l.victimAt(now)
		if victim == nil {
			return false
		}
		l.evict(victim, now, tooMany)
	}
	l.open[c] = struct{}{}
	l.clients[c.client]++
	return true
}

// victimAt returns the connection to evict, or nil if none can be evicted.
func (l *connections) victimAt(now time.Time) (victim *connection) {
	var worst evictionKey
	for c := range l.open {
		if next, evictable := c.evictionKeyAt(now); evictable && (victim == nil || next.isBefore(worst)) {
			victim, worst = c, next
		}
	}
	return victim
}

// evictionKey holds the criteria by which connections are ordered for eviction.
type evictionKey struct {
	merit merit
	// hasMany is set if the client has more than its share of the open connections.
	hasMany bool
	waited  time.Duration
}

// isBefore reports whether a connection with key e is evicted before a connection with key d.
func (e evictionKey) isBefore(d evictionKey) bool {
	switch {
	case e.merit != d.merit:
		return e.merit < d.merit
	case e.hasMany != d.hasMany:
		return e.hasMany
	}
	return e.waited > d.waited
}

// evictionKeyAt returns the eviction criteria of the connection, and whether it can be evicted now.
func (c *connection) evictionKeyAt(now time.Time) (evictionKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := evictionKey{
		merit: c.merit, hasMany: c.of.clients[c.client] > c.of.limit/manyConnections, waited: now.Sub(c.since),
	}
	first := true
	for e := range c.requests {
		waited, waits := e.Overdue(now)
		if !waits {
			return found, false
		}
		if first || waited < found.waited { // The request with the shortest wait counts.
			found.waited = waited
		}
		first, found.merit = false, meritNone
	}
	return found, found.waited >= minWait
}

// releaseHandle evicts a connection to release its file handle. It returns false if no connection can be evicted.
func (l *connections) releaseHandle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	victim := l.victimAt(now)
	if victim == nil {
		return false
	}
	l.evict(victim, now,
		"no file handles are left: idle connections are closed for new ones; raise the limit of open files (ulimit -n)")
	return true
}

// oldestSpare returns the spare connection to replace with a new one, and the time at which it was opened or its last
// request ended. It prefers connections without a request in progress, and among these the one with the earliest time.
func (l *connections) oldestSpare() (oldest *connection, since time.Time) {
	isIdle := false
	for c := range l.spare {
		c.mu.Lock()
		idle, from := len(c.requests) == 0, c.since
		c.mu.Unlock()
		if oldest == nil || idle && !isIdle || idle == isIdle && from.Before(since) {
			oldest, isIdle, since = c, idle, from
		}
	}
	return oldest, since
}

// tooMany is the log message for evictions at the limit on connections.
const tooMany = "too many connections: the slowest are closed for new ones; check which client opens too many"

// evict closes a connection and logs the reason.
func (l *connections) evict(c *connection, now time.Time, why string) {
	l.remove(c)
	_ = c.Conn.Close()
	l.evicted++
	l.evictions.Inc()
	if now.Sub(l.logged) >= logInterval {
		l.logged = now
		l.log.Warn(why, "connections", len(l.open), "client", c.client, "evicted_since_start", l.evicted)
	}
}

// remove removes a connection from the listener's lists, if it is in one of them. The caller must hold the lock.
func (l *connections) remove(c *connection) {
	delete(l.spare, c)
	c.isSpare.Store(false)
	if _, ok := l.open[c]; !ok {
		return
	}
	delete(l.open, c)
	if l.clients[c.client]--; l.clients[c.client] == 0 {
		delete(l.clients, c.client)
	}
}

func (l *connections) Close() error {
	l.mu.Lock()
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	l.mu.Unlock()
	return l.Listener.Close()
}

// Close implements net.Conn and removes the connection from its listener.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes only the sending side, so that a client that is still sending its request can read the response.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// clientOf returns the client's address without the port. For IPv6 it returns the /64 network, because a /64 usually
// belongs to a single client.
func clientOf(address string) string {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := a.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return address
	}
	return network.String()
}

type connectionKey struct{}

// withConnection adds the connection to the contexts of its requests. It is used as http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if ours, ok := c.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, ours)
	}
	return ctx
}

// trackRequests records which requests each connection has in progress. It requires the exchanges that
// minPace.wrapHandler creates. prefix is Options.RoutePrefix.
func trackRequests(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		e := ExchangeOf(r)
		c.beginRequest(e)
		defer c.endRequest(e)
		if _, ok := c.Conn.(*spareConnection); ok { // Other connections wait for its file handle.
			w.Header().Set("Connection", "close")
		}
		if !isVital(strings.TrimPrefix(r.URL.Path, prefix)) && !c.waitForSlot(r.Context()) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			rejectAPI(w, http.StatusServiceUnavailable, "unavailable",
				fmt.Sprintf("%d connections have requests in progress; try again", c.of.limit))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connection) beginRequest(e *Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[e] = struct{}{}
}

func (c *connection) endRequest(e *Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, e)
	if e.code < http.StatusBadRequest {
		c.merit = max(c.merit, e.merit)
	}
	if len(c.requests) == 0 {
		c.since = time.Now()
	}
}

// waitForSlot waits until a spare connection gets a slot in open. It returns false if there is no slot within
// spareWait.
func (c *connection) waitForSlot(ctx context.Context) bool {
	for until := time.Now().Add(spareWait); ; {
		if c.takeSlot() {
			return true
		}
		if !time.Now().Before(until) {
			return false
		}
		select {
		case <-time.After(patienceInterval):
		case <-ctx.Done():
			return false
		}
	}
}

func (c *connection) takeSlot() bool {
	if !c.isSpare.Load() {
		return true
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.isSpare.Load() {
		return true
	}
	if !c.of.placeConnection(c, time.Now()) {
		return false
	}
	delete(c.of.spare, c)
	c.isSpare.Store(false)
	return true
}
