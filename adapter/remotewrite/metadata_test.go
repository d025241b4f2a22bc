package remotewrite

import (
	"context"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

// received is a copy of a Metadata that the handler has passed on.
type received struct{ tenant, metric, typ, unit, help string }

func recordMetadata(out *[]received) func(*Options) {
	return func(o *Options) {
		o.Metadata = func(_ context.Context, tenant string, m Metadata) {
			*out = append(*out, received{tenant, string(m.Metric), m.Type, string(m.Unit), string(m.Help)})
		}
	}
}

func TestMetadataV1(t *testing.T) {
	var got []received
	r := newRecorder()
	w := post(newTestHandler(t, r, recordMetadata(&got)), contentV1, marshalV1(t, &prompb.WriteRequest{
		Metadata: []prompb.MetricMetadata{
			{Type: prompb.MetricMetadata_COUNTER, MetricFamilyName: "requests", Help: "All of them.", Unit: "1"},
			{Type: prompb.MetricMetadata_STATESET, MetricFamilyName: "state"},
			{Type: 99, MetricFamilyName: "strange"},
			{Type: prompb.MetricMetadata_GAUGE},
			{MetricFamilyName: "bad", Help: "\xff"},
		},
	}))
	require.Equal(t, 204, w.Code)
	require.Equal(t, []received{
		{"default", "requests", "counter", "1", "All of them."}, {"default", "state", "stateset", "", ""},
		{"default", "strange", "unknown", "", ""},
	}, got)
	require.Zero(t, r.batches, "no samples, no batch")
}

func TestMetadataV2(t *testing.T) {
	symbols := []string{"", "__name__", "a", "job", "x", "y", "help", "seconds", "b"}
	series := func(name uint32, job uint32, m writev2.Metadata) writev2.TimeSeries {
		return writev2.TimeSeries{
			LabelsRefs: []uint32{1, name, 3, job}, Metadata: m, Samples: []writev2.Sample{{Timestamp: 1}},
		}
	}
	gauge := writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: 6, UnitRef: 7}
	req := &writev2.Request{Symbols: symbols, Timeseries: []writev2.TimeSeries{
		series(2, 4, gauge), series(2, 5, gauge), series(8, 4, writev2.Metadata{}),
		{LabelsRefs: []uint32{1, 8}, Metadata: writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER}},
	}}
	var got []received
	r := newRecorder()
	w := post(newTestHandler(t, r, recordMetadata(&got)), contentV2, marshalV2(t, req))
	require.Equal(t, 204, w.Code, w.Body)
	require.Equal(t, []received{{"default", "a", "gauge", "seconds", "help"}, {"default", "b", "counter", "", ""}}, got)
	require.Len(t, r.samples, 3)
	require.Equal(t, 3, r.defines, "what has no samples isn't defined")

	w = post(newTestHandler(t, newRecorder(), nil), contentV2, marshalV2(t, req))
	require.Equal(t, 204, w.Code, "nobody listens")
}

// TestMetadataFamilies checks that the metadata of a 2.0 series is passed on under the name of its metric family.
func TestMetadataFamilies(t *testing.T) {
	const counter, gauge, histogram, summary = 1, 2, 3, 5
	for _, c := range []struct {
		name string
		typ  uint32
		want string
	}{
		{"a_total", counter, "a_total"}, {"a_sum", gauge, "a_sum"}, {"a_bucket", histogram, "a"},
		{"a_count", histogram, "a"}, {"a", histogram, "a"}, {"_sum", histogram, "_sum"}, {"a_sum", summary, "a"},
		{"a_bucket", summary, "a_bucket"}, {"a_gsum", 4, "a"},
	} {
		require.Equal(t, c.want, string(familyOf([]byte(c.name), c.typ)), c.name)
	}
}

