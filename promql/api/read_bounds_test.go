package api

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

func TestReadsAreBounded(t *testing.T) {
	queries := func(n, matchers int) []byte {
		r := &prompb.ReadRequest{}
		for range n {
			q := &prompb.Query{}
			for range matchers {
				q.Matchers = append(q.Matchers, &prompb.LabelMatcher{Name: "a", Value: "b"})
			}
			r.Queries = append(r.Queries, q)
		}
		text, err := r.Marshal()
		require.NoError(t, err)
		return snappy.Encode(nil, text)
	}
	expression := func(value string) []byte {
		text, err := (&prompb.ReadRequest{Queries: []*prompb.Query{{
			Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "a", Value: value}},
		}}}).Marshal()
		require.NoError(t, err)
		return snappy.Encode(nil, text)
	}
	for about, c := range map[string]struct {
		body []byte
		code int
	}{
		"largest":          {queries(maxReadQueries, 10), 0},
		"many matchers":    {queries(1, maxReadMatchers), 0},
		"more queries":     {queries(maxReadQueries+1, 0), http.StatusRequestEntityTooLarge},
		"a bad expression": {expression("a("), http.StatusBadRequest},
		"repetitions":      {expression("(" + strings.Repeat("ab", 500) + "){1000}"), http.StatusUnprocessableEntity},
		"more matchers":    {queries(1, maxReadMatchers+1), http.StatusRequestEntityTooLarge},
		"a bomb": {snappy.Encode(nil, bytes.Repeat([]byte{0x0a, 0}, 8<<20)),
			http.StatusRequestEntityTooLarge},
		"a claim":          {[]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}, http.StatusRequestEntityTooLarge},
		"long":             {make([]byte, maxReadBytes+1), http.StatusRequestEntityTooLarge},
		"nothing":          {nil, http.StatusBadRequest},
		"no snappy":        {[]byte("select * from samples"), http.StatusBadRequest},
		"no protobuf":      {snappy.Encode(nil, []byte("select * from samples")), http.StatusBadRequest},
		"ends in a length": {snappy.Encode(nil, []byte{0x0a, 0xff, 0xff, 0xff, 0x7f}), http.StatusBadRequest},
	} {
		_, code, problem := decodeRead(c.body)
		require.Equal(t, c.code, code, "%s: %s", about, problem)
		require.Equal(t, code == 0, problem == "", about)
	}
}
