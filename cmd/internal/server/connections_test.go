package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// withFlood runs do while more clients than the connection limit keep a server of h waiting. Each client sends begin,
// waits until its connection is closed, and opens another. do starts after minWait, when the first connections can be
// evicted.
func withFlood(t *testing.T, h http.Handler, limit int, begin func(i int) string, do func(t *testing.T, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
		s := newServer("", h, usualPace(), quietLogger)
		l := limitConnections(p, limit, limit/8, noMetrics().evicted, quietLogger)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var opened atomic.Int64
		for i := range limit + limit/10 {
			all.Go(func() {
				for ctx.Err() == nil {
					c, server := net.Pipe()
					select {
					case p.waiting <- server:
					case <-ctx.Done():
						return
					}
					opened.Add(1)
					end := context.AfterFunc(ctx, func() { _ = c.Close() })
					go func() { _, _ = io.WriteString(c, begin(i)) }()
					_, _ = io.Copy(io.Discard, c)
					end()
					_ = c.Close()
				}
			})
		}
		time.Sleep(minWait)
		do(t, p)
		t.Logf("%d connections were opened", opened.Load())
		stop()
		all.Wait()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		time.Sleep(spareWait) // Requests on spare connections may still be waiting.
	})
}

// exchangeText sends a request on a new connection. It returns the status and the body of the response.
func exchangeText(p *pipes, request string) (string, error) {
	c, server := net.Pipe()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	select {
	case p.waiting <- server:
	case <-time.After(5 * time.Second):
		return "", errors.New("nobody accepts the connection")
	}
	go func() { _, _ = io.WriteString(c, request) }()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(body))), err
}

func postRequest(path, body string) string {
	return fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body,
	)
}

// TestFloods checks that other clients get responses, no matter in which way one client keeps the process waiting on
// all connections.
func TestFloods(t *testing.T) {
	// A new connection may wait until it can replace a spare connection, and its request until another connection can
	// be evicted.
	const longest = minSpareWait + minWait + patienceInterval
	const head = "Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n"
	for name, begin := range map[string]func(i int) string{
		"silent":       func(int) string { return "" },
		"half a head":  func(int) string { return "GET /-/healthy HTTP/1.1\r\nX: " },
		"query bodies": func(int) string { return "POST /api/v1/query HTTP/1.1\r\n" + head + "q" },
		"write bodies": func(int) string { return "POST /api/v1/write HTTP/1.1\r\n" + head + "q" },
		"after a request": func(int) string {
			return "GET /api/v1/query HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /api/v1/query HTTP/1.1\r\n" + head + "q"
		},
		"idle":           func(int) string { return "GET /api/v1/query HTTP/1.1\r\nHost: localhost\r\n\r\n" },
		"health, bodies": func(int) string { return "POST /-/healthy HTTP/1.1\r\n" + head + "q" },
		"mixed": func(i int) string {
			return [...]string{"", "GET", "POST /api/v1/query HTTP/1.1\r\n" + head + "q", "POST /api/v1/write HTTP/1.1\r\n" + head + "q"}[i%4]
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			o.Write = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
				}
			})
			limit := 100
			if name == "query bodies" {
				limit = maxConnections // More than one client may have requests.
			}
			withFlood(t, NewHandler(o), limit, begin, func(t *testing.T, p *pipes) {
				for range 4 {
					for request, want := range map[string]string{
						"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n": "200 Cassia is healthy.",
						postRequest("/api/v1/query", "query=up"):                                  "200 default",
						postRequest("/api/v1/write", "samples"):                                   "200 ",
					} {
						began := time.Now()
						got, err := exchangeText(p, request)
						require.NoError(t, err, request)
						require.Equal(t, want, got, request)
						require.LessOrEqual(t, time.Since(began), longest, request)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// TestAllConnectionsCompute processes a request on every connection, so that no connection can be evicted. /-/healthy
// is served, and other requests are rejected until a connection is closed.
func TestAllConnectionsCompute(t *testing.T) {
	var release chan struct{}
	o := testOptions()
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/long" {
			<-release
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})
	h := NewHandler(o)
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{})
		p := &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
		s := newServer("", h, usualPace(), quietLogger)
		l := limitConnections(p, 8, 2, noMetrics().evicted, quietLogger)
		go func() { _ = s.Serve(l) }()
		get := func(path string) string {
			got, err := exchangeText(p, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			return fmt.Sprint(got, err)
		}
		long := make(chan string, 8)
		for range 8 {
			go func() { long <- get("/api/v1/long") }()
		}
		synctest.Wait()
		require.Len(t, l.open, 8)
		for range 3 {
			require.Equal(t, "200 Cassia is healthy.<nil>", get("/-/healthy"))
			require.Contains(t, get("/api/v1/quick"), "503 ")
		}
		require.Contains(t, get("/api/v1/quick"), "8 connections have requests in progress; try again")
		quick := make(chan string, 1)
		go func() { quick <- get("/api/v1/quick") }()
		synctest.Wait()
		release <- struct{}{}
		require.Equal(t, "200 /api/v1/long<nil>", <-long)
		require.Equal(t, "200 /api/v1/quick<nil>", <-quick)
		close(release)
		for range 7 {
			require.Equal(t, "200 /api/v1/long<nil>", <-long)
		}
		require.Zero(t, l.evicted)
		require.NoError(t, s.Close())
	})
}

// TestWhoIsEvictedFirst checks the order of evictions: connections on which samples were stored are evicted last, and
// connections of clients with many connections before those of clients with few.
func TestWhoIsEvictedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limitConnections(nil, 16, 1, noMetrics().evicted, quietLogger)
		add := func(client string, m merit) *connection {
			_, server := net.Pipe()
			c := &connection{
				Conn: server, of: l, client: client, requests: map[*Exchange]struct{}{}, since: time.Now(), merit: m,
			}
			require.True(t, l.placeConnection(c, time.Now()))
			time.Sleep(minWait)
			return c
		}
		body := func(c *connection) { c.beginRequest(&Exchange{since: time.Now()}) }
		writer := add("prometheus", meritWritten)
		few := add("few", meritNone)
		grafana := add("grafana", meritAnswered)
		many := []*connection{add("many", meritNone), add("many", meritNone), add("many", meritNone)}
		slow := add("slow", meritWritten)
		body(slow)
		fast := add("fast", meritNone)
		fast.beginRequest(&Exchange{since: time.Now(), owed: -maxCredit})
		computing := add("computing", meritNone)
		computing.beginRequest(&Exchange{})
		fresh := &connection{
			Conn: writer.Conn, of: l, client: "fresh", requests: map[*Exchange]struct{}{}, since: time.Now(),
		}
		require.True(t, l.placeConnection(fresh, time.Now()))
		for _, want := range []*connection{many[0], few, many[1], many[2], slow, grafana, writer} {
			got := l.victimAt(time.Now())
			require.Equal(t, want.client, got.client)
			require.Same(t, want, got)
			l.evict(got, time.Now(), tooMany)
		}
		require.Nil(t, l.victimAt(time.Now()), "one is fast, one computes, one is new")
		require.EqualValues(t, 7, l.evicted)
		require.Len(t, l.open, 3)
	})
}

// noMetrics returns metrics that aren't registered.
func noMetrics() *Metrics { return NewMetrics(nil) }

func TestClientOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "pipe": "pipe",
	} {
		require.Equal(t, want, clientOf(address), address)
	}
}
