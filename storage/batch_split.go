package storage

import (
	"math"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/ha"
)

// Labels returns the labels of the series.
func (s *Series) Labels() labels.Labels { return s.labels }

// Extent returns what the batch has; limit is that of ha.Extent.Newest.
func (b *Batch) Extent(limit int64) ha.Extent {
	x := ha.Extent{Samples: len(b.entries), Exemplars: len(b.exemplars), MinT: math.MaxInt64, MaxT: math.MinInt64, Newest: math.MinInt64}
	for i := range b.entries {
		t := b.entries[i].t
		x.MinT, x.MaxT = min(x.MinT, t), max(x.MaxT, t)
		if t <= limit {
			x.Newest = max(x.Newest, t)
		}
	}
	x.Ahead = len(b.entries) > 0 && x.MaxT > limit
	for i := range b.exemplars {
		x.MinT, x.MaxT = min(x.MinT, b.exemplars[i].t), max(x.MaxT, b.exemplars[i].t)
	}
	return x
}

// Split leaves in the batch what is to be stored, adds to held what is to be held, and returns how many samples of the others there
// were.
func (b *Batch) Split(of func(t int64) ha.Disposition, held *ha.HeldBuilder) (dropped int) {
	entries, exemplars := b.entries[:0], b.exemplars[:0]
	for i := range b.entries {
		e := b.entries[i]
		switch of(e.t) {
		case ha.Store:
			entries = append(entries, e)
			continue
		case ha.Hold:
			if e.hist != nil {
				held.Histogram(e.series, e.t, e.hist)
			} else {
				held.Float(e.series, e.t, e.st, e.v)
			}
		case ha.Drop:
			dropped++
		}
		b.bytes -= queuedBytes + int64(len(e.hist))
		if e.hist != nil {
			b.histograms--
		}
	}
	for i := range b.exemplars {
		e := b.exemplars[i]
		switch of(e.t) {
		case ha.Store:
			exemplars = append(exemplars, e)
			continue
		case ha.Hold:
			held.Exemplar(e.series, e.t, e.data)
		case ha.Drop:
		}
		b.bytes -= queuedBytes + int64(len(e.data))
	}
	clear(b.entries[len(entries):])
	clear(b.exemplars[len(exemplars):])
	b.entries, b.exemplars = entries, exemplars
	return dropped
}

// encodedHistogram adds a histogram sample in its encoded form, which it copies.
func (b *Batch) encodedHistogram(s *Series, t int64, encoded []byte) {
	b.entries = append(b.entries, entry{series: s, t: t, hist: append([]byte(nil), encoded...)})
	b.bytes += queuedBytes + int64(len(encoded))
	b.histograms++
}

// encodedExemplar adds an exemplar in its encoded form, which it copies.
func (b *Batch) encodedExemplar(s *Series, t int64, encoded []byte) {
	b.exemplars = append(b.exemplars, exemplarEntry{s, t, append([]byte(nil), encoded...)})
	b.bytes += queuedBytes + int64(len(encoded))
}
