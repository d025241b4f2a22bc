package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestUnreadReads checks that unread responses of endpoints other than queries use a limited amount of memory, with and
// without compression.
func TestUnreadReads(t *testing.T) {
	const (
		clients, places = 8, 2
		series, length  = 1200, 4000
		limit           = 2 << 20                       // Small reads wait above four times that.
		answer          = 2*series*length + series*3000 // at most, see promql/api/limits.go and federate.go
	)
	r := startServe(t, "--storage.path="+t.TempDir(), fmt.Sprint("--query.max-concurrency=", places),
		fmt.Sprint("--query.unread-bytes=", limit))
	at := time.Now().Truncate(time.Second)
	random := rand.NewChaCha8([32]byte{1})
	for from := 0; from < series; from += 400 {
		var request prompb.WriteRequest
		for i := range 400 {
			text := make([]byte, length/2-4)
			_, _ = random.Read(text)
			request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
				Labels: []prompb.Label{
					{Name: "__name__", Value: "unread"},
					{Name: "text", Value: fmt.Sprintf("%08d", from+i) + hex.EncodeToString(text)},
				},
				Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: 1}},
			})
		}
		body, err := request.Marshal()
		require.NoError(t, err)
		code, text := r.Post(t, "/api/v1/write", snappy.Encode(nil, body))
		require.Equal(t, http.StatusNoContent, code, text)
	}
	require.Equal(t, fmt.Sprint(series), r.Value(t, "count(unread)", at))
	read, err := (&prompb.ReadRequest{Queries: []*prompb.Query{{
		StartTimestampMs: at.UnixMilli() - 1000, EndTimestampMs: at.UnixMilli() + 1000,
		Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: "unread"}},
	}}}).Marshal()
	require.NoError(t, err)
	match := "?" + url.Values{"match[]": {"unread"}}.Encode()
	get := func(path string, headers ...string) []byte {
		return []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(headers, "") + "\r\n")
	}
	for name, request := range map[string][]byte{
		"series":          get("/api/v1/series" + match),
		"series, packed":  get("/api/v1/series"+match, "Accept-Encoding: gzip\r\n"),
		"label values":    get("/api/v1/label/text/values" + match),
		"federate":        get("/federate" + match),
		"JSON tag values": get("/api/metadata/tagValues?tenant=default&metricName=unread&tagKey=text"),
		"remote read": fmt.Appendf(nil, "POST /api/v1/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
			len(snappy.Encode(nil, read)), snappy.Encode(nil, read)),
	} {
		t.Run(name, func(t *testing.T) {
			unread := func() float64 {
				_, metrics := r.Get(t, "/metrics")
				return cassiatest.Metric(t, metrics, "cassia_query_unread_bytes")
			}
			var hangUp []func() error
			for range clients {
				var dialer net.Dialer
				conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.URL, "http://"))
				require.NoError(t, err)
				require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
				hangUp = append(hangUp, conn.Close)
				_, err = bytes.NewReader(request).WriteTo(conn)
				require.NoError(t, err)
			}
			waiting := func() int64 { return waitingQueries(t, r) }
			require.Eventually(t, func() bool { return unread() >= limit && waiting() >= clients-2*places },
				cassiatest.Patience, 5*time.Millisecond)
			require.LessOrEqual(t, unread(), float64(4*limit+(places+1)*answer))
			for _, end := range hangUp {
				require.NoError(t, end())
			}
			require.Eventually(
				t, func() bool { return unread() == 0 && waiting() == 0 }, cassiatest.Patience, 5*time.Millisecond,
			)
		})
	}
	require.Equal(t, fmt.Sprint(series), r.Value(t, "count(unread)", at))
}
