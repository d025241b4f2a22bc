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

// Prometheus' handler holds an answer of samples three times: as structs, as bytes, and compressed. The answer for
// 240,000 series took 250 MB, and most of it couldn't be metered in advance. So such answers are encoded and compressed
// series by series, and only the compressed bytes are held:
//
//	series ──► TimeSeries ──► piece ── compressed when it has samplesPiece bytes ──► answer
//
// A snappy block is the length of the decoded data, followed by independent elements. So the elements of pieces that
// were compressed separately can be joined to a block.

// samplesPiece is the size of the pieces in which an answer is compressed, in bytes. Larger pieces don't compress
// better, because snappy refers to at most the previous 64 KiB.
const samplesPiece = 64 << 10

// sendSamples serves a request for samples that aren't streamed.
func (a *api) sendSamples(w http.ResponseWriter, r *http.Request, request *prompb.ReadRequest) {
	answer := samplesAnswer{
		warn: func(err error) { a.Logger.Warn("Warnings on remote read query", "err", err.Error()) },
	}
	for _, q := range request.Queries {
		if err := answer.addQuery(r.Context(), a.Queryable, q); err != nil {
			code := http.StatusInternalServerError
			if answer.samples > maxReadSamples {
				code = http.StatusBadRequest
			}
			http.Error(w, err.Error(), code)
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Header().Set("Content-Encoding", "snappy")
	_, _ = w.Write(answer.bytes()) // Errors of disconnected clients are ignored, because net/http handles them.
}

// samplesAnswer is a compressed prompb.ReadResponse.
type samplesAnswer struct {
	// elements are snappy elements, one slice per piece. size is the number of bytes to which they decode.
	elements [][]byte
	size     int64
	held     int64 // bytes of elements
	samples  int
	warn     func(error)
	// piece holds the bytes that aren't compressed yet. series and buffer are reused buffers.
	piece  []byte
	series prompb.TimeSeries
	buffer []byte
}

// addQuery adds the result of a query. The first error ends the answer.
func (s *samplesAnswer) addQuery(ctx context.Context, from promstorage.Queryable, q *prompb.Query) error {
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
	s.elements = append(s.elements, nil) // Reserved for the length of the result, which isn't known yet.
	set := querier.Select(ctx, false, hintsOf(q), matchers...)
	var it chunkenc.Iterator
	for set.Next() {
		one := set.At()
		it = one.Iterator(it)
		if err := s.addSeries(ctx, one.Labels(), it); err != nil {
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
		return fmt.Errorf("%w: the response has more than 4 GiB; query fewer series or a shorter range",
			meter.ErrQueryTooLarge)
	}
	return nil
}

// fieldOne is the tag of field 1, which holds the results of a prompb.ReadResponse and the series of a
// prompb.QueryResult.
const fieldOne = 1<<3 | 2

// addSeries adds a series to the answer. It returns an error if the series can't be read, or if the answer would have
// more than maxReadSamples samples.
func (s *samplesAnswer) addSeries(ctx context.Context, ls labels.Labels, it chunkenc.Iterator) error {
	one := &s.series
	one.Labels, one.Samples, one.Histograms = one.Labels[:0], one.Samples[:0], one.Histograms[:0]
	ls.Range(func(l labels.Label) { one.Labels = append(one.Labels, prompb.Label{Name: l.Name, Value: l.Value}) })
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		if s.samples++; s.samples > maxReadSamples {
			return fmt.Errorf("exceeded sample limit (%d)", maxReadSamples)
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

// compress compresses the piece and appends its elements.
func (s *samplesAnswer) compress(ctx context.Context) error {
	if len(s.piece) == 0 {
		return nil
	}
	elements := compressedElements(s.piece)
	s.elements = append(s.elements, elements)
	s.size += int64(len(s.piece))
	s.held += int64(len(elements))
	s.piece = s.piece[:0]
	return meter.Grow(ctx, 2*int64(len(elements))) // The elements are copied when they are joined.
}

// compressedElements compresses piece, and returns its snappy elements without the length before them.
func compressedElements(piece []byte) []byte {
	block := snappy.Encode(nil, piece)
	_, n := binary.Uvarint(block)
	return append(make([]byte, 0, len(block)-n), block[n:]...)
}

// bytes returns the answer. It leaves the samplesAnswer empty.
func (s *samplesAnswer) bytes() []byte {
	all := binary.AppendUvarint(make([]byte, 0, s.held+int64(len(s.elements))*binary.MaxVarintLen64), uint64(s.size))
	for i, elements := range s.elements {
		all = append(all, elements...)
		s.elements[i] = nil
	}
	return all
}
