package api

import (
	"encoding/binary"
	"sync/atomic"

	jsoniter "github.com/json-iterator/go"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/jsonutil"

	"github.com/cassia-db/cassia/storage/labelorder"
)

// The functions below write elements of large answers in the format of Prometheus' codec. That codec spends most of its
// time on strings, which it writes byte by byte, and on cache misses, because the labels of consecutive series are far
// apart in memory.

// writeSample writes an element of a vector.
func writeSample(stream *jsoniter.Stream, s *promengine.Sample) {
	if s.H != nil {
		stream.WriteVal(s)
		return
	}
	stream.WriteRaw(`{"metric":`)
	writeLabels(stream, s.Metric)
	stream.WriteRaw(`,"value":`)
	writePoint(stream, s.T, s.F)
	stream.WriteObjectEnd()
}

// writeSeries writes an element of a matrix.
func writeSeries(stream *jsoniter.Stream, s *promengine.Series) {
	if len(s.Histograms) > 0 || len(s.Floats) == 0 {
		stream.WriteVal(s)
		return
	}
	stream.WriteRaw(`{"metric":`)
	writeLabels(stream, s.Metric)
	before := `,"values":[`
	for _, p := range s.Floats {
		stream.WriteRaw(before)
		writePoint(stream, p.T, p.F)
		before = `,`
	}
	stream.WriteRaw(`]}`)
}

func writePoint(stream *jsoniter.Stream, t int64, v float64) {
	stream.WriteArrayStart()
	jsonutil.MarshalTimestamp(t, stream)
	stream.WriteMore()
	jsonutil.MarshalFloat(v, stream)
	stream.WriteArrayEnd()
}

func writeLabels(stream *jsoniter.Stream, ls labels.Labels) {
	stream.WriteObjectStart()
	first := true
	ls.Range(func(l labels.Label) {
		if !first {
			stream.WriteMore()
		}
		first = false
		writeText(stream, l.Name)
		stream.WriteRaw(`:`)
		writeText(stream, l.Value)
	})
	stream.WriteObjectEnd()
}

// writeText writes a quoted string.
func writeText(stream *jsoniter.Stream, s string) {
	if !isPlain(s) {
		stream.WriteString(s)
		return
	}
	stream.SetBuffer(append(append(append(stream.Buffer(), '"'), s...), '"'))
}

// isPlain reports whether no byte of a string needs to be escaped. It checks eight bytes at a time (Anderson, "Bit
// Twiddling Hacks": haszero, hasless).
func isPlain(s string) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		x := binary.LittleEndian.Uint64([]byte(s[:8]))
		quote, slash := x^each*'"', x^each*'\\'
		if ((x-each*' ')&^x|(quote-each)&^quote|(slash-each)&^slash)&high != 0 {
			return false
		}
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}

// cacheLine is the number of bytes that a processor loads from memory at once, or a divisor of that number.
// prefetchedSeries is the number of series whose labels are fetched at once.
const cacheLine, prefetchedSeries = 64, 16

// prefetchSink keeps the loads of prefetchLabels from being optimized away.
var prefetchSink atomic.Bool

// prefetchLabels reads labels, so that they are in the processor's cache when they are written. Reading the labels of
// multiple series in a row is faster, because the cache misses overlap.
func prefetchLabels(ls labels.Labels) {
	text := labelorder.Encoding(ls)
	sum := byte(1)
	for i := 0; i < len(text); i += cacheLine {
		sum |= text[i]
	}
	if sum == 0 {
		prefetchSink.Store(true)
	}
}
