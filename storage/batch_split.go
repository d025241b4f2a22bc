package storage

import (
	"math"

	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/head"
)

// Extent returns the numbers of samples and exemplars in the batch and their time range. Extent.Newest is the largest
// of the samples' timestamps that aren't after limit.
func (b *Batch) Extent(limit int64) ha.Extent {
	x := ha.Extent{
		Samples: len(b.entries), Exemplars: len(b.exemplars), MinT: math.MaxInt64, MaxT: math.MinInt64,
		Newest: math.MinInt64, Median: ha.MedianTime(len(b.entries), func(i int) int64 { return b.entries[i].T }),
	}
	for i := range b.entries {
		t := b.entries[i].T
		x.MinT, x.MaxT = min(x.MinT, t), max(x.MaxT, t)
		if t <= limit {
			x.Newest = max(x.Newest, t)
		}
	}
	x.Ahead = len(b.entries) > 0 && x.MaxT > limit
	for i := range b.exemplars {
		x.MinT, x.MaxT = min(x.MinT, b.exemplars[i].T), max(x.MaxT, b.exemplars[i].T)
	}
	return x
}

// Split keeps in the batch only the samples and exemplars for which of returns ha.StoreSample; of receives their
// timestamp. It adds those to be held to held, and drops the others. dropped is the number of dropped samples, without
// exemplars.
func (b *Batch) Split(of func(t int64) ha.Disposition, held *ha.HeldBuilder) (dropped int) {
	entries, exemplars := b.entries[:0], b.exemplars[:0]
	for i := range b.entries {
		e := b.entries[i]
		switch of(e.T) {
		case ha.StoreSample:
			entries = append(entries, e)
			continue
		case ha.HoldSample:
			if e.Hist != nil {
				held.Histogram(e.Series, e.T, e.Hist)
			} else {
				held.Float(e.Series, e.T, e.ST, e.V)
			}
		case ha.DropSample:
			dropped++
		}
		b.bytes -= queuedBytes + int64(len(e.Hist))
		if e.Hist != nil {
			b.histograms--
		}
	}
	for i := range b.exemplars {
		e := b.exemplars[i]
		switch of(e.T) {
		case ha.StoreSample:
			exemplars = append(exemplars, e)
			continue
		case ha.HoldSample:
			held.Exemplar(e.Series, e.T, e.Data)
		case ha.DropSample:
		}
		b.bytes -= queuedBytes + int64(len(e.Data))
	}
	clear(b.entries[len(entries):])
	clear(b.exemplars[len(exemplars):])
	b.entries, b.exemplars = entries, exemplars
	return dropped
}

// encodedHistogram adds a histogram sample that is already encoded. It copies encoded.
func (b *Batch) encodedHistogram(s *Series, t int64, encoded []byte) {
	b.entries = append(b.entries, head.Sample{Series: s, T: t, Hist: append([]byte(nil), encoded...)})
	b.bytes += queuedBytes + int64(len(encoded))
	b.histograms++
}

// encodedExemplar adds an exemplar that is already encoded. It copies encoded.
func (b *Batch) encodedExemplar(s *Series, t int64, encoded []byte) {
	b.exemplars = append(b.exemplars, head.EncodedExemplar{Series: s, T: t, Data: append([]byte(nil), encoded...)})
	b.bytes += queuedBytes + int64(len(encoded))
}
