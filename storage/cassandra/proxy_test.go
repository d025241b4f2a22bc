package cassandra

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// proxy is a proxy between an engine and a node that can break or block connections.
type proxy struct {
	t        testing.TB
	target   string
	listener net.Listener

	mu      sync.Mutex
	open    map[net.Conn]bool
	refuses bool
	silent  chan struct{} // bytes are forwarded once it is closed
	running sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, target: target, listener: listener, open: map[net.Conn]bool{}, silent: make(chan struct{})}
	close(p.silent)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.addConns(client, server) {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.running.Go(func() { p.pump(client, server) })
		p.running.Go(func() { p.pump(server, client) })
	}
}

func (p *proxy) addConns(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
	if p.refuses {
		for _, c := range conns {
			delete(p.open, c)
		}
	}
	return !p.refuses
}

func (p *proxy) pump(from, to net.Conn) {
	defer func() { _ = from.Close() }()
	defer func() { _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		silent := p.silent
		p.mu.Unlock()
		<-silent
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut breaks all connections and rejects new ones, until restore is called.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = true
	for c := range p.open {
		_ = c.Close()
	}
	clear(p.open)
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = false
}

// block delays all data until unblock is called.
func (p *proxy) block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = make(chan struct{})
}

func (p *proxy) unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.silent)
}

// TestComesBack checks that requests return engine.ErrUnavailable while an engine's only node is unreachable, because
// its connections are broken or blocked, and succeed again afterwards.
func TestComesBack(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	p := newProxy(t, o.Hosts[0])
	o.Hosts = []string{p.address()}
	o.Timeout = 2 * time.Second
	var e *Engine
	require.Eventually(t, func() (ok bool) { // A node that hangs for seconds also counts as down.
		var err error
		e, err = Open(context.Background(), o)
		return err == nil
	}, comesWithin, 50*time.Millisecond)
	defer func() { require.NoError(t, e.Close()) }()
	ctx := context.Background()
	tries := map[string]func() error{
		"write": func() error { return e.Write(ctx, []engine.Batch{stage(1006, mutation(1, nil))}) },
		"scan": func() error {
			for _, err := range e.Scan(ctx, rangeOf(stage(1006))) {
				return err
			}
			return nil
		},
		"set": func() error {
			_, _, err := e.CompareAndSet(
				ctx, engine.Store, engine.Key{engine.Text("comes back")}, engine.Key{engine.Text("x")}, nil, nil,
			)
			return err
		},
	}
	for _, way := range []struct{ away, back func() }{{p.cut, p.restore}, {p.block, p.unblock}} {
		for name, try := range tries {
			require.Eventually(t, func() bool { return try() == nil }, comesWithin, 50*time.Millisecond, name)
		}
		way.away()
		var trying sync.WaitGroup
		for name, try := range tries {
			trying.Go(func() {
				err := try()
				if !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
					strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		trying.Wait()
		way.back()
	}
	for name, try := range tries {
		require.Eventually(t, func() bool { return try() == nil }, comesWithin, 50*time.Millisecond, name)
	}
}

// TestScanGoesOn checks that a scan continues after the connection broke between two pages, if the connection is
// restored in time.
func TestScanGoesOn(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	p := newProxy(t, o.Hosts[0])
	o.Hosts = []string{p.address()}
	o.noNodeTimeout = o.Timeout // On a busy machine the driver takes some time to reconnect.
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	for seq := range int64(20) {
		write(t, e, stage(1007, mutation(seq, make([]byte, 300<<10))))
	}
	n := 0
	for _, err := range e.Scan(context.Background(), rangeOf(stage(1007))) {
		require.NoError(t, err)
		if n == 2 {
			p.cut()
			time.AfterFunc(300*time.Millisecond, p.restore)
		}
		n++
	}
	require.Equal(t, 20, n)
}
