package remotewrite

import (
	"bytes"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// variedRequest returns a request with every kind of sample and unusual values.
func variedRequest() *prompb.WriteRequest {
	return &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{
			Labels: protoLabels("__name__", "a", "instance", "x:1", "job", "j"),
			Samples: []prompb.Sample{
				{Timestamp: 1, Value: 1.5}, {Timestamp: -5, Value: math.Inf(-1)}, {Timestamp: 0, Value: 0},
				{Timestamp: math.MaxInt64, Value: math.Float64frombits(value.StaleNaN)},
				{Timestamp: math.MinInt64, Value: math.SmallestNonzeroFloat64},
			},
		},
		{Labels: protoLabels("__name__", "ünicode", "k.ey", "välue \n\"")},
		{Labels: protoLabels("__name__", "h"), Histograms: []prompb.Histogram{
			prompb.FromIntHistogram(7, intHistogram()), prompb.FromFloatHistogram(8, floatHistogram()),
			prompb.FromIntHistogram(9, customHistogram()),
		}},
		floatsV1("b", prompb.Sample{Timestamp: 3, Value: math.Float64frombits(0x7ff8dead00000001)}),
	}}
}

// wantV1 returns the expected result of decoding a valid request.
func wantV1(req *prompb.WriteRequest) []recorded {
	var out []recorded
	var b labels.ScratchBuilder
	for _, ts := range req.Timeseries {
		series := ts.ToLabels(&b, nil).WithoutEmpty().String()
		for _, s := range ts.Samples {
			out = append(out, recorded{series: series, t: s.Timestamp, bits: bitsOf(s.Value)})
		}
		for _, h := range ts.Histograms {
			h.ResetHint = prompb.Histogram_ResetHint(isKnownHint(int32(h.ResetHint)))
			ih, fh := h.ToIntHistogram(), (*histogram.FloatHistogram)(nil)
			if h.IsFloatHistogram() {
				fh = h.ToFloatHistogram()
			}
			if hist, err := canonicalText(h.Timestamp, 0, ih, fh); err == nil {
				out = append(out, recorded{series: series, t: h.Timestamp, hist: hist})
			}
		}
	}
	return out
}

// wantV2 returns the expected result of decoding a valid request.
func wantV2(t testing.TB, req *writev2.Request) []recorded {
	var out []recorded
	var b labels.ScratchBuilder
	for _, ts := range req.Timeseries {
		ls, err := ts.ToLabels(&b, req.Symbols)
		require.NoError(t, err)
		series := ls.WithoutEmpty().String()
		for _, s := range ts.Samples {
			out = append(out, recorded{series: series, t: s.Timestamp, st: s.StartTimestamp, bits: bitsOf(s.Value)})
		}
		for _, h := range ts.Histograms {
			h.ResetHint = writev2.Histogram_ResetHint(isKnownHint(int32(h.ResetHint)))
			ih, fh := h.ToIntHistogram(), (*histogram.FloatHistogram)(nil)
			if h.IsFloatHistogram() {
				fh = h.ToFloatHistogram()
			}
			if hist, err := canonicalText(h.Timestamp, h.StartTimestamp, ih, fh); err == nil {
				out = append(out, recorded{series: series, t: h.Timestamp, st: h.StartTimestamp, hist: hist})
			}
		}
	}
	return out
}

func decodeV1(t testing.TB, r *recorder, body []byte) *decoder {
	d := newTestDecoder(r)
	require.NoError(t, d.decodeV1(body))
	require.NoError(t, d.commit())
	return d
}

func decodeV2(t testing.TB, r *recorder, body []byte) *decoder {
	d := newTestDecoder(r)
	require.NoError(t, d.decodeV2(body))
	require.NoError(t, d.commit())
	return d
}

func TestDecodeV1(t *testing.T) {
	req := variedRequest()
	r := newRecorder()
	d := decodeV1(t, r, marshalV1(t, req))
	require.Equal(t, wantV1(req), r.samples)
	require.Equal(t, counts{floats: 6, histograms: 3}, d.written)
	require.Empty(t, d.rejections)
	require.Equal(t, 3, r.defines, "a series without samples isn't defined")

	decodeV1(t, r, marshalV1(t, req))
	require.Equal(t, 3, r.defines, "known series are found by their alias")
	require.Len(t, r.samples, 18)
}

