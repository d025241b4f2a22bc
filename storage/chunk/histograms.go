package chunk

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Histograms are stored in sub-chunks, each a chunk written by Prometheus' chunkenc:
//
//	+----------+---------+-------------+
//	| encoding | length  | bytes       |
//	| 1 byte   | uvarint | of chunkenc |
//	+----------+---------+-------------+
//
// The bytes of a sub-chunk contain its number of samples. Sub-chunks follow until all histograms of the chunk are
// present. All histograms of a sub-chunk have the same layout of buckets. To append a histogram with another layout,
// chunkenc would alter histograms. So a new sub-chunk starts where the type, the schema, the zero threshold, the bounds
// or the used buckets change, at a counter reset, and after stale markers.
const (
	encodingInt         = 1 // chunkenc.EncHistogram
	encodingFloat       = 2 // chunkenc.EncFloatHistogram
	encodingIntStarts   = 3 // chunkenc.EncHistogramST
	encodingFloatStarts = 4 // chunkenc.EncFloatHistogramST
)

// subChunkSamples is the max number of histograms in a sub-chunk; chunkenc's limit is 16,383.
const subChunkSamples = 4096

var chunkencEncodings = [...]chunkenc.Encoding{
	encodingInt:         chunkenc.EncHistogram,
	encodingFloat:       chunkenc.EncFloatHistogram,
	encodingIntStarts:   chunkenc.EncHistogramST,
	encodingFloatStarts: chunkenc.EncFloatHistogramST,
}

// appendHistograms appends the sub-chunks of hs.
func appendHistograms(dst []byte, hs []Histogram) []byte {
	starts := false
	for _, h := range hs {
		starts = starts || h.ST != 0
	}
	for len(hs) > 0 {
		var n int
		dst, n = appendSubChunk(dst, hs, starts)
		hs = hs[n:]
	}
	return dst
}

// appendSubChunk appends the longest possible sub-chunk from the start of hs and returns the number of its histograms.
func appendSubChunk(dst []byte, hs []Histogram, starts bool) ([]byte, int) {
	encoding := byte(encodingInt)
	if hs[0].Float != nil {
		encoding = encodingFloat
	}
	if starts {
		encoding += encodingIntStarts - encodingInt
	}
	c, err := chunkenc.NewEmptyChunk(chunkencEncodings[encoding])
	if err != nil {
		panic(err) // the encodings are known
	}
	appender, err := c.Appender()
	if err != nil {
		panic(err) // an empty chunk always has an appender
	}
	n := 0
	for n < min(len(hs), subChunkSamples) && (n == 0 || haveSameLayout(hs[0], hs[n])) && appendTo(appender, hs[n]) {
		n++
	}
	b := c.Bytes()
	dst = binary.AppendUvarint(append(dst, encoding), uint64(len(b)))
	return append(dst, b...), n
}

// appendTo appends h, unless that would alter h or the histograms appended before. It reports whether it appended h.
func appendTo(appender chunkenc.Appender, h Histogram) bool {
	var err error
	if h.Int != nil {
		_, _, _, err = appender.AppendHistogram(nil, h.ST, h.T, h.Int, true)
	} else {
		_, _, _, err = appender.AppendFloatHistogram(nil, h.ST, h.T, h.Float, true)
	}
	return err == nil
}

// haveSameLayout reports whether b has the type and the buckets of a. A stale marker matches any layout.
func haveSameLayout(a, b Histogram) bool {
	if (a.Int != nil) != (b.Int != nil) {
		return false
	}
	if b.isStale() {
		return true
	}
	if a.Int != nil {
		return equalSpans(a.Int.PositiveSpans, b.Int.PositiveSpans) &&
			equalSpans(a.Int.NegativeSpans, b.Int.NegativeSpans)
	}
	return equalSpans(a.Float.PositiveSpans, b.Float.PositiveSpans) &&
		equalSpans(a.Float.NegativeSpans, b.Float.NegativeSpans)
}

