package s3test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fault is the way in which a request fails.
type Fault int

const (
	NoFault      Fault = iota
	Unavailable        // the proxy returns 503 without forwarding the request
	CutRequest         // the connection is closed in the middle of the request, which the server doesn't receive
	LoseResponse       // the server handles the request, and the connection is closed instead of a response
	CutResponse        // the connection is closed in the middle of the response
	// With the following faults, the request isn't forwarded to the server.
	HTMLPage    // 200 with HTML, as from a captive portal
	PageXML     // 200 with a page that is valid XML
	MissingPage // 404 with HTML
	Missing     // 404 with S3's error NoSuchKey
	ErrorBody   // 200 with an S3 error
	EmptyBody   // 200 without a body
	Redirect    // 302 to a captive portal
	// With the following faults, the request is forwarded to the server.
	HalfBody // the body is truncated in the middle, with a matching Content-Length
)

// answers contains the responses of the faults that return one.
var answers = map[Fault]struct {
	status int
	body   string
}{
	HTMLPage: {
		http.StatusOK, "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><p>Sign in<br></body></html>",
	},
	PageXML:     {http.StatusOK, `<?xml version="1.0"?><html><head><title>Sign in</title></head><body></body></html>`},
	MissingPage: {http.StatusNotFound, "<html><body><h1>Not Found</h1></body></html>"},
	Missing: {
		http.StatusNotFound,
		`<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>`,
	},
	ErrorBody: {
		http.StatusOK, `<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Denied.</Message></Error>`,
	},
	EmptyBody: {http.StatusOK, ""},
	Redirect:  {http.StatusFound, "<html><body>moved</body></html>"},
}

// Proxy is a proxy that injects faults into requests to a server.
type Proxy struct {
	// Address is the address on which the proxy listens.
	Address string

	to     string
	server *http.Server
	mu     sync.Mutex
	fault  func(n int, r *http.Request) Fault
	seen   int
}

// NewProxy starts a proxy for the server at address to. fault returns the fault of the n-th request, starting at 0.
func NewProxy(t testing.TB, to string, fault func(n int, r *http.Request) Fault) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Address: listener.Addr().String(), to: to, fault: fault}
	p.server = &http.Server{Handler: p}
	go func() { _ = p.server.Serve(listener) }()
	t.Cleanup(func() { _ = p.server.Close() })
	return p
}

// RequestCount returns the number of requests received.
func (p *Proxy) RequestCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func (p *Proxy) drawFault(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	return p.fault(p.seen-1, r)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := p.drawFault(r)
	switch fault {
	case Unavailable:
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case CutRequest:
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		panic(http.ErrAbortHandler)
	}
	if a, ok := answers[fault]; ok {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", "/sign-in")
		w.Header().Set("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
		return
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
	if fault == HalfBody {
		body = body[:len(body)/2]
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(response.StatusCode)
	if fault == CutResponse {
		_, _ = io.Copy(w, bytes.NewReader(body[:len(body)/2]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

// forward forwards a request with its original host, because the signature includes the host.
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