func TestDecodeV2(t *testing.T) {
	req := v2From(variedRequest())
	req.Timeseries[0].Samples[0].StartTimestamp = -77
	req.Timeseries[2].Histograms[0].StartTimestamp = 55
	r := newRecorder()
	d := decodeV2(t, r, marshalV2(t, req))
	require.Equal(t, wantV2(t, req), r.samples)
	require.Equal(t, counts{floats: 6, histograms: 3}, d.written)

	optimized, err := req.OptimizedMarshal(nil)
	require.NoError(t, err)
	again := newRecorder()
	decodeV2(t, again, optimized)
	require.Equal(t, r.samples, again.samples)
}

// TestNegativeZero checks that -0 keeps its sign. The test encodes it by hand, because the generated encoder omits -0
// like 0.
func TestNegativeZero(t *testing.T) {
	series := append(
		appendLabel(nil, "__name__", "m"), appendBytesField(nil, 2, appendSample(nil, 1, math.Copysign(0, -1)))...,
	)
	r := newRecorder()
	decodeV1(t, r, appendBytesField(nil, 1, series))
	require.Equal(t, uint64(1)<<63, r.samples[0].bits)
}

func TestBothVersionsShareAliases(t *testing.T) {
	r := newRecorder()
	decodeV1(t, r, marshalV1(t, variedRequest()))
	before := r.defines
	decodeV2(t, r, marshalV2(t, v2From(variedRequest())))
	require.Equal(t, before, r.defines)
	require.Len(t, r.aliases, 3)
}

// TestOneSeriesOneAlias checks that a series has one alias, however its labels are encoded in a request.
func TestOneSeriesOneAlias(t *testing.T) {
	sample := appendBytesField(nil, 2, appendSample(nil, 5, 1))
	name := appendLabel(nil, "__name__", "m")
	a, b := appendLabel(nil, "a", "1"), appendLabel(nil, "b", "2")
	join := func(parts ...[]byte) []byte {
		var series []byte
		for _, p := range parts {
			series = append(series, p...)
		}
		return appendBytesField(nil, 1, series)
	}
	longLength := append([]byte{tagLabels, byte(len(a)-2) | 0x80, 0}, a[2:]...)
	longTag := append([]byte{tagLabels | 0x80, 0}, a[1:]...)
	unknownInLabel := appendBytesField(nil, 1, append(a[2:len(a):len(a)], 0x20, 7))
	twiceInLabel := appendBytesField(nil, 1, append([]byte{tagValue, 3, 'o', 'l', 'd'}, a[2:]...))
	for what, body := range map[string][]byte{
		"sorted":                      join(name, a, b, sample),
		"not sorted":                  join(b, a, name, sample),
		"labels after samples":        join(sample, name, a, b),
		"labels around samples":       join(name, sample, b, a),
		"unknown field between":       join(name, a, []byte{0x38, 1}, b, sample),
		"unknown field first":         join([]byte{0x7d, 1, 2, 3, 4}, name, a, b, sample),
		"a group between":             join(name, a, []byte{0x3b, 0x08, 1, 0x3c}, b, sample),
		"an empty label":              join(name, a, b, appendLabel(nil, "c", ""), sample),
		"a length in two bytes":       join(name, longLength, b, sample),
		"a tag in two bytes":          join(name, longTag, b, sample),
		"an unknown field in a label": join(name, unknownInLabel, b, sample),
		"a field twice in a label":    join(name, twiceInLabel, b, sample),
	} {
		t.Run(what, func(t *testing.T) {
			var req prompb.WriteRequest
			require.NoError(t, req.Unmarshal(body))
			r := newRecorder()
			decodeV1(t, r, body)
			require.Equal(t, []recorded{{series: `{__name__="m", a="1", b="2"}`, t: 5, bits: bitsOf(1)}}, r.samples)
			require.Equal(t, wantV1(&req), r.samples)
			require.Len(t, r.aliases, 1)

			decodeV1(t, r, body)
			decodeV1(t, r, join(name, a, b, sample))
			require.Equal(t, 1, r.defines, "found again, by the canonical alias")
			require.Len(t, r.aliases, 1)
		})
	}
}

