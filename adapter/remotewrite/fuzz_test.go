package remotewrite

import (
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

// compareV1 decodes body with the generated decoder and with this package's. Both must accept it with the same content,
// or both must reject it. Re-encoded samples must decode to the same samples.
func compareV1(t *testing.T, body []byte) {
	var req prompb.WriteRequest
	want := req.Unmarshal(body)
	r := newRecorder()
	d := newTestDecoder(r)
	got := d.decodeV1(body)
	if errors.Is(got, errBodyOfV2) { // The generated decoder treats these fields as unknown.
		d.release()
		return
	}
	require.Equal(t, want == nil, got == nil, "generated: %v, ours: %v", want, got)
	if got != nil {
		return
	}
	require.NoError(t, d.commit())
	checkAccepted(t, d, r, countV1(&req), wantV1(&req))

	again := newRecorder()
	decodeV1(t, again, marshalV1(t, &req))
	requireSame(t, r.samples, again.samples)
	require.Equal(t, r.exemplars, again.exemplars)
}

// compareV2 is compareV1 for 2.0. This package's decoder rejects two kinds of bodies that the generated decoder
// accepts: a packed number that continues past the end of its field, and a first symbol that isn't empty.
func compareV2(t *testing.T, body []byte) {
	var req writev2.Request
	want := req.Unmarshal(body)
	r := newRecorder()
	d := newTestDecoder(r)
	if got := d.decodeV2(body); got != nil {
		d.release()
		if want == nil && !errors.Is(got, errBodyOfV1) {
			// Re-encoding repairs everything except the first symbol.
			if len(req.Symbols) > 0 {
				req.Symbols[0] = ""
			}
			decodeV2(t, newRecorder(), marshalV2(t, &req))
		}
		return
	}
	require.NoError(t, want, "ours accepted what the generated decoder rejects")
	require.NoError(t, d.commit())
	var valid writev2.Request
	valid.Symbols = req.Symbols
	for _, ts := range req.Timeseries {
		if referencesExist(&ts, len(req.Symbols)) {
			valid.Timeseries = append(valid.Timeseries, ts)
		}
	}
	checkAccepted(t, d, r, countV2(&req), wantV2(t, &valid))

	again := newRecorder()
	decodeV2(t, again, marshalV2(t, &req))
	requireSame(t, r.samples, again.samples)
	require.Equal(t, r.exemplars, again.exemplars)
}

func referencesExist(ts *writev2.TimeSeries, symbols int) bool {
	for _, ref := range ts.LabelsRefs {
		if int(ref) >= symbols {
			return false
		}
	}
	return len(ts.LabelsRefs)%2 == 0 && int(ts.Metadata.HelpRef) < symbols && int(ts.Metadata.UnitRef) < symbols
}

// checkAccepted checks that every sample was either recorded or counted as rejected, and that the recorded samples are
// a subsequence of want.
func checkAccepted(t *testing.T, d *decoder, r *recorder, all counts, want []recorded) {
	require.Equal(t, all.floats+all.histograms, d.written.floats+d.written.histograms+d.rejections.samples())
	require.Equal(t, d.written.floats+d.written.histograms, len(r.samples))
	require.Equal(t, all.exemplars, d.written.exemplars+d.dropped+d.rejections.exemplars())
	require.Equal(t, d.written.exemplars, len(r.exemplars))
	want, taken := floatsFirst(want), floatsFirst(r.samples)
	i := 0
	for _, got := range taken {
		for i < len(want) && want[i] != got {
			i++
		}
		require.Less(t, i, len(want),
			"%v was never sent, or in another order; rejected: %v; all: %v", got, d.rejections, want)
		i++
	}
}

// floatsFirst moves histograms behind floats. A message with both kinds preserves only the order within each kind.
func floatsFirst(samples []recorded) []recorded {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b recorded) int {
		rank := func(r recorded) int {
			return min(1, len(r.hist))
		}
		return rank(a) - rank(b)
	})
	return samples
}

func countV1(req *prompb.WriteRequest) (n counts) {
	for _, ts := range req.Timeseries {
		n.floats += len(ts.Samples)
		n.histograms += len(ts.Histograms)
		n.exemplars += len(ts.Exemplars)
	}
	return n
}

func countV2(req *writev2.Request) (n counts) {
	for _, ts := range req.Timeseries {
		n.floats += len(ts.Samples)
		n.histograms += len(ts.Histograms)
		n.exemplars += len(ts.Exemplars)
	}
	return n
}

func requireSame(t *testing.T, want, got []recorded) {
	require.Len(t, got, len(want))
	require.Equal(t, floatsFirst(want), floatsFirst(got))
}

func FuzzDecodeV1(f *testing.F) {
	f.Add(marshalV1(f, variedRequest()))
	f.Add(marshalV1(f, &prompb.WriteRequest{Metadata: []prompb.MetricMetadata{
		{Type: prompb.MetricMetadata_COUNTER, MetricFamilyName: "m", Help: "h", Unit: "u"},
	}}))
	f.Add(marshalV1(f, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels: protoLabels("b", "1", "__name__", "x", "b", "2", "e", ""), Samples: []prompb.Sample{{Timestamp: 1}},
		Exemplars: []prompb.Exemplar{{Labels: protoLabels("trace_id", "1"), Value: 1, Timestamp: 2}},
	}}}))
	f.Fuzz(compareV1)
}

func FuzzDecodeV2(f *testing.F) {
	f.Add(marshalV2(f, v2From(variedRequest())))
	f.Add(marshalV2(f, &writev2.Request{
		Symbols: []string{"", "__name__", "m", "help"}, Timeseries: []writev2.TimeSeries{{
			LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Timestamp: 1, StartTimestamp: 2, Value: 3}},
			Metadata:  writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: 3},
			Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{1, 3}, Value: 1, Timestamp: 1}},
		}, {LabelsRefs: []uint32{9, 1, 1}, Samples: []writev2.Sample{{Timestamp: 1}}}},
	}))
	f.Fuzz(compareV2)
}
