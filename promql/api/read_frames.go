package api

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/http"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Prometheus' handler makes structs of each series, marshals them, and writes a frame with three calls. This takes a
// third of the CPU time of an answer of many short series. Here, frames are encoded directly into the buffer that is
// sent:
//
//	series ──► fields of labels ─┬─► frame ─► frames ── sent when they have framesPiece bytes
//	       ──► fields of chunks ─┘
//
// A frame consists of the length of its message, a checksum of the message, and the message, which is a
// prompb.ChunkedReadResponse with chunks of one series. A series whose chunks exceed maxFrameBytes bytes has more than
// one frame.

// framesPiece is the number of buffered bytes at which frames are sent.
const framesPiece = 32 << 10

// checksums is the table for the checksums of frames.
var checksums = crc32.MakeTable(crc32.Castagnoli)

// sendFrames serves a request for streamed chunks.
func (a *api) sendFrames(w http.ResponseWriter, r *http.Request, request *prompb.ReadRequest) {
	w.Header().Set("Content-Type", streamedFrames+"; proto=prometheus.ChunkedReadResponse")
	answer := framesAnswer{
		to:   w,
		warn: func(err error) { a.Logger.Warn("Warnings on chunked remote read query", "warnings", err.Error()) },
	}
	for i, q := range request.Queries {
		answer.index = uint64(i)
		if err := answer.addQuery(r.Context(), a.Queryable, q); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError) // The error replaces unsent frames.
			return
		}
	}
	_ = answer.sendBuffered() // Errors of disconnected clients are ignored, because net/http handles them.
}

// framesAnswer is a streamed answer.
type framesAnswer struct {
	to     http.ResponseWriter
	warn   func(error)
	index  uint64 // of the query
	frames []byte // not sent yet
	// labels and chunks are the encoded fields of the current frame.
	labels, chunks []byte
}

// addQuery adds the result of a query. The first error ends the answer.
func (f *framesAnswer) addQuery(ctx context.Context, from promstorage.ChunkQueryable, q *prompb.Query) error {
	matchers, err := remote.FromLabelMatchers(q.Matchers)
	if err != nil {
		return err
	}
	querier, err := from.ChunkQuerier(q.StartTimestampMs, q.EndTimestampMs)
	if err != nil {
		return err
	}
	defer querier.Close()
	set := querier.Select(ctx, true, hintsOf(q), matchers...) // The protocol requires sorted series.
	var it chunks.Iterator
	for set.Next() {
		one := set.At()
		it = one.Iterator(it)
		if err := f.addSeries(one.Labels(), it); err != nil {
			return err
		}
	}
	if err := set.Err(); err != nil {
		return err
	}
	for _, w := range set.Warnings() {
		f.warn(w)
	}
	return nil
}

// addSeries adds the frames of a series.
func (f *framesAnswer) addSeries(ls labels.Labels, it chunks.Iterator) error {
	f.labels, f.chunks = f.labels[:0], f.chunks[:0]
	room := maxFrameBytes
	ls.Range(func(l labels.Label) { room -= f.addLabel(l) })
	left := room
	for more := it.Next(); more; {
		left -= f.addChunk(it.At())
		if more = it.Next(); more && left > 0 {
			continue
		}
		if err := f.finishFrame(); err != nil {
			return err
		}
		f.chunks, left = f.chunks[:0], room
	}
	return it.Err()
}

// Tags of the fields of messages. The messages are defined in package prompb.
const (
	responseSeries, responseIndex                = 1<<3 | 2, 2 << 3
	seriesLabels, seriesChunks                   = 1<<3 | 2, 2<<3 | 2
	labelName, labelValue                        = 1<<3 | 2, 2<<3 | 2
	chunkMin, chunkMax, chunkEncoding, chunkData = 1 << 3, 2 << 3, 3 << 3, 4<<3 | 2
)

// addLabel adds a label, and returns the length of its message.
func (f *framesAnswer) addLabel(l labels.Label) int {
	size := textSize(l.Name) + textSize(l.Value)
	f.labels = binary.AppendUvarint(append(f.labels, seriesLabels), uint64(size))
	f.labels = appendText(appendText(f.labels, labelName, l.Name), labelValue, l.Value)
	return size
}

// addChunk adds a chunk, and returns the length of its message.
func (f *framesAnswer) addChunk(c chunks.Meta) int {
	minT, maxT, encoding, data := uint64(c.MinTime), uint64(c.MaxTime), uint64(c.Chunk.Encoding()), c.Chunk.Bytes()
	size := numberSize(minT) + numberSize(maxT) + numberSize(encoding) + textSize(data)
	f.chunks = binary.AppendUvarint(append(f.chunks, seriesChunks), uint64(size))
	f.chunks = appendNumber(appendNumber(appendNumber(f.chunks, chunkMin, minT), chunkMax, maxT), chunkEncoding,
		encoding)
	f.chunks = appendText(f.chunks, chunkData, data)
	return size
}

// finishFrame encodes a frame with the current labels and chunks, and sends the buffered frames if there are enough.
func (f *framesAnswer) finishFrame() error {
	series := uint64(len(f.labels) + len(f.chunks))
	size := 1 + uvarintSize(series) + int(series) + numberSize(f.index)
	frames := binary.AppendUvarint(f.frames, uint64(size))
	message := len(frames) + crc32.Size
	frames = binary.AppendUvarint(append(frames, 0, 0, 0, 0, responseSeries), series)
	frames = append(append(frames, f.labels...), f.chunks...)
	frames = appendNumber(frames, responseIndex, f.index)
	binary.BigEndian.PutUint32(frames[message-crc32.Size:], crc32.Checksum(frames[message:], checksums))
	if f.frames = frames; len(frames) < framesPiece {
		return nil
	}
	return f.sendBuffered()
}

func (f *framesAnswer) sendBuffered() error {
	if len(f.frames) == 0 {
		return nil
	}
	_, err := f.to.Write(f.frames)
	f.frames = f.frames[:0]
	return err
}

// appendText and appendNumber append a field with its tag. If the value is the default value, they append nothing.
func appendText[T string | []byte](to []byte, tag byte, text T) []byte {
	if len(text) == 0 {
		return to
	}
	return append(binary.AppendUvarint(append(to, tag), uint64(len(text))), text...)
}

func appendNumber(to []byte, tag byte, n uint64) []byte {
	if n == 0 {
		return to
	}
	return binary.AppendUvarint(append(to, tag), n)
}

// textSize and numberSize return the numbers of bytes that appendText and appendNumber append.
func textSize[T string | []byte](text T) int {
	if len(text) == 0 {
		return 0
	}
	return 1 + uvarintSize(uint64(len(text))) + len(text)
}

func numberSize(n uint64) int {
	if n == 0 {
		return 0
	}
	return 1 + uvarintSize(n)
}

// uvarintSize returns the length of a number that is encoded as a varint.
func uvarintSize(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }
