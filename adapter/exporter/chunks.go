package exporter

import (
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/cassia-db/cassia/storage/chunk"
)

// chunkSamples is how many samples Prometheus puts into a chunk.
const chunkSamples = 120

// encoder encodes samples of a series as Prometheus' chunks.
type encoder struct {
	// starts keeps start timestamps.
	starts bool
	metas  []chunks.Meta
	app    chunkenc.Appender
	n      int // in the last chunk
}

// sample is one of either kind.
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

// encode returns the chunks of samples in order, which are good until the next call's are asked for.
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

// add appends a sample to the last chunk, or to a new one.
func (e *encoder) add(s *sample) error {
	want := s.encoding(e.starts)
	if e.n == 0 || e.n >= chunkSamples || e.last().Chunk.Encoding() != want {
		if err := e.begin(want); err != nil {
			return err
		}
	}
	other, recoded, err := e.append(s)
	if err == nil && other != nil && !recoded {
		// The sample doesn't fit there. A chunk that begins with it, made anew, has the reset hint of the sample, where the
		// one that is offered may have another.
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

// append appends a sample. A histogram may need another chunk: one that has all of this one's samples, too, if recoded.
func (e *encoder) append(s *sample) (other chunkenc.Chunk, recoded bool, err error) {
	switch {
	case s.h == nil:
		e.app.Append(s.st, s.t, s.v)
	case s.h.Int != nil: // An appender may change what it is given.
		other, recoded, e.app, err = e.app.AppendHistogram(nil, s.st, s.t, s.h.Int.Copy(), false)
	default:
		other, recoded, e.app, err = e.app.AppendFloatHistogram(nil, s.st, s.t, s.h.Float.Copy(), false)
	}
	return other, recoded, err
}
