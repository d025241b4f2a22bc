package main

import (
	"encoding/json"
	"fmt"
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

// TestUnreadAnswers checks that the responses of clients that never read them use a limited amount of memory,
// regardless of the number of clients. Other clients must wait, and must get responses once the clients that don't read
// have disconnected.
func TestUnreadAnswers(t *testing.T) {
	const (
		clients, places = 12, 2
		series, steps   = 100, 10_000
		limit           = 4 << 20                   // Small queries wait above four times that.
		answer          = series * (steps*16 + 200) // at most, see promql/unread.go
	)
	r := startServe(t, "--storage.path="+t.TempDir(), fmt.Sprint("--query.max-concurrency=", places),
		fmt.Sprint("--query.unread-bytes=", limit))
	at := time.Now().Truncate(time.Second)
	r.writeUnread(t, at, series)
	require.Equal(t, "100", r.Value(t, "count(unread)", at))

	unread := func() float64 {
		_, metrics := r.Get(t, "/metrics")
		return cassiatest.Metric(t, metrics, "cassia_query_unread_bytes")
	}
	waiting := func() int64 { return waitingQueries(t, r) }
	query := url.Values{
		"query": {"unread"}, "start": {fmt.Sprint(at.Unix())}, "end": {fmt.Sprint(at.Unix() + 200)}, "step": {"0.02"},
	}
	var hangUp []func() error
	for range clients {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.URL, "http://"))
		require.NoError(t, err)
		hangUp = append(hangUp, conn.Close)
		_, err = fmt.Fprintf(conn, "GET /api/v1/query_range?%s HTTP/1.1\r\nHost: localhost\r\n\r\n", query.Encode())
		require.NoError(t, err)
	}
	// The limit may be exceeded by the queries that started before any response was unread, at most one per place.
	require.Eventually(t, func() bool { return unread() >= limit && waiting() >= clients-2*places },
		cassiatest.Patience, 5*time.Millisecond)
	require.LessOrEqual(t, unread(), float64(4*limit+(places+1)*answer))
	for _, end := range hangUp {
		require.NoError(t, end())
	}
	require.Eventually(
		t, func() bool { return unread() == 0 && waiting() == 0 }, cassiatest.Patience, 5*time.Millisecond,
	)
	require.Equal(t, "100", r.Value(t, "count(unread)", at))
}

// TestClientsThatReadNothingDelayNobody checks that small queries overtake queries of 200 clients that don't read their
// responses. While small queries wait, the clients that don't read are disconnected.
func TestClientsThatReadNothingDelayNobody(t *testing.T) {
	const clients, series, rounds = 200, 100, 10
	r := startServe(
		t, "--storage.path="+t.TempDir(), "--query.max-concurrency=4", fmt.Sprint("--query.unread-bytes=", 16<<20),
	)
	at := time.Now().Truncate(time.Second)
	r.writeUnread(t, at, series)
	query := url.Values{
		"query": {"unread"}, "start": {fmt.Sprint(at.Unix())}, "end": {fmt.Sprint(at.Unix() + 200)}, "step": {"0.02"},
	}
	for range clients {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.URL, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err = fmt.Fprintf(conn, "GET /api/v1/query_range?%s HTTP/1.1\r\nHost: localhost\r\n\r\n", query.Encode())
		require.NoError(t, err)
	}
	require.Eventually(
		t, func() bool { return waitingQueries(t, r) >= clients/2 }, cassiatest.Patience, 5*time.Millisecond,
	)
	var longest time.Duration
	for range rounds {
		began := time.Now()
		require.Equal(t, fmt.Sprint(series), r.Value(t, "count(unread)", at))
		code, text := r.Get(t, "/api/v1/label/i/values")
		require.Equal(t, http.StatusOK, code, text)
		longest = max(longest, time.Since(began))
	}
	t.Log("two small requests took at most", longest)
	waiting := waitingQueries(t, r)
	require.GreaterOrEqual(t, waiting, int64(clients/2), "they waited for the others")
	require.Eventually(t, func() bool { return waitingQueries(t, r) < waiting }, cassiatest.Patience,
		5*time.Millisecond, "nobody lost an answer")
}

// writeUnread stores one sample for each of the given number of series of the metric "unread".
func (r running) writeUnread(t *testing.T, at time.Time, series int) {
	t.Helper()
	var request prompb.WriteRequest
	for i := range series {
		request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
			Labels:  []prompb.Label{{Name: "__name__", Value: "unread"}, {Name: "i", Value: fmt.Sprint(i)}},
			Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: float64(i)}},
		})
	}
	body, err := request.Marshal()
	require.NoError(t, err)
	code, text := r.Post(t, "/api/v1/write", snappy.Encode(nil, body))
	require.Equal(t, http.StatusNoContent, code, text)
}

// waitingQueries returns the number of waiting queries of the default tenant.
func waitingQueries(t *testing.T, r running) int64 {
	_, text := r.Get(t, "/api/v1/status/limits")
	var list struct {
		Data []struct{ Used map[string]int64 }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &list), text)
	return list.Data[0].Used["queries_waiting"]
}
