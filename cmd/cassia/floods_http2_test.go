package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// Types and flags of HTTP/2 frames, and an error code.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameContinuation = 0, 1, 3, 4, 6, 9

	endStream, endHeaders = 1, 4
	errorCancel           = 8
)

// appendFrame appends a frame: length (3 bytes), type, flags, stream (4), payload.
func appendFrame(to []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	to = append(to, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(to, stream), payload...)
}

// requestHeaders returns an uncompressed header block for a GET or POST request. The path must be shorter than 127
// bytes.
func requestHeaders(post bool, path string) []byte {
	method := byte(0x82) // :method GET, in HPACK's static table
	if post {
		method = 0x83
	}
	to := append([]byte{method, 0x87, 0x01, 9}, "localhost"...) // :scheme https, and a literal :authority
	to = append(append(to, 0x04, byte(len(path))), path...)
	return append(append(to, 0x0f, 0x10, byte(len(formType))), formType...) // Index 31 is Content-Type.
}

// http2Flood defines the frames that an HTTP/2 client sends. It sends first once and then the frames that round
// returns, repeatedly. The argument of round is the number of the first stream.
type http2Flood struct {
	first []byte
	round func(stream uint32) []byte
	// streams is the number of streams per round. unread is set if the client doesn't read responses.
	streams int
	unread  bool
}

// TestFloodsOfHTTP2 opens a few HTTP/2 connections with many streams, or with frames that only cost CPU. Other clients
// must still get responses.
func TestFloodsOfHTTP2(t *testing.T) {
	const connections, rounds, streams, pause = 24, 3, 100, time.Second
	each := func(add func(to []byte, stream uint32) []byte) func(uint32) []byte {
		return func(stream uint32) (to []byte) {
			for i := range uint32(streams) {
				to = add(to, stream+2*i)
			}
			return to
		}
	}
	get, post := requestHeaders(false, "/api/v1/query?query=up"), requestHeaders(true, "/api/v1/query")
	write, metrics := requestHeaders(true, "/api/v1/write"), requestHeaders(false, "/metrics")
	frames := func(kind, flags byte, payload []byte) http2Flood {
		return http2Flood{round: func(uint32) (to []byte) {
			for range 10 * streams {
				to = appendFrame(to, kind, flags, 0, payload)
			}
			return to
		}}
	}
	unread := func(f http2Flood) http2Flood { f.unread = true; return f }
	noWindow := appendFrame(nil, frameSettings, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // SETTINGS_INITIAL_WINDOW_SIZE = 0
	for name, f := range map[string]http2Flood{
		"streams that are reset at once": {streams: streams, round: each(func(to []byte, stream uint32) []byte {
			to = appendFrame(to, frameHeaders, endStream|endHeaders, stream, get)
			return appendFrame(to, frameReset, 0, stream, []byte{0, 0, 0, errorCancel})
		})},
		"bodies of a byte": {streams: streams, round: each(func(to []byte, stream uint32) []byte {
			return appendFrame(
				appendFrame(to, frameHeaders, endHeaders, stream, post), frameData, 0, stream, []byte("q"),
			)
		})},
		"writes of a byte that are reset": {streams: streams, round: each(func(to []byte, stream uint32) []byte {
			to = appendFrame(
				appendFrame(to, frameHeaders, endHeaders, stream, write), frameData, 0, stream, []byte("q"),
			)
			return appendFrame(to, frameReset, 0, stream, []byte{0, 0, 0, errorCancel})
		})},
		"answers that nobody reads": {
			first: noWindow, streams: streams, round: each(func(to []byte, stream uint32) []byte {
				return appendFrame(to, frameHeaders, endStream|endHeaders, stream, metrics)
			}),
		},
		"headers without an end": {streams: 1, round: func(stream uint32) []byte {
			to := appendFrame(nil, frameHeaders, endStream, stream, get)
			for range streams {
				to = appendFrame(to, frameContinuation, 0, stream,
					append([]byte{0x00, 1, 'x', 127, 0x81, 0x3f}, make([]byte, 8192)...))
			}
			return to
		}},
		"pings":                      frames(framePing, 0, make([]byte, 8)),
		"pings that nobody reads":    unread(frames(framePing, 0, make([]byte, 8))),
		"settings":                   frames(frameSettings, 0, []byte{0, 4, 0, 1, 0, 0}),
		"settings that nobody reads": unread(frames(frameSettings, 0, nil)),
		"empty data":                 frames(frameData, 0, nil),
	} {
		t.Run(name, func(t *testing.T) {
			r, pool := startSecure(t)
			address := strings.TrimPrefix(r.URL, "https://")
			before := runtime.NumGoroutine()
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var opened atomic.Int64
			defer func() { stop(); all.Wait() }()
			for range connections {
				all.Go(func() {
					for ctx.Err() == nil {
						opened.Add(1)
						f.send(ctx, address, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}}, pause)
						wait(ctx, pause)
					}
				})
			}
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}} // another client address
			others := map[string]*http.Transport{
				"HTTP/1.1": {
					DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool},
					DisableKeepAlives: true,
				},
				"HTTP/2.0": {
					DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool},
					ForceAttemptHTTP2: true,
				},
			}
			// A connection has at most one goroutine per stream, two of the client, and five of the server. The
			// requests of a closed connection may still be in progress.
			bound := func() int { return before + int(opened.Load())*(streams+8) + 100 }
			slowest, most := time.Duration(0), 0
			for round := range rounds {
				for protocol, transport := range others {
					client := &http.Client{Transport: transport, Timeout: cassiatest.Patience}
					for path, want := range map[string]string{
						"/-/healthy": "Cassia is healthy.", "/metrics": "cassia_http_requests_total",
						"/api/v1/query?query=" + url.QueryEscape(fmt.Sprint(round, "+1")): fmt.Sprintf(`"%d"`, round+1),
					} {
						began := time.Now()
						answer, err := client.Get(r.URL + path)
						require.NoError(t, err, path)
						text, err := io.ReadAll(answer.Body)
						require.NoError(t, err, path)
						require.NoError(t, answer.Body.Close())
						require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", path, text)
						require.Equal(t, protocol, answer.Proto)
						require.Contains(t, string(text), want)
						running := runtime.NumGoroutine()
						require.Less(t, running, bound())
						slowest, most = max(slowest, time.Since(began)), max(most, running)
					}
				}
				time.Sleep(500 * time.Millisecond)
			}
			t.Logf("slowest answer: %s; goroutines: %d; connections: %d", slowest, most, opened.Load())
			stop()
			all.Wait()
			others["HTTP/2.0"].CloseIdleConnections()
			require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+connections },
				cassiatest.Patience, 10*time.Millisecond)
		})
	}
}

