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
	// spareConnections bounds the connections of one listener beyond maxConnections.
	spareConnections = 128
	// minSpareWait is the time that a spare connection has at least until a newer one may take its place.
	minSpareWait = 100 * time.Millisecond
	// patience is how long a request on a spare connection waits for a place among the others.
	patience = 2 * minWait
	// patienceInterval is how often it looks for one.
	patienceInterval = 50 * time.Millisecond
	// manyConnections is which part of the connections one client may have before its own are evicted first.
	manyConnections = 8
	// logInterval is how often evictions are logged.
	logInterval = time.Minute
)

// connections is a listener that bounds the open connections. Where all places are taken, a connection whose client keeps
// the process waiting makes room for a new one: it has no request, its request's body is under way, or its answer isn't read.
// A connection whose request is being computed is never evicted. If there are only such ones, and ones whose clients have waited for less
// than minWait, a new connection becomes a spare one:
//
//	open   [ limit ]  evicted first:  1. bodies and answers under way, and clients that have had no answer yet
//	                                  2. idle, requests were answered
//	                                  3. idle, has stored samples
//	spare  [ spare ]  answers /-/healthy, /-/ready and /metrics; for others it waits for a place in open, then refuses them
type connections struct {
	net.Listener
	limit, spareLimit int
	log               *slog.Logger
	// evictions counts the connections that made room.
	evictions prometheus.Counter

	mu     sync.Mutex
	open   map[*connection]struct{}
	spare  map[*connection]struct{}
	closed chan struct{}
	// clients counts the connections in open by client.
	clients map[string]int
	// evicted is the number of connections that made room, logged when it was logged last.
	evicted int64
	logged  time.Time
}

// connection is one of them.
type connection struct {
	net.Conn
	of     *connections
	client string
	// isSpare is true while it is in of.spare.
	isSpare atomic.Bool

	// mu guards what follows. It is taken after of.mu: requests, of which a connection of HTTP/2 has many, need only this one.
	mu sync.Mutex
	// requests are under way.
	requests map[*Exchange]struct{}
	// since is when the connection was opened, or when its last request ended.
	since time.Time
	merit merit
}

// merit is the most that the requests of a connection have achieved: the connections that have least are evicted first.
type merit int

const (
	meritNone merit = iota
	// meritAnswered: a request was authorized, and answered without an error.
	meritAnswered
	// meritWritten: samples were stored.
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

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: c, of: l, client: clientOf(c.RemoteAddr().String()), requests: map[*Exchange]struct{}{}, since: time.Now()}
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

// add finds a place for a new connection, or returns how long there will be none.
func (l *connections) add(c *connection) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.place(c, now) {
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

// place puts a connection into open, if there is room or another can be evicted.
func (l *connections) place(c *connection, now time.Time) bool {
	if len(l.open) >= l.limit {
		victim := l.victim(now)
		if victim == nil {
			return false
		}
		l.evict(victim, now, tooMany)
	}
	l.open[c] = struct{}{}
	l.clients[c.client]++
	return true
}

// victim returns the connection that is to make room, or nil if there is none.
func (l *connections) victim(now time.Time) (victim *connection) {
	var worst claim
	for c := range l.open {
		if next, evictable := c.claim(now); evictable && (victim == nil || next.before(worst)) {
			victim, worst = c, next
		}
	}
	return victim
}

// claim is what a connection has to say for itself when others need its place.
type claim struct {
	merit merit
	// many: its client has more than its share of the connections.
	many   bool
	waited time.Duration
}

// before returns true if the connection of c is evicted before that of d.
func (c claim) before(d claim) bool {
	switch {
	case c.merit != d.merit:
		return c.merit < d.merit
	case c.many != d.many:
		return c.many
	}
	return c.waited > d.waited
}

// claim returns false if the connection can't be evicted now.
func (c *connection) claim(now time.Time) (claim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := claim{merit: c.merit, many: c.of.clients[c.client] > c.of.limit/manyConnections, waited: now.Sub(c.since)}
	first := true
	for e := range c.requests {
		waited, waits := e.Overdue(now)
		if !waits {
			return found, false
		}
		if first || waited < found.waited { // Its best request counts.
			found.waited = waited
		}
		first, found.merit = false, meritNone
	}
	return found, found.waited >= minWait
}

// releaseHandle closes a connection that may make room, for the sake of its file handle, or returns false.
func (l *connections) releaseHandle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	victim := l.victim(now)
	if victim == nil {
		return false
	}
	l.evict(victim, now, "no file handles are left: idle connections are closed for new ones; raise the limit of open files (ulimit -n)")
	return true
}

// oldestSpare returns the spare connection that makes room for a new one, one without a request if there is any, and since when it has its
// place.
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

// tooMany is logged where new connections take the places of others.
const tooMany = "too many connections: the slowest are closed for new ones; check which client opens too many"

// evict closes a connection; why is logged.
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

// remove needs the lock. It may be called more than once.
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

// Close implements net.Listener.
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

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what the client gets, so that it can read the answer to a request that it is still sending.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// clientOf returns the address of a client without its port. An IPv6 client has a network of 64 bits for itself.
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

// withConnection puts the connection into its requests' contexts; it is http.Server's ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if ours, ok := c.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, ours)
	}
	return ctx
}

// marking notes at the connections which requests they have under way. It needs the exchanges of pace.handler. prefix is
// Options.RoutePrefix.
func marking(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		e := ExchangeOf(r)
		c.begin(e)
		defer c.end(e)
		if _, ok := c.Conn.(*spareConnection); ok { // Others wait for its file handle.
			w.Header().Set("Connection", "close")
		}
		if !isVital(strings.TrimPrefix(r.URL.Path, prefix)) && !c.promote(r.Context()) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "unavailable", fmt.Sprintf("%d connections have requests in progress; try again", c.of.limit))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connection) begin(e *Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[e] = struct{}{}
}

func (c *connection) end(e *Exchange) {
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

// promote waits until a spare connection has got a place among the others, or returns false.
func (c *connection) promote(ctx context.Context) bool {
	for until := time.Now().Add(patience); ; {
		if c.promoteNow() {
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

func (c *connection) promoteNow() bool {
	if !c.isSpare.Load() {
		return true
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.isSpare.Load() {
		return true
	}
	if !c.of.place(c, time.Now()) {
		return false
	}
	delete(c.of.spare, c)
	c.isSpare.Store(false)
	return true
}
