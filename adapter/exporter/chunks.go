package exporter

import (
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/cassia-db/cassia/storage/chunk"
)

// chunkSamples is the number of samples per chunk in Prometheus.
const chunkSamples = 120

// encoder encodes the samples of a series as Prometheus chunks.
type encoder struct {
	// starts is set if start timestamps are written.
	starts bool
	metas  []chunks.Meta
	app    chunkenc.Appender
	n      int // number of samples in the last chunk
}

// sample is a float or a histogram.
type sample struct {
	t, st int64
	v     float64
	h     *chunk.Histogram // nil: a float
}

func (s *sample) encoding(starts bool) chunkenc.Encoding {
	starts = starts && s.st != 0
	switch {
	case s.h == nil:
		return chunkenc.ValFloat.ChunkEncoding(starts, starts)
	case s.h.Int != nil:
		return chunkenc.ValHistogram.ChunkEncoding(starts, starts)
	default:
		return chunkenc.ValFloatHistogram.ChunkEncoding(starts, starts)
	}
}

// encode returns the chunks of sorted samples. They are valid until the next call.
func (e *encoder) encode(s *chunk.Samples) ([]chunks.Meta, error) {
	e.metas, e.app, e.n = e.metas[:0], nil, 0
	for i, k := 0, 0; i < len(s.T) || k < len(s.H); {
		var next sample
		if k == len(s.H) || i < len(s.T) && s.T[i] < s.H[k].T {
			next = sample{t: s.T[i], st: startOf(s, i), v: s.V[i]}
			i++
		} else {
			next = sample{t: s.H[k].T, st: s.H[k].ST, h: &s.H[k]}
			k++
		}
		if !e.starts {
			next.st = 0
		}
		if err := e.add(&next); err != nil {
			return nil, err
		}
	}
	for i := range e.metas {
		e.metas[i].Chunk.Compact()
	}
	return e.metas, nil
}

// add appends a sample to the last chunk, or to a new chunk.
func (e *encoder) add(s *sample) error {
	want := s.encoding(e.starts)
	if e.n == 0 || e.n >= chunkSamples || e.last().Chunk.Encoding() != want {
		if err := e.begin(want); err != nil {
			return err
		}
	}
	other, recoded, err := e.append(s)
	if err == nil && other != nil && !recoded {
		// The sample doesn't fit in the chunk. Start a new chunk with it. A chunk that begins with the sample keeps the
		// sample's reset hint; the chunk that append returned may have another hint.
		if err = e.begin(want); err == nil {
			other, _, err = e.append(s)
		}
	}
	if err != nil {
		return err
	}
	m := e.last()
	if other != nil {
		m.Chunk = other
	}
	if e.n == 0 {
		m.MinTime = s.t
	}
	m.MaxTime = s.t
	e.n++
	return nil
}

func (e *encoder) last() *chunks.Meta { return &e.metas[len(e.metas)-1] }

func (e *encoder) begin(enc chunkenc.Encoding) error {
	c, err := chunkenc.NewEmptyChunk(enc)
	if err != nil {
		return err
	}
	if e.app, err = c.Appender(); err != nil {
		return err
	}
	e.metas, e.n = append(e.metas, chunks.Meta{Chunk: c}), 0
	return nil
}

// append appends a sample. For a histogram it may return another chunk. If recoded is set, the other chunk contains all
// samples of the current chunk and the new sample, and replaces the current chunk. Otherwise the other chunk contains
// only the new sample.
func (e *encoder) append(s *sample) (other chunkenc.Chunk, recoded bool, err error) {
	switch {
	case s.h == nil:
		e.app.Append(s.st, s.t, s.v)
	case s.h.Int != nil: // an appender may modify its argument
		other, recoded, e.app, err = e.app.AppendHistogram(nil, s.st, s.t, s.h.Int.Copy(), false)
	default:
		other, recoded, e.app, err = e.app.AppendFloatHistogram(nil, s.st, s.t, s.h.Float.Copy(), false)
	}
	return other, recoded, err
}
