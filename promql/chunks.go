package promql

import (
	"fmt"

	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// samplesPerChunk is the number of samples that Prometheus puts into a chunk.
const samplesPerChunk = 120

// chunkSet returns the series of a SeriesSet as series of chunks.
type chunkSet struct{ promstorage.SeriesSet }

func (s chunkSet) At() promstorage.ChunkSeries { return chunkSeries{s.SeriesSet.At()} }

type chunkSeries struct{ promstorage.Series }

// Iterator implements promstorage.ChunkIterable. Each chunk is encoded when the iterator reaches it.
//
// Start timestamps are left out: their encodings aren't supported by most readers of Prometheus' remote read protocol.
func (s chunkSeries) Iterator(it chunks.Iterator) chunks.Iterator {
	e, ok := it.(*chunkEncoder)
	if !ok {
		e = &chunkEncoder{}
	}
	e.samples = s.Series.Iterator(e.samples)
	e.typ, e.meta, e.err = e.samples.Next(), chunks.Meta{}, nil
	return e
}

// chunkEncoder implements chunks.Iterator. The caller owns the returned chunks.
type chunkEncoder struct {
	samples chunkenc.Iterator
	// typ is the type of the current sample of samples. This sample isn't encoded yet.
	typ  chunkenc.ValueType
	meta chunks.Meta
	err  error
	// floats and room are preallocated memory for the next float chunks. Most chunks have few samples, and NewChunk
	// would allocate 128 bytes for each.
	floats []chunkenc.XORChunk
	room   []byte
}

// floatChunks is the number of float chunks that are allocated at once. chunkRoom is the number of bytes that are
// allocated at once for the samples of float chunks. If fewer than minRoom of these bytes are left, the next chunk
// starts in a new allocation. A chunk that outgrows the bytes left is moved to memory of its own.
const floatChunks, chunkRoom, minRoom = 64, 4 << 10, 64

// newFloatChunk returns an empty float chunk that uses the first bytes of the room.
func (e *chunkEncoder) newFloatChunk() *chunkenc.XORChunk {
	if len(e.floats) == 0 {
		e.floats = make([]chunkenc.XORChunk, floatChunks)
	}
	if len(e.room) < minRoom {
		e.room = make([]byte, chunkRoom)
	}
	c := &e.floats[0]
	e.floats = e.floats[1:]
	clear(e.room[:xorHeader])
	c.Reset(e.room[:xorHeader])
	return c
}

// xorHeader is the length of an empty float chunk.
const xorHeader = 2

// trimRoom removes the bytes of a finished float chunk from the room, if the chunk still uses it.
func (e *chunkEncoder) trimRoom(c *chunkenc.XORChunk) {
	text := c.Bytes()
	if len(text) > len(e.room) { // The chunk was moved to memory of its own.
		c.Compact()
		return
	}
	c.Reset(text[:len(text):len(text)])
	e.room = e.room[len(text):]
}

// At implements chunks.Iterator.
func (e *chunkEncoder) At() chunks.Meta { return e.meta }

// Err implements chunks.Iterator.
func (e *chunkEncoder) Err() error {
	if e.err != nil {
		return e.err
	}
	return e.samples.Err()
}

// Next implements chunks.Iterator.
func (e *chunkEncoder) Next() bool {
	if e.err != nil || e.typ == chunkenc.ValNone {
		return false
	}
	e.meta = chunks.Meta{MinTime: e.samples.AtT()}
	if e.typ == chunkenc.ValFloat {
		e.meta.Chunk = e.newFloatChunk()
	} else if e.meta.Chunk, e.err = e.typ.NewChunk(false, false); e.err != nil {
		return false
	}
	if e.err = e.fillChunk(e.typ); e.err != nil {
		e.meta = chunks.Meta{}
		return false
	}
	if c, ok := e.meta.Chunk.(*chunkenc.XORChunk); ok {
		e.trimRoom(c)
	} else {
		e.meta.Chunk.Compact()
	}
	return true
}

// fillChunk appends samples to the chunk until it is full or the next sample can't be appended.
func (e *chunkEncoder) fillChunk(typ chunkenc.ValueType) error {
	app, err := e.meta.Chunk.Appender()
	if err != nil {
		return err
	}
	for n := 0; n < samplesPerChunk && e.typ == typ; n++ {
		t := e.samples.AtT()
		var other chunkenc.Chunk
		var recoded bool
		switch typ {
		case chunkenc.ValFloat:
			_, v := e.samples.At()
			app.Append(0, t, v)
		case chunkenc.ValHistogram:
			_, h := e.samples.AtHistogram(nil)
			other, recoded, app, err = app.AppendHistogram(nil, 0, t, h, false)
		case chunkenc.ValFloatHistogram:
			_, h := e.samples.AtFloatHistogram(nil)
			other, recoded, app, err = app.AppendFloatHistogram(nil, 0, t, h, false)
		default:
			err = fmt.Errorf("promql: unknown sample type %s", typ)
		}
		if err != nil {
			return err
		}
		if other != nil {
			if !recoded { // The sample doesn't fit the chunk's layout. It starts the next chunk.
				return nil
			}
			e.meta.Chunk = other
		}
		e.meta.MaxTime = t
		e.typ = e.samples.Next()
	}
	return nil
}
