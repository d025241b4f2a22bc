package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections is a listener that bounds the open connections. Where there are as many as can be, the one that has
// waited longest without a request under way makes room for a new one: a client that opens many and sends nothing, or sends
// it letter by letter, keeps nobody out.
type connections struct {
	net.Listener
	limit int

	mu   sync.Mutex
	free *sync.Cond
	open map[*connection]struct{}
	done bool
	// evicted counts the connections that made room.
	evicted int64
}

// connection is one of them.
type connection struct {
	net.Conn
	of *connections
	// requests are under way; since is when the last one ended, or the connection began. of.mu guards both.
	requests int
	since    time.Time
}

func limitConnections(l net.Listener, limit int) *connections {
	c := &connections{Listener: l, limit: limit, open: map[*connection]struct{}{}}
	c.free = sync.NewCond(&c.mu)
	return c
}

// Accept implements net.Listener. It waits while requests are under way on every connection.
func (l *connections) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.open) >= l.limit && !l.done {
		if idle := l.longestIdle(); idle != nil {
			delete(l.open, idle)
			l.evicted++
			_ = idle.Conn.Close()
			continue
		}
		l.free.Wait()
	}
	if l.done {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	conn := &connection{Conn: c, of: l, since: time.Now()}
	l.open[conn] = struct{}{}
	return conn, nil
}

func (l *connections) longestIdle() (idle *connection) {
	for c := range l.open {
		if c.requests == 0 && (idle == nil || c.since.Before(idle.since)) {
			idle = c
		}
	}
	return idle
}

// Close implements net.Listener.
func (l *connections) Close() error {
	l.mu.Lock()
	l.done = true
	l.free.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.free.Signal()
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

// marking notes at the connections whether they have a request under way.
func marking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		c.begin()
		defer c.end()
		next.ServeHTTP(w, r)
	})
}

func (c *connection) begin() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.requests++
}

func (c *connection) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.requests--; c.requests == 0 {
		c.since = time.Now()
		c.of.free.Signal()
	}
}
