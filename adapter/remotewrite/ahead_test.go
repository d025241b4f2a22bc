package remotewrite

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// A request with a sample ahead of the server's clock, which may be slow, is rejected with 503, so that it is retried;
// its other samples are stored. Once the clock has been stable for a while, the status is 400.
func TestSamplesThatMayBeAhead(t *testing.T) {
	good := prompb.TimeSeries{
		Labels: protoLabels("__name__", "good"), Samples: []prompb.Sample{{Timestamp: testMS, Value: 1}},
	}
	bad := prompb.TimeSeries{Labels: protoLabels("job", "x"), Samples: good.Samples}
	ahead := prompb.TimeSeries{
		Labels: protoLabels("__name__", "m"), Samples: []prompb.Sample{{Timestamp: testMS + 3_600_000}},
	}
	traced := prompb.TimeSeries{
		Labels:    protoLabels("__name__", "traced"),
		Exemplars: []prompb.Exemplar{{Labels: protoLabels("trace_id", "a"), Timestamp: testMS + 3_600_000}},
	}
	for name, one := range map[string]prompb.TimeSeries{"sample": ahead, "exemplar": traced} {
		for content, encode := range map[string]func(testing.TB, *prompb.WriteRequest) []byte{
			contentV1: marshalV1,
			contentV2: func(t testing.TB, r *prompb.WriteRequest) []byte { return marshalV2(t, v2From(r)) },
		} {
			t.Run(name+" "+content, func(t *testing.T) {
				at := testNow
				s := newServer(t, nil, storagetest.Clock(func() time.Time { return at }))
				send := func() (code int, text, retry string) {
					w := post(s, content, encode(t, &prompb.WriteRequest{
						Timeseries: []prompb.TimeSeries{one, bad, good},
					}))
					return w.Code, w.Body.String(), w.Header().Get("Retry-After")
				}
				code, text, retry := send()
				require.Equal(t, 503, code, text)
				require.Contains(t, text, "maybe_ahead (1 "+name+"), such as: ")
				require.Contains(t, text, "missing_metric_name")
				require.NotEmpty(t, retry)
				require.Equal(t, linesOfV2(t, v2From(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{good}})),
					s.stored(t, tenant.Default))
				at = at.Add(15 * time.Minute)
				code, text, _ = send()
				require.Equal(t, 400, code, text)
			})
		}
	}
}
