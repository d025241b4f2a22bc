package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipes is a listener for in-memory connections. In a synctest bubble, their deadlines use the bubble's clock.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.waiting <- server
	return client
}

// inBubble runs do with a server of h in a synctest bubble, in which hours pass instantly.
func inBubble(t *testing.T, h http.HandlerFunc, do func(t *testing.T, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
		s := newServer("", h, usualPace(), quietLogger)
		go func() {
			_ = s.Serve(limitConnections(p, maxConnections, spareConnections, noMetrics().evicted, quietLogger))
		}()
		defer func() { require.NoError(t, s.Close()) }()
		do(t, p)
	})
}

// sendSlowly sends one byte per second until the server closes the connection. It returns how long that took.
func sendSlowly(c net.Conn) time.Duration {
	began := time.Now()
	for {
		if _, err := c.Write([]byte("x")); err != nil {
			return time.Since(began)
		}
		time.Sleep(time.Second)
	}
}

func get(t *testing.T, p *pipes) string {
	t.Helper()
	c := p.dial()
	defer c.Close()
	_, err := io.WriteString(c, "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(body)
}

func TestHeadersThatDribble(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "quick") },
		func(t *testing.T, p *pipes) {
			c := p.dial()
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nX-Long: ")
			require.NoError(t, err)
			gone := make(chan time.Duration)
			go func() { gone <- sendSlowly(c) }()
			require.Equal(t, "quick", get(t, p), "others are served meanwhile")
			require.InDelta(t, readHeaderTimeout.Seconds(), (<-gone).Seconds(), 3)
		})
}

func TestBodiesThatDribble(t *testing.T) {
	var read chan error
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			_, _ = io.WriteString(w, "quick")
			return
		}
		_, err := io.ReadAll(r.Body)
		read <- err
		w.WriteHeader(http.StatusRequestTimeout)
	}, func(t *testing.T, p *pipes) {
		read = make(chan error, 1) // It must be created in the bubble.
		c := p.dial()
		go func() { _, _ = io.Copy(io.Discard, c) }()
		_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
		require.NoError(t, err)
		gone := make(chan time.Duration)
		go func() { gone <- sendSlowly(c) }()
		require.Equal(t, "quick", get(t, p))
		require.ErrorIs(t, <-read, errSlow)
		require.InDelta(t, usualPace().grace.Seconds(), (<-gone).Seconds(), 3, "1 B/s is taken for the grace only")
	})
}

// TestBodiesThatNobodyWants checks that the pace also applies to a body that only net/http reads, after an early
// response.
func TestBodiesThatNobodyWants(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		func(t *testing.T, p *pipes) {
			c := p.dial()
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
			require.NoError(t, err)
			require.LessOrEqual(t, sendSlowly(c), usualPace().grace+3*time.Second)
		})
}

// TestSlowIsntTooSlow checks that a slow client isn't rejected: it sends the body for minutes, the handler runs for
// hours, and the client reads the response for hours.
func TestSlowIsntTooSlow(t *testing.T) {
	const pieces, hours = 240, 3
	piece := bytes.Repeat([]byte("x"), 16<<10)
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != int64(pieces*len(piece)) {
			panic(fmt.Sprint(n, err))
		}
		time.Sleep(time.Hour)
		for range hours * 360 {
			time.Sleep(10 * time.Second)
			_, _ = w.Write(piece)
			w.(http.Flusher).Flush()
		}
		if r.Context().Err() != nil {
			panic("the request was taken for ended")
		}
		time.Sleep(time.Hour)
		_, _ = io.WriteString(w, "end")
	}, func(t *testing.T, p *pipes) {
		c := p.dial()
		defer c.Close()
		_, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", pieces*len(piece))
		require.NoError(t, err)
		for range pieces {
			time.Sleep(time.Second)
			_, err := c.Write(piece)
			require.NoError(t, err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Len(t, body, hours*360*len(piece)+len("end"))
	})
}

// TestAnswersThatNobodyReads checks that if a client stops reading, its connection is closed and the handler gets an
// error. A client that reads slowly isn't affected.
func TestAnswersThatNobodyReads(t *testing.T) {
	var written chan error
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 1<<20))
		written <- err
	}, func(t *testing.T, p *pipes) {
		written = make(chan error, 1) // It must be created in the bubble.
		c := p.dial()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1000))
		require.NoError(t, err)
		began := time.Now()
		require.Error(t, <-written)
		require.InDelta(t, usualPace().stuck.Seconds(), time.Since(began).Seconds(), 1)

		c = p.dial()
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		total := 0
		for buffer := make([]byte, 48<<10); ; {
			n, err := io.ReadFull(c, buffer)
			total += n
			if err != nil {
				break
			}
			time.Sleep(5 * time.Second) // at most 10 kB per second
		}
		require.NoError(t, <-written)
		require.Greater(t, total, 1<<20)
	})
}

// TestHTTP2AtAPace checks that with HTTP/2 only the request with the slow body is aborted, and the other requests of
// its connection continue.
func TestHTTP2AtAPace(t *testing.T) {
	fast := usualPace()
	fast.grace = 50 * time.Millisecond
	read := make(chan error, 1)
	s := httptest.NewUnstartedServer(nil)
	s.EnableHTTP2 = true
	s.Config = newServer("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/dribble" {
			_, err := io.ReadAll(r.Body)
			read <- err
		}
		_, _ = io.WriteString(w, r.Proto)
	}), fast, quietLogger)
	s.StartTLS()
	defer s.Close()
	body, feed := io.Pipe()
	dribbling := make(chan error, 1)
	go func() {
		answer, err := s.Client().Post(s.URL+"/dribble", "text/plain", body)
		if err == nil {
			err = answer.Body.Close()
		}
		dribbling <- err
	}()
	_, _ = feed.Write([]byte("x")) // On a busy machine, the request is aborted before its first byte.
	require.ErrorIs(t, <-read, errSlow)
	answer, err := s.Client().Post(s.URL+"/", "text/plain", strings.NewReader("whole"))
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "HTTP/2.0", string(text))
	require.NoError(t, feed.Close())
	<-dribbling
}
