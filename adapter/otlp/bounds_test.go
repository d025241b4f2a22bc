package otlp

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// A metric without data points contributes no rejected points.
func TestMetricWithoutDataPoints(t *testing.T) {
	for _, e := range []encoding{encodingProtobuf, encodingJSON} {
		s := newServer(t, nil, nil, nil)
		md := pmetric.NewMetrics()
		addMetric(md, "empty")
		got := s.post(t, e, encode(t, md, e))
		require.Equal(t, http.StatusOK, got.code)
		require.Zero(t, got.rejected)
		require.NotContains(t, got.message, "rejected")
		require.NotContains(t, got.message, reasonUntranslatable)
		require.Contains(t, got.message, "metrics without data points were ignored: ")
	}
}

// On a small machine MaxBody and MaxInFlight are lowered to their share of the memory. On other machines the defaults
// apply.
func TestBodiesWithinAPartOfTheMemory(t *testing.T) {
	for _, part := range []int64{64 << 20, 100<<20 + 12345, 1 << 30} {
		o := DefaultOptions()
		o.LimitInFlight(part)
		require.NoError(t, o.Validate())
		require.LessOrEqual(t, o.MaxInFlight, part)
	}
	o := DefaultOptions()
	o.LimitInFlight(o.MaxInFlight)
	o.Logger = nil
	want := DefaultOptions()
	want.Logger = nil
	require.Equal(t, want, o)
}
