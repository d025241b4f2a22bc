package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestRemoteReadOfABadMatcher checks that an invalid matcher in a remote read is reported as a client error.
func TestRemoteReadOfABadMatcher(t *testing.T) {
	t.Parallel()
	r := startServe(t, "--storage.path="+t.TempDir())
	require.Eventually(t, func() bool { code, _ := r.Get(t, "/-/ready"); return code == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	for text, matcher := range map[string]*prompb.LabelMatcher{
		"missing closing":         {Type: prompb.LabelMatcher_RE, Name: "job", Value: "a(b"},
		"missing argument":        {Type: prompb.LabelMatcher_NRE, Name: "job", Value: "*a"},
		"invalid character class": {Type: prompb.LabelMatcher_RE, Name: "job", Value: "[z-a]"},
		"matcher":                 {Type: 99, Name: "job", Value: "a"},
	} {
		for _, kinds := range [][]prompb.ReadRequest_ResponseType{nil, {prompb.ReadRequest_STREAMED_XOR_CHUNKS}} {
			body, err := (&prompb.ReadRequest{AcceptedResponseTypes: kinds, Queries: []*prompb.Query{{
				EndTimestampMs: 1, Matchers: []*prompb.LabelMatcher{matcher},
			}}}).Marshal()
			require.NoError(t, err)
			code, told := r.Post(t, "/api/v1/read", snappy.Encode(nil, body))
			require.Equal(t, http.StatusBadRequest, code, "%v: %s", matcher, told)
			require.Contains(t, told, text)
		}
	}
}
