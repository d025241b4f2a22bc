package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestStalledWritesLeaveBytesForOthers has clients that announce large bodies of samples and then send nothing, or only
// a part and then single bytes. Other clients must still be able to write, because the stalled bodies can't use up the
// memory for bodies.
func TestStalledWritesLeaveBytesForOthers(t *testing.T) {
	const announced, written = 16 << 20, 12_000
	kinds := map[string]string{
		"/api/write":              "Content-Type: application/json",
		"/api/v1/otlp/v1/metrics": "Content-Type: application/x-protobuf",
		"/api/v1/write":           "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy",
	}
	for name, c := range map[string]struct {
		paths []string
		// sent contains, for each client, the number of bytes that it sends at once.
		sent []int
	}{
		"nothing is sent": {[]string{"/api/write"}, make([]int, 200)},
		"a part is sent":  {[]string{"/api/write"}, slices.Concat(slices.Repeat([]int{5 << 20}, 20), slices.Repeat([]int{600 << 10}, 200))},
		"every way in":    {[]string{"/api/write", "/api/v1/otlp/v1/metrics", "/api/v1/write"}, make([]int, 600)},
	} {
		t.Run(name, func(t *testing.T) {
			r := startServe(t, "--storage.path="+t.TempDir())
			require.Eventually(t, func() bool { code, _ := r.Get(t, "/-/ready"); return code == http.StatusOK },
				cassiatest.Patience, 5*time.Millisecond)
			ctx, stop := context.WithCancel(t.Context())
			var all, begun sync.WaitGroup
			defer func() { stop(); all.Wait() }()
			junk := bytes.Repeat([]byte(" "), announced)
			for i, n := range c.sent {
				path := c.paths[i%len(c.paths)]
				if begun.Add(1); n > 0 {
					time.Sleep(10 * time.Millisecond) // The small bodies use the memory that the large ones leave free.
				}
				all.Go(func() {
					for once := begun.Done; ctx.Err() == nil; once = func() {} {
						var dialer net.Dialer
						conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(r.URL, "http://"))
						if err != nil {
							once()
							continue
						}
						end := context.AfterFunc(ctx, func() { _ = conn.Close() })
						_, err = fmt.Fprintf(
							conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: %d\r\n\r\n%s", path,
							kinds[path], announced, junk[:n],
						)
						once()
						for err == nil && n > 0 {
							select {
							case <-time.After(time.Second):
								_, err = conn.Write([]byte(" "))
							case <-ctx.Done():
								err = ctx.Err()
							}
						}
						_, _ = io.Copy(io.Discard, conn)
						end()
						_ = conn.Close()
						if n > 0 { // Its memory would be free for a moment at each reconnect.
							return
						}
					}
				})
			}
			begun.Wait()
			time.Sleep(time.Second) // By then, all bytes that have arrived are read.
			at := time.Now().Add(-time.Hour).Unix()
			slowest := time.Duration(0)
			for i := range 3 {
				var points []string
				for j := range written {
					points = append(points, fmt.Sprintf(
						`{"metricName":"beside","tags":{"host":"host-%d"},"ts":%d,"value":%d}`, j%100,
						at+int64(1000*i+j/100), i,
					))
				}
				began := time.Now()
				require.Eventually(t, func() bool {
					answer, err := http.Post(
						r.URL+"/api/write", "application/json", strings.NewReader("["+strings.Join(points, ",")+"]"),
					)
					require.NoError(t, err)
					text, err := io.ReadAll(answer.Body)
					require.NoError(t, err)
					require.NoError(t, answer.Body.Close())
					if answer.StatusCode != http.StatusNoContent {
						require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, "%s", text)
						require.NotZero(t, c.sent[0], "what nobody has sent takes nothing")
					}
					return answer.StatusCode == http.StatusNoContent
				}, time.Minute, 50*time.Millisecond)
				slowest = max(slowest, time.Since(began))
			}
			t.Logf("slowest write: %s", slowest)
		})
	}
}
