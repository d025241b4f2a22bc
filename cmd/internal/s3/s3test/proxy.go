package s3test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fault is what becomes of a request.
type Fault int

// The faults.
const (
	None         Fault = iota
	Unavailable        // 503 is answered, and the server asked nothing
	CutRequest         // the connection ends in the middle of the request, and the server gets none of it
	LoseResponse       // the server handles the request, and the connection ends instead of an answer
	CutResponse        // the connection ends in the middle of the answer
)

// Proxy stands before a server and breaks requests.
type Proxy struct {
	// Address is where it listens.
	Address string

	to     string
	server *http.Server
	mu     sync.Mutex
	fault  func(n int, r *http.Request) Fault
	seen   int
}

// NewProxy starts one before an address. fault draws what becomes of the n-th request, from 0 on.
func NewProxy(t testing.TB, to string, fault func(n int, r *http.Request) Fault) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Address: listener.Addr().String(), to: to, fault: fault}
	p.server = &http.Server{Handler: p}
	go func() { _ = p.server.Serve(listener) }()
	t.Cleanup(func() { _ = p.server.Close() })
	return p
}

// Seen is how many requests there were.
func (p *Proxy) Seen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func (p *Proxy) draw(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	return p.fault(p.seen-1, r)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := p.draw(r)
	switch fault {
	case Unavailable:
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case CutRequest:
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		panic(http.ErrAbortHandler)
	}
	response, err := p.forward(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || fault == LoseResponse {
		panic(http.ErrAbortHandler)
	}
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	if fault == CutResponse {
		_, _ = io.Copy(w, bytes.NewReader(body[:len(body)/2]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

// forward sends a request on as it is: its signature is of the host that it names.
func (p *Proxy) forward(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	target, err := url.Parse("http://" + p.to + r.URL.RequestURI())
	if err != nil {
		return nil, err
	}
	out.URL, out.Host = target, r.Host
	return (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(out)
}
