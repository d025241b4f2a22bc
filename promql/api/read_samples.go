package api

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/cassia-db/cassia/storage/meter"
)

// Prometheus' handler makes an answer of samples three times: as structs, as bytes, and compressed. That of 240,000 series took 250 MB, and most of
// it wasn't known before it was held. So such answers are encoded and compressed series by series, and only their compressed bytes are held:
//
//	series ──► TimeSeries ──► piece ── compressed when it has samplesPiece bytes ──► answer
//
// A block of snappy consists of elements that stand for themselves, after the length of all that they decode to. The elements of pieces that were
// compressed one by one are therefore a block, too.

// samplesPiece is from how many bytes of an answer of samples on they are compressed: snappy doesn't look further back.
const samplesPiece = 64 << 10

// sendSamples answers a request for samples that aren't streamed.
func (a *api) sendSamples(w http.ResponseWriter, r *http.Request, request *prompb.ReadRequest) {
	answer := samplesAnswer{warn: func(err error) { a.Logger.Warn("Warnings on remote read query", "err", err.Error()) }}
	for _, q := range request.Queries {
		if err := answer.query(r.Context(), a.Queryable, q); err != nil {
			code := http.StatusInternalServerError
			if answer.samples > readSamples {
				code = http.StatusBadRequest
			}
			http.Error(w, err.Error(), code)
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Header().Set("Content-Encoding", "snappy")
	_, _ = w.Write(answer.bytes()) // A client that is gone takes no answer; net/http notices.
}

// samplesAnswer is a prompb.ReadResponse, compressed.
type samplesAnswer struct {
	// elements are those of snappy, some for each piece, and size how many bytes they decode to.
	elements [][]byte
	size     int64
	held     int64 // bytes of elements
	samples  int
	warn     func(error)
	// piece are bytes that aren't compressed yet. series and buffer are memory.
	piece  []byte
	series prompb.TimeSeries
	buffer []byte
}

// query adds the result of a query. The first error ends the answer.
func (s *samplesAnswer) query(ctx context.Context, from promstorage.Queryable, q *prompb.Query) error {
	matchers, err := remote.FromLabelMatchers(q.Matchers)
	if err != nil {
		return err
	}
	querier, err := from.Querier(q.StartTimestampMs, q.EndTimestampMs)
	if err != nil {
		return err
	}
	defer querier.Close()
	at, before := len(s.elements), s.size
	s.elements = append(s.elements, nil) // The length of the result, once it is known.
	set := querier.Select(ctx, false, hintsOf(q), matchers...)
	var it chunkenc.Iterator
	for set.Next() {
		one := set.At()
		it = one.Iterator(it)
		if err := s.take(ctx, one.Labels(), it); err != nil {
			return err
		}
	}
	if err := set.Err(); err != nil {
		return err
	}
	for _, w := range set.Warnings() {
		s.warn(w)
	}
	if err := s.compress(ctx); err != nil {
		return err
	}
	head := binary.AppendUvarint([]byte{fieldOne}, uint64(s.size-before))
	s.elements[at] = compressedElements(head)
	s.size += int64(len(head))
	if s.size > math.MaxUint32 {
		return fmt.Errorf("%w: the response has more than 4 GiB; query fewer series or a shorter range", meter.ErrQueryTooLarge)
	}
	return nil
}

// fieldOne is the tag of the results of a prompb.ReadResponse, and of the series of a prompb.QueryResult: messages in field 1.
const fieldOne = 1<<3 | 2

// take adds a series.
func (s *samplesAnswer) take(ctx context.Context, ls labels.Labels, it chunkenc.Iterator) error {
	one := &s.series
	one.Labels, one.Samples, one.Histograms = one.Labels[:0], one.Samples[:0], one.Histograms[:0]
	ls.Range(func(l labels.Label) { one.Labels = append(one.Labels, prompb.Label{Name: l.Name, Value: l.Value}) })
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		if s.samples++; s.samples > readSamples {
			return fmt.Errorf("exceeded sample limit (%d)", readSamples)
		}
		switch kind {
		case chunkenc.ValFloat:
			t, v := it.At()
			one.Samples = append(one.Samples, prompb.Sample{Timestamp: t, Value: v})
		case chunkenc.ValHistogram:
			one.Histograms = append(one.Histograms, prompb.FromIntHistogram(it.AtHistogram(nil)))
		case chunkenc.ValFloatHistogram:
			one.Histograms = append(one.Histograms, prompb.FromFloatHistogram(it.AtFloatHistogram(nil)))
		default:
			return fmt.Errorf("unrecognized value type: %s", kind)
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	n := one.Size()
	if cap(s.buffer) < n {
		s.buffer = make([]byte, 2*n)
	}
	text := s.buffer[:n]
	if _, err := one.MarshalToSizedBuffer(text); err != nil {
		return err
	}
	s.piece = binary.AppendUvarint(append(s.piece, fieldOne), uint64(n))
	if s.piece = append(s.piece, text...); len(s.piece) < samplesPiece {
		return nil
	}
	return s.compress(ctx)
}

// compress makes elements of the piece.
func (s *samplesAnswer) compress(ctx context.Context) error {
	if len(s.piece) == 0 {
		return nil
	}
	elements := compressedElements(s.piece)
	s.elements = append(s.elements, elements)
	s.size += int64(len(s.piece))
	s.held += int64(len(elements))
	s.piece = s.piece[:0]
	return meter.Grow(ctx, 2*int64(len(elements))) // Once more when they are joined.
}

// compressedElements returns elements that decode to some bytes.
func compressedElements(piece []byte) []byte {
	block := snappy.Encode(nil, piece)
	_, n := binary.Uvarint(block)
	return append(make([]byte, 0, len(block)-n), block[n:]...)
}

// bytes returns the answer, which is empty afterwards.
func (s *samplesAnswer) bytes() []byte {
	all := binary.AppendUvarint(make([]byte, 0, s.held+int64(len(s.elements))*binary.MaxVarintLen64), uint64(s.size))
	for i, elements := range s.elements {
		all = append(all, elements...)
		s.elements[i] = nil
	}
	return all
}