func TestBadReferences(t *testing.T) {
	symbols := []string{"", "__name__", "m"}
	samples := []writev2.Sample{{Timestamp: 1}, {Timestamp: 2}}
	good := writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: samples}
	for what, c := range map[string]struct {
		bad    writev2.TimeSeries
		stored int
		text   string
	}{
		"name outside":            {writev2.TimeSeries{LabelsRefs: []uint32{3, 2}, Samples: samples}, 2, "bad_symbol_reference (2 samples)"},
		"value outside":           {writev2.TimeSeries{LabelsRefs: []uint32{1, 1 << 31}, Samples: samples}, 2, "outside of the symbol table"},
		"odd":                     {writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 1}, Samples: samples}, 2, "odd"},
		"unit outside":            {writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Metadata: writev2.Metadata{UnitRef: 3}, Samples: samples}, 2, "outside"},
		"help outside":            {writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Metadata: writev2.Metadata{HelpRef: 9}, Samples: samples}, 2, "outside"},
		"without samples":         {writev2.TimeSeries{LabelsRefs: []uint32{1, 9}}, 2, "1 series without samples"},
		"no labels":               {writev2.TimeSeries{Samples: samples}, 2, "missing_metric_name (2 samples)"},
		"exemplar outside":        {writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: samples, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{1, 7}}}}, 4, "bad_symbol_reference (1 exemplar)"},
		"exemplar odd":            {writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: samples, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{1}}}}, 4, "odd"},
		"histograms, bad as well": {writev2.TimeSeries{LabelsRefs: []uint32{8, 8}, Histograms: []writev2.Histogram{writev2.FromIntHistogram(0, 1, intHistogram())}}, 2, "(1 sample)"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRecorder()
			req := &writev2.Request{Symbols: symbols, Timeseries: []writev2.TimeSeries{c.bad, good}}
			w := post(newTestHandler(t, r, nil), contentV2, marshalV2(t, req))
			require.Equal(t, 400, w.Code)
			require.Contains(t, w.Body.String(), c.text)
			require.Len(t, r.samples, c.stored)
		})
	}
}

// TestExemplarsOnly checks that series with exemplars but without samples are accepted, because Prometheus' queue sends
// such series.
func TestExemplarsOnly(t *testing.T) {
	r := newRecorder()
	w := post(newTestHandler(t, r, nil), contentV2, marshalV2(t, &writev2.Request{
		Symbols: []string{"", "__name__", "m", "trace_id", "1"},
		Timeseries: []writev2.TimeSeries{{
			LabelsRefs: []uint32{1, 2},
			Exemplars:  []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}, Value: 1, Timestamp: 1}},
		}},
	}))
	require.Equal(t, 204, w.Code)
	require.Equal(t, "1", w.Header().Get(headerExemplarsWritten))
	want := []recordedExemplar{{`{__name__="m"}`, 1, bitsOf(1), `{trace_id="1"}`}}
	require.Equal(t, want, r.exemplars)

	w = post(newTestHandler(t, r, nil), contentV1, marshalV1(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:    protoLabels("__name__", "m"),
		Exemplars: []prompb.Exemplar{{Labels: protoLabels("trace_id", "1"), Value: 1, Timestamp: 1}},
	}}}))
	require.Equal(t, 204, w.Code)
	require.Equal(t, append(want, want...), r.exemplars)
}

// TestHugeLabels checks that series with more or longer labels than allowed are rejected, and that such labels aren't
// built in memory.
func TestHugeLabels(t *testing.T) {
	refs := make([]uint32, 0, 4*maxLabels)
	var pairs []string
	for range maxLabels + 1 {
		refs = append(refs, 1, 2)
		pairs = append(pairs, "a", "b")
	}
	samples := []writev2.Sample{{Timestamp: 1}}
	long := string(make([]byte, maxAliasBytes/2))
	for what, req := range map[string]*writev2.Request{
		"many": {
			Symbols: []string{"", "a", "b"}, Timeseries: []writev2.TimeSeries{{LabelsRefs: refs, Samples: samples}},
		},
		"long": {
			Symbols: []string{"", "a", long}, Timeseries: []writev2.TimeSeries{{LabelsRefs: refs, Samples: samples}},
		},
	} {
		r := newRecorder()
		w := post(newTestHandler(t, r, nil), contentV2, marshalV2(t, req))
		require.Equal(t, 400, w.Code, what)
		require.Contains(t, w.Body.String(), "too_many_labels (1 sample)")
		require.Zero(t, r.defines)

		d := newTestDecoder(r)
		require.NoError(t, d.decodeV2(marshalV2(t, req)))
		require.Less(t, cap(d.built), 2*maxAliasBytes, "few references to a long symbol are never written out whole")
	}
	r := newRecorder()
	w := post(newTestHandler(t, r, nil), contentV1, marshalV1(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: protoLabels(pairs...), Samples: []prompb.Sample{{}}},
		{Labels: protoLabels("a", long, "b", long, "c", long), Samples: []prompb.Sample{{}}},
	}}))
	require.Equal(t, 400, w.Code)
	require.Contains(t, w.Body.String(), "too_many_labels (2 samples)")
	require.Zero(t, r.defines)
}
