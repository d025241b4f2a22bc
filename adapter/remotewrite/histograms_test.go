package remotewrite

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
)

func intHistogram() *histogram.Histogram {
	return &histogram.Histogram{
		CounterResetHint: histogram.NotCounterReset, Schema: 3, ZeroThreshold: 1e-9, ZeroCount: 2, Count: 12, Sum: 18.4,
		PositiveSpans:   []histogram.Span{{Offset: -2, Length: 2}, {Offset: 1, Length: 2}},
		PositiveBuckets: []int64{1, 1, -1, 0},
		NegativeSpans:   []histogram.Span{{Offset: 0, Length: 2}},
		NegativeBuckets: []int64{2, 1},
	}
}

func floatHistogram() *histogram.FloatHistogram {
	return &histogram.FloatHistogram{
		CounterResetHint: histogram.GaugeType, Schema: -4, ZeroThreshold: .5, ZeroCount: .25, Count: 1e30,
		Sum: math.Inf(1), PositiveSpans: []histogram.Span{{Offset: 5, Length: 1}}, PositiveBuckets: []float64{1.5},
		NegativeSpans: []histogram.Span{{Offset: -7, Length: 1}}, NegativeBuckets: []float64{0},
	}
}

func customHistogram() *histogram.Histogram {
	return &histogram.Histogram{
		Schema: histogram.CustomBucketsSchema, Count: 6, Sum: -3, CustomValues: []float64{-1, 0, 10},
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 4}}, PositiveBuckets: []int64{1, 0, 1, 0},
	}
}

// decodeHistogram decodes a series with one histogram in both versions.
func decodeHistogram(t *testing.T, h prompb.Histogram) (*recorder, *decoder) {
	req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels: protoLabels("__name__", "h"), Histograms: []prompb.Histogram{h},
	}}}
	r := newRecorder()
	d := decodeV1(t, r, marshalV1(t, req))
	r2 := newRecorder()
	d2 := decodeV2(t, r2, marshalV2(t, v2From(req)))
	require.Equal(t, len(r.samples), len(r2.samples), "both protocols agree")
	require.Equal(t, d.rejections, d2.rejections)
	require.Equal(t, r.samples, r2.samples)
	return r, d
}

func TestHistogramFiner(t *testing.T) {
	h := intHistogram()
	h.Schema = 9
	r, _ := decodeHistogram(t, prompb.FromIntHistogram(1, h))
	want := h.Copy()
	require.NoError(t, want.ReduceResolution(8))
	want.CounterResetHint = histogram.UnknownCounterReset // NotCounterReset doesn't apply to the stored samples
	require.Equal(t, want, histogramOf(t, r.samples[0]).Int)

	fh := floatHistogram()
	fh.Schema = 52
	r, _ = decodeHistogram(t, prompb.FromFloatHistogram(1, fh))
	require.Equal(t, int32(8), histogramOf(t, r.samples[0]).Float.Schema)
}

func TestHistogramHints(t *testing.T) {
	for hint, want := range map[int32]histogram.CounterResetHint{
		0: histogram.UnknownCounterReset, 1: histogram.CounterReset, 2: histogram.UnknownCounterReset,
		3: histogram.GaugeType, 4: histogram.UnknownCounterReset, 257: histogram.UnknownCounterReset,
		-1: histogram.UnknownCounterReset,
	} {
		p := prompb.FromIntHistogram(1, intHistogram())
		p.ResetHint = prompb.Histogram_ResetHint(hint)
		r := newRecorder()
		decodeV1(t, r, marshalV1(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
			Labels: protoLabels("__name__", "h"), Histograms: []prompb.Histogram{p},
		}}}))
		require.Equal(t, want, histogramOf(t, r.samples[0]).Int.CounterResetHint, "hint %d", hint)
	}
}

func TestStaleHistogram(t *testing.T) {
	stale := math.Float64frombits(value.StaleNaN)
	r, _ := decodeHistogram(t, prompb.FromIntHistogram(1, &histogram.Histogram{Sum: stale}))
	require.True(t, value.IsStaleNaN(histogramOf(t, r.samples[0]).Int.Sum))
	r, _ = decodeHistogram(t, prompb.FromFloatHistogram(1, &histogram.FloatHistogram{Sum: stale}))
	require.True(t, value.IsStaleNaN(histogramOf(t, r.samples[0]).Float.Sum))
}

func TestHostileHistograms(t *testing.T) {
	spans := func(s ...prompb.BucketSpan) func(*prompb.Histogram) {
		return func(p *prompb.Histogram) { p.PositiveSpans = s }
	}
	for what, c := range map[string]struct {
		change func(*prompb.Histogram)
		reason string
	}{
		"spans for billions of buckets":   {spans(prompb.BucketSpan{Length: math.MaxUint32}), adapter.ReasonInvalidHistogram},
		"lengths that overflow together":  {spans(prompb.BucketSpan{Length: 1 << 31}, prompb.BucketSpan{Length: 1 << 31}), adapter.ReasonInvalidHistogram},
		"an index out of range":           {spans(prompb.BucketSpan{Offset: math.MaxInt32, Length: 4}), adapter.ReasonInvalidHistogram},
		"offsets that overflow together":  {spans(prompb.BucketSpan{Offset: 1 << 30, Length: 2}, prompb.BucketSpan{Offset: 1 << 30, Length: 2}), adapter.ReasonInvalidHistogram},
		"a negative offset":               {spans(prompb.BucketSpan{Length: 2}, prompb.BucketSpan{Offset: -1, Length: 2}), adapter.ReasonInvalidHistogram},
		"no spans":                        {spans(), adapter.ReasonInvalidHistogram},
		"an unknown schema":               {func(p *prompb.Histogram) { p.Schema = 99 }, adapter.ReasonInvalidHistogram},
		"a negative bucket":               {func(p *prompb.Histogram) { p.PositiveDeltas[0] = -5 }, adapter.ReasonInvalidHistogram},
		"a finer schema with wrong spans": {func(p *prompb.Histogram) { p.Schema = 20; p.PositiveSpans = nil }, adapter.ReasonInvalidHistogram},
		"float counts in an integer one":  {func(p *prompb.Histogram) { p.PositiveDeltas, p.PositiveCounts = nil, []float64{1, 2, 3, 4} }, adapter.ReasonInvalidHistogram},
		"a great many spans":              {func(p *prompb.Histogram) { p.NegativeSpans = make([]prompb.BucketSpan, maxHistogramBytes) }, reasonHistogramTooLarge},
	} {
		t.Run(what, func(t *testing.T) {
			p := prompb.FromIntHistogram(1, intHistogram())
			c.change(&p)
			req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
				Labels:     protoLabels("__name__", "h"),
				Histograms: []prompb.Histogram{p, prompb.FromIntHistogram(2, intHistogram())},
			}}}
			r := newRecorder()
			d := decodeV1(t, r, marshalV1(t, req))
			require.Len(t, r.samples, 1, "the good one is taken")
			require.Equal(t, int64(2), r.samples[0].t)
			require.Len(t, d.rejections, 1)
			require.Equal(t, c.reason, d.rejections[0].reason)
			require.Equal(t, 1, d.rejections[0].samples)
			require.Contains(t, d.rejections[0].example, `__name__="h"`)
		})
	}
}
