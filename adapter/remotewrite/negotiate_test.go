package remotewrite

import (
	"slices"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

// TestBodyOfAnotherVersion checks that a body which doesn't match the version of the content type is rejected with the
// reason. It used to be decoded as an empty message and acknowledged.
func TestBodyOfAnotherVersion(t *testing.T) {
	v1, v2 := marshalV1(t, oneSample()), marshalV2(t, v2From(oneSample()))
	metadata := marshalV1(t, &prompb.WriteRequest{
		Metadata: []prompb.MetricMetadata{{MetricFamilyName: "m", Help: "Help."}},
	})
	symbols := marshalV2(t, &writev2.Request{Symbols: []string{"", "a"}})
	for _, c := range []struct {
		what, contentType string
		body              []byte
		code              int
		text              string
	}{
		{"1.0 as 2.0", contentV2, v1, 400, "the body is a message of remote write 1.0"},
		{"1.0's metadata as 2.0", contentV2, metadata, 400, "the body is a message of remote write 1.0"},
		{"both as 2.0", contentV2, append(slices.Clone(v2), v1...), 400, "the body is a message of remote write 1.0"},
		{"2.0 as 1.0", contentV1, v2, 400, "the body is a message of remote write 2.0"},
		{"2.0 without a message's name", mediaType, v2, 400, "the body is a message of remote write 2.0"},
		{"2.0 without a type", "", v2, 400, "the body is a message of remote write 2.0"},
		{"2.0's symbols as 1.0", contentV1, symbols, 400, "the body is a message of remote write 2.0"},
		{"both as 1.0", contentV1, append(slices.Clone(v1), v2...), 400, "the body is a message of remote write 2.0"},
		{"nothing as 1.0", contentV1, nil, 204, ""},
		{"nothing as 2.0", contentV2, nil, 204, ""},
		{"symbols as 2.0", contentV2, symbols, 204, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRecorder()
			w := postRaw(newTestHandler(t, r, nil), c.contentType, "snappy", snappy.Encode(nil, c.body))
			require.Equal(t, c.code, w.Code, w.Body)
			require.Contains(t, w.Body.String(), c.text)
			require.Empty(t, r.samples)
		})
	}
}
