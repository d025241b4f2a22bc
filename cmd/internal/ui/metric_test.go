package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMetric(t *testing.T) {
	o := testOptions()
	now := time.Now().UTC()
	old := now.Add(-37 * time.Hour).Truncate(time.Second)
	o.Store = &fakeStore{
		newest: map[string]time.Time{"memory_bytes": old, "http_requests_total": now.Add(-time.Minute)},
	}
	h := withAuth(t, o)
	_, text := sendRequest(h, "ann", Prefix+"metric?name=up")
	require.JSONEq(t,
		`{"name":"up","found":true,"recent":false,"first":"1970-01-01T00:00:00Z","last":"1970-01-02T00:00:00Z","similar":[]}`,
		text)
	_, text = sendRequest(h, "ann", Prefix+"metric?name=up_max")
	require.JSONEq(t,
		`{"name":"up_max","found":true,"rollup_of":"up","recent":false,"first":"1970-01-01T00:00:00Z","last":"1970-01-02T00:00:00Z","similar":[]}`,
		text)
	_, text = sendRequest(h, "ann", Prefix+"metric?name=memory_bytes")
	require.JSONEq(
		t, `{"name":"memory_bytes","found":true,"recent":false,"last":"`+old.Format(time.RFC3339)+`","similar":[]}`,
		text, "unsealed, but old",
	)
	_, text = sendRequest(h, "ann", Prefix+"metric?name=http_requests_total")
	require.Contains(t, text, `"recent":true`)
	for name, want := range map[string]string{
		"http_request_total":                 `["http_requests_total"]`,
		"http_requests":                      `["http_requests_total"]`,
		"HTTP_requests_Total":                `["http_requests_total"]`,
		"memory_total":                       `["memory_bytes","memory_total_bytes"]`,
		"ip":                                 `["up"]`,
		"nothing_is_like_this":               `[]`,
		strings.Repeat("x", maxMetricName-1): `[]`,
	} {
		_, text := sendRequest(h, "ann", Prefix+"metric?name="+name)
		require.JSONEq(t, `{"name":"`+name+`","found":false,"recent":false,"similar":`+want+`}`, text)
	}
}

func TestEditDistance(t *testing.T) {
	d := editDistance{}
	for _, c := range []struct {
		a, b     string
		distance int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"rate", "rate", 0}, {"ab", "ba", 2}} {
		require.Equal(t, c.distance, d.between(c.a, c.b, 10), "%s %s", c.a, c.b)
		require.Equal(t, c.distance, d.between(c.b, c.a, 10), "%s %s", c.b, c.a)
	}
	require.Greater(t, d.between("abcdefgh", "12345678", 2), 2)
}
