package api

import (
	"bytes"
	"net/http"
	"sync"

	jsoniter "github.com/json-iterator/go"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	promapi "github.com/prometheus/prometheus/web/api/v1"

	"github.com/cassia-db/cassia/promql"
)

// Prometheus' handlers encode an answer as a whole. This takes several times the memory of the data, because the buffer
// grows and is copied once more. So large answers are encoded in pieces while they are written:
//
//	handler ── Encode ──► textCodec ── a token ──► handler ── Write(token) ──► textWriter ──► pieces of the answer

// minStreamedElements is the minimum number of elements of an answer that is encoded in pieces. textPiece is the length
// of a piece, in bytes.
const (
	minStreamedElements = 256
	textPiece           = 32 << 10
)

// textCodec encodes as Prometheus' codec does. For a large answer it returns a token instead of the text, by which
// textWriter finds the answer.
type textCodec struct {
	promapi.JSONCodec
	pending *sync.Map // *byte, the token's, to *promapi.Response
}

// Encode implements promapi.Codec.
func (c textCodec) Encode(r *promapi.Response) ([]byte, error) {
	if elementsOf(r.Data).n < minStreamedElements {
		return c.JSONCodec.Encode(r)
	}
	token := make([]byte, 1)
	c.pending.Store(&token[0], r)
	return token, nil
}

// elementList is the list of elements of a large answer.
type elementList struct {
	n int
	// write writes an element. text returns the length of an element's text; nil: the memory of the elements is counted
	// elsewhere.
	write func(stream *jsoniter.Stream, i int)
	text  func(i int) int
	// metric returns the labels of an element, which are fetched before the element is written. nil: elements have no
	// labels.
	metric func(i int) labels.Labels
	// empty is the answer's data with an empty list.
	empty any
}

// elementBytes is the approximate memory of an element without its text.
const elementBytes = 64

// bytes returns the approximate memory of the list.
func (e *elementList) bytes() (n int64) {
	if e.text == nil {
		return 0
	}
	for i := range e.n {
		n += elementBytes + int64(e.text(i))
	}
	return n
}

func elementsOf(data any) elementList {
	switch d := data.(type) {
	case *promapi.QueryData:
		if d == nil {
			return elementList{}
		}
		rest := *d
		switch v := d.Result.(type) {
		case promengine.Vector:
			rest.Result = promengine.Vector{}
			return elementList{
				n: len(v), write: func(stream *jsoniter.Stream, i int) { writeSample(stream, &v[i]) },
				metric: func(i int) labels.Labels { return v[i].Metric }, empty: &rest,
			}
		case promengine.Matrix:
			rest.Result = promengine.Matrix{}
			return elementList{
				n: len(v), write: func(stream *jsoniter.Stream, i int) { writeSeries(stream, &v[i]) },
				metric: func(i int) labels.Labels { return v[i].Metric }, empty: &rest,
			}
		}
	case []labels.Labels:
		return elementList{
			n: len(d), write: func(stream *jsoniter.Stream, i int) { writeLabels(stream, d[i]) },
			metric: func(i int) labels.Labels { return d[i] }, text: func(i int) int { return int(d[i].ByteSize()) },
			empty: []labels.Labels{},
		}
	case []string:
		return elementList{
			n: len(d), write: func(stream *jsoniter.Stream, i int) { stream.WriteVal(&d[i]) },
			text: func(i int) int { return len(d[i]) }, empty: []string{},
		}
	}
	return elementList{}
}

// withStreaming returns a handler whose large answers are written in pieces.
func (a *api) withStreaming(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { h(&textWriter{w, r, a}, r) }
}

// textWriter writes the answers for which textCodec returned a token.
type textWriter struct {
	http.ResponseWriter
	request *http.Request
	api     *api
}

// Write implements http.ResponseWriter.
func (w *textWriter) Write(p []byte) (int, error) {
	if len(p) == 1 {
		if r, ok := w.api.pending.LoadAndDelete(&p[0]); ok {
			return len(p), w.streamResponse(r.(*promapi.Response))
		}
	}
	return w.ResponseWriter.Write(p)
}

// streamResponse writes an answer: the text before the list of elements, the elements one by one, and the text after
// the list.
func (w *textWriter) streamResponse(r *promapi.Response) error {
	l := elementsOf(r.Data)
	if counted, ok := w.ResponseWriter.(*answerWriter); ok { // The data are held until they are written.
		promql.HoldAnswer(counted.ctx, l.bytes())
		w.ResponseWriter = counted.ResponseWriter
	}
	rest := *r
	rest.Data = l.empty
	text, err := w.api.codec.JSONCodec.Encode(&rest)
	if err != nil {
		return err
	}
	before, after, _ := bytes.Cut(text, []byte("[]")) // The text before the list contains no brackets.
	stream := jsoniter.NewStream(jsoniter.ConfigCompatibleWithStandardLibrary, w.ResponseWriter, 2*textPiece)
	stream.WriteRaw(string(before))
	stream.WriteArrayStart()
	for i := range l.n {
		if i > 0 {
			stream.WriteMore()
		}
		if l.metric != nil && i%prefetchedSeries == 0 {
			for k := i; k < min(i+prefetchedSeries, l.n); k++ {
				prefetchLabels(l.metric(k))
			}
		}
		l.write(stream, i)
		if stream.Buffered() < textPiece {
			continue
		}
		if err := w.request.Context().Err(); err != nil {
			return err
		}
		if err := stream.Flush(); err != nil {
			return err
		}
	}
	stream.WriteArrayEnd()
	stream.WriteRaw(string(after))
	return stream.Flush()
}

// Flush implements http.Flusher, which streamed answers need.
func (w *textWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is used by http.ResponseController.
func (w *textWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
