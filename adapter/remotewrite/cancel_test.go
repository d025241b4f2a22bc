package remotewrite

import (
	"context"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

// TestDecodingEndsWithItsClient checks that the decoder stops within checkEvery series after its context has ended,
// also if all series are rejected, so that nothing is committed.
func TestDecodingEndsWithItsClient(t *testing.T) {
	const n = 50 * checkEvery
	var v1 prompb.WriteRequest
	var v2 writev2.Request
	v2.Symbols = []string{"", "__name__", "a"}
	for range n {
		v1.Timeseries = append(v1.Timeseries, prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "a"}},
			Samples: []prompb.Sample{{Timestamp: 1}}})
		v2.Timeseries = append(v2.Timeseries, writev2.TimeSeries{LabelsRefs: []uint32{1, 2},
			Samples: []writev2.Sample{{Timestamp: 1}}})
	}
	body1, err := v1.Marshal()
	require.NoError(t, err)
	body2, err := v2.Marshal()
	require.NoError(t, err)
	for name, decode := range map[string]func(*decoder) error{
		"1.0": func(d *decoder) error { return d.decodeV1(body1) },
		"2.0": func(d *decoder) error { return d.decodeV2(body2) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r := newRecorder()
			defined := 0
			r.defineErr = func(labels.Labels) error {
				if defined++; defined == 3*checkEvery/2 {
					cancel()
				}
				return storage.ErrTooManySeries
			}
			d := &decoder{ctx: ctx, newBatch: r.newBatch}
			require.ErrorIs(t, decode(d), context.Canceled)
			require.Equal(t, 2*checkEvery, defined)
		})
	}
}
