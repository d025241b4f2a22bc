package bench

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// Protocol is a version of remote write.
type Protocol string

const (
	V1 Protocol = "1.0"
	V2 Protocol = "2.0"
)

// encoder encodes the requests of one shard. It encodes the constant labels only once per series, so that the generator
// uses little CPU compared to the measured server.
type encoder interface {
	// encode returns the compressed request, which is valid until the next call.
	encode(refs []sampleRef) ([]byte, error)
	// headers returns the headers of every request.
	headers() map[string]string
}

func newEncoder(p Protocol, g *Generator) (encoder, error) {
	switch p {
	case V1:
		return &encoderV1{g: g, known: map[int]knownLabels{}}, nil
	case V2:
		return &encoderV2{g: g, known: map[int]knownV2{}, ids: map[string]uint32{}}, nil
	}
	return nil, fmt.Errorf("bench: unknown remote write protocol %q; use %s or %s", p, V1, V2)
}

// Wire tags, composed of field number and wire type, of the messages that are encoded by hand.
const (
	tagBytes1, tagBytes2, tagBytes3, tagBytes4, tagBytes5 = 1<<3 | 2, 2<<3 | 2, 3<<3 | 2, 4<<3 | 2, 5<<3 | 2

	tagFixed1, tagVarint1, tagVarint2 = 1<<3 | 1, 1 << 3, 2 << 3
)

func appendField(to []byte, tag byte, field []byte) []byte {
	to = append(to, tag)
	to = binary.AppendUvarint(to, uint64(len(field)))
	return append(to, field...)
}

// appendSample appends the fields of a Sample message, which are the same in both protocols.
func appendSample(to []byte, t int64, v float64) []byte {
	to = append(to, tagFixed1)
	to = binary.LittleEndian.AppendUint64(to, math.Float64bits(v))
	to = append(to, tagVarint2)
	return binary.AppendUvarint(to, uint64(t))
}

// knownLabels holds the encoded labels of a series in its latest generation.
type knownLabels struct {
	generation int
	labels     []byte
}

type encoderV1 struct {
	g     *Generator
	known map[int]knownLabels

	series, sample, request, packed []byte
}

func (e *encoderV1) headers() map[string]string {
	return map[string]string{
		"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
		"X-Prometheus-Remote-Write-Version": "0.1.0",
	}
}

func (e *encoderV1) labels(r sampleRef) []byte {
	generation := e.g.generation(r.series/seriesPerTarget, r.step)
	if have, ok := e.known[r.series]; ok && have.generation == generation {
		return have.labels
	}
	var out, one []byte
	e.g.Labels(r.series, r.step).Range(func(l labels.Label) {
		one = appendField(one[:0], tagBytes1, []byte(l.Name))
		one = appendField(one, tagBytes2, []byte(l.Value))
		out = appendField(out, tagBytes1, one)
	})
	e.known[r.series] = knownLabels{generation, out}
	return out
}

func (e *encoderV1) encode(refs []sampleRef) ([]byte, error) {
	e.request = e.request[:0]
	for _, r := range refs {
		t := e.g.Time(r.series, r.step)
		e.series = append(e.series[:0], e.labels(r)...)
		if e.g.IsHistogram(r.series) {
			var h prompb.Histogram
			if integer, float := e.g.Histogram(r.series, r.step); integer != nil {
				h = prompb.FromIntHistogram(t, integer)
			} else {
				h = prompb.FromFloatHistogram(t, float)
			}
			b, err := h.Marshal()
			if err != nil {
				return nil, err
			}
			e.series = appendField(e.series, tagBytes4, b)
		} else {
			e.sample = appendSample(e.sample[:0], t, e.g.Value(r.series, r.step))
			e.series = appendField(e.series, tagBytes2, e.sample)
		}
		e.request = appendField(e.request, tagBytes1, e.series)
	}
	e.packed = snappy.Encode(e.packed[:cap(e.packed)], e.request)
	return e.packed, nil
}

// knownV2 holds the labels of a series in its latest generation. strings contains the numbers of the label names and
// values, see encoderV2.ids.
type knownV2 struct {
	generation int
	strings    []uint32
}

type encoderV2 struct {
	g     *Generator
	known map[int]knownV2
	// ids maps all strings to their numbers, and texts maps the numbers to the strings.
	ids   map[string]uint32
	texts []string
	// place contains each string's symbol number in the current request. It is valid only if the string's mark is equal
	// to requests, the number of the current request.
	place, mark []uint32
	requests    uint32

	series, sample, refs, symbols, body, packed []byte
}

func (e *encoderV2) headers() map[string]string {
	return map[string]string{
		"Content-Type":                      "application/x-protobuf;proto=io.prometheus.write.v2.Request",
		"Content-Encoding":                  "snappy",
		"X-Prometheus-Remote-Write-Version": "2.0.0",
	}
}

func (e *encoderV2) id(text string) uint32 {
	id, ok := e.ids[text]
	if !ok {
		id = uint32(len(e.texts))
		e.ids[text] = id
		e.texts = append(e.texts, text)
		e.place, e.mark = append(e.place, 0), append(e.mark, 0)
	}
	return id
}

func (e *encoderV2) strings(r sampleRef) []uint32 {
	generation := e.g.generation(r.series/seriesPerTarget, r.step)
	if have, ok := e.known[r.series]; ok && have.generation == generation {
		return have.strings
	}
	var out []uint32
	e.g.Labels(r.series, r.step).Range(func(l labels.Label) {
		out = append(out, e.id(l.Name), e.id(l.Value))
	})
	e.known[r.series] = knownV2{generation, out}
	return out
}

func (e *encoderV2) encode(refs []sampleRef) ([]byte, error) {
	e.requests++
	e.symbols = appendField(e.symbols[:0], tagBytes4, nil) // string 0 is empty
	e.body = e.body[:0]
	symbols := uint32(1)
	for _, r := range refs {
		e.refs = e.refs[:0]
		for _, id := range e.strings(r) {
			if e.mark[id] != e.requests {
				e.mark[id], e.place[id] = e.requests, symbols
				e.symbols = appendField(e.symbols, tagBytes4, []byte(e.texts[id]))
				symbols++
			}
			e.refs = binary.AppendUvarint(e.refs, uint64(e.place[id]))
		}
		e.series = appendField(e.series[:0], tagBytes1, e.refs)
		if err := e.appendValue(r); err != nil {
			return nil, err
		}
		kind := writev2Type(e.g.shape(r.series).mtype)
		e.series = append(e.series, tagBytes5, 2, tagVarint1, byte(kind))
		e.body = appendField(e.body, tagBytes5, e.series)
	}
	e.symbols = append(e.symbols, e.body...)
	e.packed = snappy.Encode(e.packed[:cap(e.packed)], e.symbols)
	return e.packed, nil
}

func (e *encoderV2) appendValue(r sampleRef) error {
	t := e.g.Time(r.series, r.step)
	if !e.g.IsHistogram(r.series) {
		e.sample = appendSample(e.sample[:0], t, e.g.Value(r.series, r.step))
		e.series = appendField(e.series, tagBytes2, e.sample)
		return nil
	}
	var h writev2.Histogram
	if integer, float := e.g.Histogram(r.series, r.step); integer != nil {
		h = writev2.FromIntHistogram(0, t, integer)
	} else {
		h = writev2.FromFloatHistogram(0, t, float)
	}
	b, err := h.Marshal()
	e.series = appendField(e.series, tagBytes3, b)
	return err
}
