package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
)

// TestRemoteReadWhereRawIsGone checks that, for times whose raw samples have expired, remote read returns as many
// samples as there were, for any function in the hints, and counts these answers. If it rejects a request, the error
// contains the reason. It checks both kinds of answers: samples and streamed chunks.
func TestRemoteReadWhereRawIsGone(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		for _, accepted := range []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES,
			prompb.ReadRequest_STREAMED_XOR_CHUNKS} {
			var seconds atomic.Int64
			seconds.Store(400)
			stored := func(so *storage.Options) {
				so.Now, so.Retention = func() time.Time { return time.Unix(seconds.Load(), 0) }, 6*time.Hour
			}
			registry := prometheus.NewRegistry()
			r := newRigOver(t, stored, func(o *Options) {
				o.RefuseRollups, o.Registerer, o.Gatherer = refuse, registry, registry
			})
			now := time.Unix(seconds.Add(60*3600), 0)
			at := now.Add(-36 * time.Hour).Truncate(time.Hour)
			var samples chunk.Samples
			for i := range 60 {
				samples.AppendFloat(at.Add(time.Duration(i+1)*time.Minute).UnixMilli(), 0, float64(i))
			}
			_, err := r.store.Import(t.Context(), "default",
				[]storage.ImportedSeries{{Labels: labels.FromStrings("__name__", "old"), Samples: &samples}})
			require.NoError(t, err)
			for i, function := range []string{"count_over_time", "idelta", "rate", ""} {
				w := r.do(readOf(t, "old", accepted, at, at.Add(time.Hour), function))
				if refuse {
					require.Equal(t, http.StatusUnprocessableEntity, w.Code, "%s", w.Body)
					require.Contains(t, w.Body.String(), "--remote-read.rollups")
					continue
				}
				require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
				require.Equal(t, float64(i+1), madeReads(t, registry))
				if accepted == prompb.ReadRequest_SAMPLES {
					text, err := snappy.Decode(nil, w.Body.Bytes())
					require.NoError(t, err)
					var answer prompb.ReadResponse
					require.NoError(t, answer.Unmarshal(text))
					list := answer.Results[0].Timeseries[0].Samples
					require.Len(t, list, 60)
					require.Equal(t, 59.0, list[59].Value)
				}
			}
			w := r.do(readOf(t, "old", accepted, now.Add(-time.Hour), now, "idelta"))
			require.Equal(t, http.StatusOK, w.Code, "raw samples are there")
		}
	}
}

func madeReads(t *testing.T, g *prometheus.Registry) float64 {
	t.Helper()
	n, err := testutil.GatherAndCount(g, "cassia_remote_read_expanded_total")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	found, err := g.Gather()
	require.NoError(t, err)
	for _, f := range found {
		if f.GetName() == "cassia_remote_read_expanded_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// readOf returns a request for a metric's samples, with a function in the hints.
func readOf(t *testing.T, metric string, accepted prompb.ReadRequest_ResponseType, from, to time.Time,
	function string) *http.Request {
	t.Helper()
	text, err := (&prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{accepted},
		Queries: []*prompb.Query{{
			StartTimestampMs: from.UnixMilli(), EndTimestampMs: to.UnixMilli(),
			Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: metric}},
			Hints: &prompb.ReadHints{StartMs: from.UnixMilli(), EndMs: to.UnixMilli(), Func: function,
				RangeMs: 3_600_000},
		}},
	}).Marshal()
	require.NoError(t, err)
	return httptest.NewRequest(http.MethodPost, Prefix+"/read", strings.NewReader(string(snappy.Encode(nil, text))))
}
