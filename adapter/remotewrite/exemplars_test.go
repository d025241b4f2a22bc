package remotewrite

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// exemplarsV1 returns a request with samples, a valid exemplar and the given bad ones.
func exemplarsV1(bad ...prompb.Exemplar) *prompb.WriteRequest {
	good := prompb.Exemplar{Labels: protoLabels("trace_id", "a", "span_id", "b"), Value: math.Inf(1), Timestamp: testMS}
	return &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: protoLabels("__name__", "before"), Samples: []prompb.Sample{{Timestamp: testMS, Value: 1}}},
		{
			Labels: protoLabels("__name__", "m"), Samples: []prompb.Sample{{Timestamp: testMS, Value: 1}},
			Exemplars: append([]prompb.Exemplar{good}, bad...),
		},
		{Labels: protoLabels("__name__", "m"), Exemplars: []prompb.Exemplar{good}},
		{Labels: protoLabels("__name__", "alone"), Exemplars: []prompb.Exemplar{{Timestamp: testMS - 1, Value: 2}}},
	}}
}

// exemplarsStored returns all exemplars of the default tenant as text.
func (s *server) exemplarsStored(t *testing.T) (lines []string) {
	found, err := s.store.Exemplars(t.Context(), tenant.Default, math.MinInt64, math.MaxInt64,
		[]*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")})
	require.NoError(t, err)
	for _, r := range found {
		for _, e := range r.Exemplars {
			lines = append(lines, fmt.Sprintf("%s %s %v", r.SeriesLabels, e.Labels, e.Value))
		}
	}
	return lines
}

// TestExemplarsStored sends valid and bad exemplars. With both versions the valid ones are stored; only 2.0 reports the
// bad ones.
func TestExemplarsStored(t *testing.T) {
	tooLong := prompb.Exemplar{Labels: protoLabels("trace_id", strings.Repeat("ä", 121)), Timestamp: testMS}
	muchTooLong := prompb.Exemplar{Labels: protoLabels("trace_id", strings.Repeat("x", 100_000)), Timestamp: testMS}
	tooOld := prompb.Exemplar{Labels: protoLabels("trace_id", "a"), Timestamp: 1}
	ahead := prompb.Exemplar{Labels: protoLabels("trace_id", "a"), Timestamp: testMS + 3_600_000}
	want := []string{`{__name__="alone"} {} 2`, `{__name__="m"} {span_id="b", trace_id="a"} +Inf`}
	for name, c := range map[string]struct {
		bad  []prompb.Exemplar
		text string
	}{
		"all good":          {},
		"labels too long":   {[]prompb.Exemplar{tooLong}, "invalid_exemplar (1 exemplar)"},
		"labels never read": {[]prompb.Exemplar{muchTooLong, tooLong}, "invalid_exemplar (2 exemplars), such as: the labels of an exemplar have more than 128 characters"},
		"too old":           {[]prompb.Exemplar{tooOld}, "too_old (1 exemplar)"},
		"too far ahead":     {[]prompb.Exemplar{ahead}, "too_far_ahead (1 exemplar)"},
	} {
		t.Run(name, func(t *testing.T) {
			req := exemplarsV1(c.bad...)
			s := newServer(t, nil, storagetest.RejectAhead)
			w := post(s, contentV1, marshalV1(t, req))
			require.Equal(t, 204, w.Code, "a bad exemplar doesn't fail a request of 1.0")
			require.Equal(t, want, s.exemplarsStored(t))

			s = newServer(t, nil, storagetest.RejectAhead)
			w = post(s, contentV2, marshalV2(t, v2From(req)))
			require.Equal(t, "3", w.Header().Get(headerExemplarsWritten), "one of them twice, which is written as well")
			require.Equal(t, "2", w.Header().Get(headerSamplesWritten))
			require.Equal(t, want, s.exemplarsStored(t))
			if c.bad == nil {
				require.Equal(t, 204, w.Code)
				return
			}
			require.Equal(t, 400, w.Code)
			require.Contains(t, w.Body.String(), c.text)
		})
	}
}

// exemplarDroppingBatch drops the exemplars with one value, as a relabeling rule may drop a series.
type exemplarDroppingBatch struct {
	adapter.Batch
	value float64
}

func (m exemplarDroppingBatch) Exemplar(ref *storage.Series, e exemplar.Exemplar) error {
	if e.Value == m.value {
		return adapter.ErrDropped
	}
	return m.Batch.Exemplar(ref, e)
}

// Exemplars that a rule drops aren't stored but are reported as written, so that senders don't retry them.
func TestExemplarsThatRulesDrop(t *testing.T) {
	s := newServer(t, nil, nil)
	opts := DefaultOptions()
	opts.Rules = func(_ string, b *storage.Batch) adapter.Batch { return exemplarDroppingBatch{b, 2} }
	var err error
	s.Handler, err = Handler(s.store, opts)
	require.NoError(t, err)
	w := post(s, contentV2, marshalV2(t, v2From(exemplarsV1())))
	require.Equal(t, 204, w.Code, w.Body)
	require.Equal(t, "3", w.Header().Get(headerExemplarsWritten))
	require.Equal(t, []string{`{__name__="m"} {span_id="b", trace_id="a"} +Inf`}, s.exemplarsStored(t))
}

// The response names the tenant's limit on exemplars.
func TestExemplarsBeyondALimit(t *testing.T) {
	now := testNow
	s := newLimitedServer(t, &now, "defaults: {exemplars_per_second: 1}")
	many := make([]prompb.Exemplar, 100)
	for i := range many {
		many[i] = prompb.Exemplar{Value: float64(i), Timestamp: testMS - int64(i)}
	}
	w := post(s, contentV2, marshalV2(t, v2From(exemplarsV1(many...))))
	require.Equal(t, 400, w.Code)
	require.Equal(t, "2", w.Header().Get(headerSamplesWritten), "samples don't wait behind exemplars")
	require.Regexp(t, `exemplars_per_second \([0-9]+ exemplars\)`, w.Body.String())
}

// TestExemplarsOfRefusedSeries checks that the exemplars of rejected series are reported by reason and not stored.
func TestExemplarsOfRefusedSeries(t *testing.T) {
	r := newRecorder()
	w := post(newTestHandler(t, r, nil), contentV2, marshalV2(t, &writev2.Request{
		Symbols: []string{"", "__name__", "m", "trace_id", "1"},
		Timeseries: []writev2.TimeSeries{
			{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Timestamp: 1}}},
			{LabelsRefs: []uint32{3, 4}, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}}, {LabelsRefs: []uint32{3}}}},
			{LabelsRefs: []uint32{1, 9}, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}}}},
		},
	}))
	require.Equal(t, 400, w.Code)
	require.Contains(t, w.Body.String(), "missing_metric_name (2 exemplars)")
	require.Contains(t, w.Body.String(), "bad_symbol_reference (1 exemplar)")
	require.Equal(t, "0", w.Header().Get(headerExemplarsWritten))
	require.Empty(t, r.exemplars)
}

// TestMalformedExemplars checks that a malformed exemplar makes the request malformed.
func TestMalformedExemplars(t *testing.T) {
	for _, b := range [][]byte{{0x0a}, {0x0a, 5}, {0x11, 1, 2}, {0x18}, {0x10, 1}, {0x0a, 2, 0x0a, 9}} {
		d := newTestDecoder(newRecorder())
		require.ErrorIs(t, d.decodeExemplarV1(b), errMalformed, "%x", b)
	}
	for _, b := range [][]byte{{0x0a}, {0x0a, 5}, {0x0a, 1, 0x80}, {0x11, 1, 2}, {0x18}, {0x10, 1}, {0x08}} {
		d := newTestDecoder(newRecorder())
		require.ErrorIs(t, d.decodeExemplarV2(nil, b), errMalformed, "%x", b)
	}
}
