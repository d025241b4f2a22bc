package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestHalfBodiesKeepNobodyOut opens more connections than are allowed. On each, a client sends only the start of a
// request body, and reconnects when it is disconnected. These clients must not block others.
func TestHalfBodiesKeepNobodyOut(t *testing.T) {
	const clients, rounds, token = 1100, 3, "a-token-of-a-reader"
	for name, arrive := range map[string]func(t *testing.T) []string{
		"open": func(*testing.T) []string { return nil },
		"with users": func(t *testing.T) []string {
			file, hash := filepath.Join(t.TempDir(), "auth.yml"), sha256.Sum256([]byte(token))
			require.NoError(t, os.WriteFile(
				file,
				fmt.Appendf(nil,
					"users:\n  - {name: all, tokens: [\"sha256:%s\"], roles: [read, write, metrics], tenants: [default], default_tenant: default}\n",
					hex.EncodeToString(hash[:])), 0o600,
			))
			return []string{"--auth.file=" + file}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startServe(t, append(arrive(t), "--storage.path="+t.TempDir())...)
			address := strings.TrimPrefix(r.URL, "http://")
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer func() { stop(); all.Wait() }()
			for range clients {
				all.Go(func() {
					for ctx.Err() == nil {
						var dialer net.Dialer
						c, err := dialer.DialContext(ctx, "tcp", address)
						if err != nil {
							continue
						}
						end := context.AfterFunc(ctx, func() { _ = c.Close() })
						_, _ = fmt.Fprintf(c,
							"POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\nq",
							token, formType)
						_, _ = io.Copy(io.Discard, c)
						end()
						_ = c.Close()
					}
				})
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: cassiatest.Patience}
			send := func(method, path, body string) (int, string) {
				request, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, strings.NewReader(body))
				require.NoError(t, err)
				request.Header.Set("Authorization", "Bearer "+token)
				request.Header.Set("Content-Type", formType)
				if path == "/api/v1/write" {
					request.Header = http.Header{
						"Authorization": request.Header["Authorization"], "Content-Encoding": {"snappy"},
						"Content-Type": {"application/x-protobuf"},
					}
				}
				answer, err := client.Do(request)
				require.NoError(t, err, path)
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err, path)
				return answer.StatusCode, string(text)
			}
			require.Eventually(t, func() bool {
				_, metrics := send(http.MethodGet, "/metrics", "")
				return cassiatest.Metric(t, metrics, "cassia_http_connections_evicted_total") > 100
			}, cassiatest.Patience, 10*time.Millisecond)
			at := time.Now()
			for i := range rounds {
				samples, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
					Labels:  []prompb.Label{{Name: "__name__", Value: "beside"}},
					Samples: []prompb.Sample{{Timestamp: at.UnixMilli() + int64(i), Value: float64(i)}},
				}}}).Marshal()
				require.NoError(t, err)
				code, text := send(http.MethodPost, "/api/v1/write", string(snappy.Encode(nil, samples)))
				require.Equal(t, http.StatusNoContent, code, text)
				code, text = send(http.MethodPost, "/api/v1/query", url.Values{
					"query": {"beside"}, "time": {fmt.Sprint(at.Unix() + 1)},
				}.Encode())
				require.Equal(t, http.StatusOK, code, text)
				require.Contains(t, text, fmt.Sprintf(`"%d"`, i))
				for _, path := range []string{"/-/healthy", "/-/ready", "/metrics"} {
					code, text = send(http.MethodGet, path, "")
					require.Equal(t, http.StatusOK, code, "%s: %s", path, text)
				}
			}
		})
	}
}
