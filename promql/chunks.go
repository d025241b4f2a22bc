package promql

import (
	"fmt"

	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// samplesPerChunk is how many samples Prometheus puts into a chunk.
const samplesPerChunk = 120

// chunkSet turns series into series of chunks.
type chunkSet struct{ promstorage.SeriesSet }

func (s chunkSet) At() promstorage.ChunkSeries { return chunkSeries{s.SeriesSet.At()} }

type chunkSeries struct{ promstorage.Series }

// Iterator implements promstorage.ChunkIterable. Chunks are encoded one by one as they are asked for.
//
// Start timestamps are left out: they need encodings that most readers of Prometheus' remote read protocol
// don't know.
func (s chunkSeries) Iterator(it chunks.Iterator) chunks.Iterator {
	e, ok := it.(*chunkEncoder)
	if !ok {
		e = &chunkEncoder{}
	}
	e.samples = s.Series.Iterator(e.samples)
	e.typ, e.meta, e.err = e.samples.Next(), chunks.Meta{}, nil
	return e
}

// chunkEncoder implements chunks.Iterator. A chunk belongs to the caller once it was returned.
type chunkEncoder struct {
	samples chunkenc.Iterator
	// typ is the type of the sample at which samples stands, which isn't encoded yet.
	typ  chunkenc.ValueType
	meta chunks.Meta
	err  error
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
	c, err := e.typ.NewChunk(false, false)
	if err != nil {
		e.err = err
		return false
	}
	e.meta = chunks.Meta{MinTime: e.samples.AtT(), Chunk: c}
	if e.err = e.fill(e.typ); e.err != nil {
		e.meta = chunks.Meta{}
		return false
	}
	e.meta.Chunk.Compact()
	return true
}

// fill appends samples to the chunk until it is full, or the next sample needs a chunk of its own.
func (e *chunkEncoder) fill(typ chunkenc.ValueType) error {
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
			if !recoded { // The sample can't stand in this chunk. It begins the next.
				return nil
			}
			e.meta.Chunk = other
		}
		e.meta.MaxTime = t
		e.typ = e.samples.Next()
	}
	return nil
}