func equalSpans(a, b []histogram.Span) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// decodeHistograms appends n histograms to into and returns the rest of b.
func decodeHistograms(b []byte, n int, into *Samples) ([]byte, error) {
	first := len(into.H)
	for len(into.H)-first < n {
		if len(b) == 0 {
			return nil, fmt.Errorf("%w: a sub-chunk is missing", ErrCorrupt)
		}
		encoding := b[0]
		if encoding == 0 || int(encoding) >= len(chunkencEncodings) {
			return nil, fmt.Errorf("%w: sub-chunk of unknown encoding %d", ErrCorrupt, encoding)
		}
		size, rest, err := cutUvarint(b[1:], "sub-chunk")
		if err != nil {
			return nil, err
		}
		if size > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: a sub-chunk is truncated", ErrCorrupt)
		}
		if err := decodeSubChunk(rest[:size], encoding, n-(len(into.H)-first), into); err != nil {
			return nil, err
		}
		b = rest[size:]
	}
	if !isAscending(into.H[first:]) {
		return nil, fmt.Errorf("%w: histograms are not in order", ErrCorrupt)
	}
	return b, nil
}

// decodeSubChunk appends the histograms of one sub-chunk. It returns an error if there are more than limit.
func decodeSubChunk(b []byte, encoding byte, limit int, into *Samples) error {
	layout, err := checkSubChunk(b)
	if err != nil {
		return err
	}
	c, err := chunkenc.FromData(chunkencEncodings[encoding], b)
	if err != nil {
		return fmt.Errorf("%w: sub-chunk: %w", ErrCorrupt, err)
	}
	n := c.NumSamples()
	if n == 0 || n > limit {
		return fmt.Errorf("%w: a sub-chunk has an invalid number of histograms, %d", ErrCorrupt, n)
	}
	reset := resetHeader(c) == chunkenc.CounterReset
	it := c.Iterator(nil)
	for i := range n {
		kind := it.Next()
		if kind == chunkenc.ValNone {
			if err = it.Err(); err == nil {
				err = errors.New("too few histograms")
			}
			return fmt.Errorf("%w: sub-chunk: %w", ErrCorrupt, err)
		}
		h := Histogram{ST: it.AtST()}
		if kind == chunkenc.ValHistogram {
			h.T, h.Int = it.AtHistogram(&histogram.Histogram{
				PositiveSpans: layout.positive, NegativeSpans: layout.negative,
			})
			h.Int.CounterResetHint = storedHint(h.Int.CounterResetHint, reset && i == 0)
			layout.positive, layout.negative = h.Int.PositiveSpans, h.Int.NegativeSpans
		} else {
			h.T, h.Float = it.AtFloatHistogram(&histogram.FloatHistogram{
				PositiveSpans: layout.positive, NegativeSpans: layout.negative,
			})
			h.Float.CounterResetHint = storedHint(h.Float.CounterResetHint, reset && i == 0)
			layout.positive, layout.negative = h.Float.PositiveSpans, h.Float.NegativeSpans
		}
		into.H = append(into.H, h)
	}
	return nil
}

func resetHeader(c chunkenc.Chunk) chunkenc.CounterResetHeader {
	if c, ok := c.(interface {
		GetCounterResetHeader() chunkenc.CounterResetHeader
	}); ok {
		return c.GetCounterResetHeader()
	}
	return chunkenc.UnknownCounterReset
}

// storedHint returns the hint of a decoded histogram: hints of gauges and of reported resets are preserved. All other
// histograms get no hint: the reader must compare them with the previous histogram.
func storedHint(hint histogram.CounterResetHint, reset bool) histogram.CounterResetHint {
	switch {
	case hint == histogram.GaugeType:
		return histogram.GaugeType
	case reset:
		return histogram.CounterReset
	default:
		return histogram.UnknownCounterReset
	}
}