// send opens a connection and sends frames until the server closes it.
func (f *http2Flood) send(ctx context.Context, address string, config *tls.Config, pause time.Duration) {
	dialer := tls.Dialer{Config: config}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if !f.unread {
		var reading sync.WaitGroup
		defer reading.Wait()
		defer c.Close()
		reading.Go(func() { _, _ = io.Copy(io.Discard, c) })
	}
	first := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), appendFrame(nil, frameSettings, 0, 0, nil)...)
	_, err = c.Write(append(first, f.first...))
	for stream := uint32(1); err == nil && stream < 1<<30; stream += 2 * uint32(f.streams) {
		_, err = c.Write(f.round(stream))
		wait(ctx, pause) // The test's own clients must not use all of the CPU.
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// startSecure starts a server with TLS. It also returns the certificate pool that a client needs.
func startSecure(t *testing.T) (running, *x509.CertPool) {
	certified := httptest.NewTLSServer(http.NotFoundHandler()) // It provides a certificate for 127.0.0.1.
	own, pool := certified.TLS.Certificates[0], x509.NewCertPool()
	pool.AddCert(certified.Certificate())
	certified.Close()
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	for file, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: own.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
	web := filepath.Join(dir, "web.yml")
	require.NoError(
		t, os.WriteFile(web, []byte("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"), 0o600),
	)
	r := startServe(t, "--storage.path="+t.TempDir(), "--web.config.file="+web)
	r.URL = strings.Replace(r.URL, "http://", "https://", 1)
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
	}
	require.Eventually(t, func() bool {
		answer, err := client.Get(r.URL + "/-/ready")
		require.NoError(t, err)
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, cassiatest.Patience, 5*time.Millisecond)
	return r, pool
}
