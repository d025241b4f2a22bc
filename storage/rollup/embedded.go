package rollup

import (
	"fmt"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/chunk"
)

// histograms writes the columns of histograms.
func (e *encoder) histograms(b *Buckets) {
	var ends, corrections chunk.Samples
	for i, h := range b.Histograms {
		if h == nil {
			continue
		}
		ends.AppendHistogram(chunk.Histogram{T: 2 * int64(i), Float: h.First})
		if b.Count[i] > 1 {
			ends.AppendHistogram(chunk.Histogram{T: 2*int64(i) + 1, Float: h.Last})
		}
		if h.Correction != nil {
			corrections.AppendHistogram(chunk.Histogram{T: int64(i), Float: h.Correction})
		}
	}
	e.samples(columnHistograms, &ends)
	e.samples(columnCorrections, &corrections)
}

func (e *encoder) samples(id int, s *chunk.Samples) {
	from := len(e.body)
	if s.Len() > 0 {
		e.body = chunk.AppendChunk(e.body, s)
	}
	e.put(id, from)
}

// histograms appends the column of histograms: of each the columns that want selects.
func (d *decoder) histograms(want Columns) error {
	into := d.into
	any := d.e.has(columnHistograms)
	if !any && into.Histograms == nil {
		if d.e.has(columnCorrections) {
			return fmt.Errorf("%w: corrections without histograms", ErrCorrupt)
		}
		return nil
	}
	clear(tail(&into.Histograms, d.at-len(into.Histograms))) // those of buckets before
	all := tail(&into.Histograms, d.n)
	clear(all)
	for i, flags := range into.Flags[d.at:] {
		if flags&HasHistograms != 0 {
			all[i] = &Histograms{}
		}
	}
	if any && want&(ColumnFirst|ColumnLast) != 0 {
		if err := d.endHistograms(all, want); err != nil {
			return err
		}
	}
	if d.e.has(columnCorrections) && want&ColumnCorrection != 0 {
		return d.eachHistogram(columnCorrections, all, 1, func(h *Histograms, _ int64, f *histogram.FloatHistogram) {
			h.Correction = f
		})
	}
	return nil
}

// endHistograms sets the first and the last histograms.
func (d *decoder) endHistograms(all []*Histograms, want Columns) error {
	err := d.eachHistogram(columnHistograms, all, 2, func(h *Histograms, side int64, f *histogram.FloatHistogram) {
		if side == 0 {
			h.First = f
		}
		h.Last = f
	})
	if err != nil {
		return err
	}
	for i, h := range all {
		if h == nil {
			continue
		}
		if h.First == nil {
			return fmt.Errorf("%w: bucket %d has no histogram", ErrCorrupt, i)
		}
		if want&ColumnFirst == 0 {
			h.First = nil
		}
		if want&ColumnLast == 0 {
			h.Last = nil
		}
	}
	return nil
}

// eachHistogram hands over the histograms of a column, of which each bucket has up to sides.
func (d *decoder) eachHistogram(id int, all []*Histograms, sides int64,
	take func(h *Histograms, side int64, f *histogram.FloatHistogram)) error {
	var s chunk.Samples
	if err := chunk.Decode(d.e.column(id), &s); err != nil {
		return fmt.Errorf("%w: histograms: %w", ErrCorrupt, err)
	}
	if len(s.T) > 0 {
		return fmt.Errorf("%w: floats among histograms", ErrCorrupt)
	}
	for _, h := range s.H {
		if h.T < 0 || h.T >= sides*int64(len(all)) || all[h.T/sides] == nil || h.Float == nil {
			return fmt.Errorf("%w: a histogram without a bucket, %d", ErrCorrupt, h.T)
		}
		take(all[h.T/sides], h.T%sides, h.Float)
	}
	return nil
}