func TestLabelReferencesInPieces(t *testing.T) {
	symbols := []string{"", "__name__", "m", "a", "1"}
	var table []byte
	for _, s := range symbols {
		table = appendBytesField(table, 4, []byte(s))
	}
	sample := appendBytesField(nil, 2, appendSample(nil, 5, 1))
	packed := func(refs ...byte) []byte { return appendBytesField(nil, 1, refs) }
	single := func(ref byte) []byte { return []byte{1<<3 | wireVarint, ref} }
	join := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for what, series := range map[string][]byte{
		"packed":             join(packed(1, 2, 3, 4), sample),
		"two packed fields":  join(packed(1, 2), packed(3, 4), sample),
		"split in a pair":    join(packed(1), packed(2, 3, 4), sample),
		"not packed":         join(single(1), single(2), single(3), single(4), sample),
		"mixed, samples in":  join(single(1), packed(2), sample, packed(3), single(4)),
		"an empty one first": join(packed(), packed(1, 2, 3, 4), sample),
		"long varints":       join(packed(0x81, 0, 0x82, 0x80, 0, 3, 4), sample),
		"not sorted":         join(packed(3, 4, 1, 2), sample),
	} {
		t.Run(what, func(t *testing.T) {
			for order, body := range map[string][]byte{
				"symbols first": append(table[:len(table):len(table)], appendBytesField(nil, 5, series)...),
				"symbols last":  append(appendBytesField(nil, 5, series), table...),
			} {
				r := newRecorder()
				decodeV2(t, r, body)
				require.Equal(t, []recorded{{series: `{__name__="m", a="1"}`, t: 5, bits: bitsOf(1)}}, r.samples, order)
				require.Len(t, r.aliases, 1)
				var req writev2.Request
				require.NoError(t, req.Unmarshal(body))
				require.Equal(t, wantV2(t, &req), r.samples)
			}
		})
	}
}

// TestNumberInTwoFields checks that a number that is split across two packed fields is malformed.
func TestNumberInTwoFields(t *testing.T) {
	body := appendBytesField(appendBytesField(nil, 4, nil), 4, []byte("__name__"))
	first, second := appendBytesField(nil, 1, []byte{0, 0x81}), appendBytesField(nil, 1, []byte{0, 0, 0})
	body = appendBytesField(body, 5, append(first, second...))
	require.ErrorIs(t, newTestDecoder(newRecorder()).decodeV2(body), errMalformed)
}

// TestMalformedAfterBadReference checks that a bad reference, which rejects one series, doesn't hide a malformed number
// after it, which rejects the request.
func TestMalformedAfterBadReference(t *testing.T) {
	refs := append([]byte{9, 9}, bytes.Repeat([]byte{0x80}, 10)...)
	series := append(appendBytesField(nil, 1, append(refs, 1)), appendBytesField(nil, 2, appendSample(nil, 5, 1))...)
	require.ErrorIs(t, newTestDecoder(newRecorder()).decodeV2(appendBytesField(nil, 5, series)), errMalformed)
}

// TestTruncated truncates valid requests at every byte: nothing may panic, and the decoder must accept the same samples
// as generated decoders.
func TestTruncated(t *testing.T) {
	v1, v2 := marshalV1(t, variedRequest()), marshalV2(t, v2From(variedRequest()))
	for n := range v1 {
		compareV1(t, v1[:n:n])
	}
	for n := range v2 {
		compareV2(t, v2[:n:n])
	}
}

// TestFlippedBits changes every byte of valid requests, one at a time. The decoder must accept the same requests as
// generated decoders, with the same samples.
func TestFlippedBits(t *testing.T) {
	v1, v2 := marshalV1(t, variedRequest()), marshalV2(t, v2From(variedRequest()))
	for _, flip := range []byte{1, 2, 8, 0x80, 0xff} {
		for i := range v1 {
			v1[i] ^= flip
			compareV1(t, v1)
			v1[i] ^= flip
		}
		for i := range v2 {
			v2[i] ^= flip
			compareV2(t, v2)
			v2[i] ^= flip
		}
	}
}

func appendSample(dst []byte, t int64, v float64) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.Fixed64Type)
	dst = protowire.AppendFixed64(dst, bitsOf(v))
	dst = protowire.AppendTag(dst, 2, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(t))
}

func appendBytesField(dst []byte, number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), b)
}
