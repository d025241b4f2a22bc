package rollup

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup/layouts"
)

// encodeHistograms writes the columns of histograms.
func (e *encoder) encodeHistograms(b *Buckets) {
	if b.Histograms == nil {
		return
	}
	var ends, corrections, sums, seconds chunk.Samples
	words, counts := e.zeros(len(b.End))[:0], e.zeros(len(b.End))[:0]
	for i, h := range b.Histograms {
		if h == nil {
			continue
		}
		ends.AppendHistogram(chunk.Histogram{T: 2 * int64(i), Float: h.First})
		if h.Count > 1 {
			ends.AppendHistogram(chunk.Histogram{T: 2*int64(i) + 1, Float: h.Last})
		}
		if h.Correction != nil {
			corrections.AppendHistogram(chunk.Histogram{T: int64(i), Float: h.Correction})
		}
		if h.Second != nil {
			seconds.AppendHistogram(chunk.Histogram{T: int64(i), Float: h.Second})
		}
		if h.Sum != nil && h.Count > 1 {
			sums.AppendHistogram(chunk.Histogram{T: int64(i), Float: h.Sum})
		}
		words = append(words, int64(asCount(h.FirstReset)|asCount(h.MixedKinds)<<1|asCount(h.SumDropped)<<2|
			asCount(h.HasGauges)<<3|asCount(h.FirstStartReset)<<4|uint32(h.Coarser)<<5|
			uint32(h.Reconciled)<<13|uint32(h.Layouts)<<16))
		if b.Flags[i]&hasFloatsToo != 0 {
			counts = append(counts, int64(h.Count))
		}
	}
	e.encodeSamples(columnHistograms, &ends)
	e.encodeSamples(columnCorrections, &corrections)
	e.encodeSamples(columnHistogramSums, &sums)
	e.encodeSamples(columnSeconds, &seconds)
	e.ints(columnLayouts, words)
	e.ints(columnHistogramCounts, counts)
}

func (e *encoder) encodeSamples(id int, s *chunk.Samples) {
	from := len(e.body)
	if s.Len() > 0 {
		e.body = chunk.AppendChunk(e.body, s)
	}
	e.put(id, from)
}

// decodeHistograms appends the histograms selected by want, with their other fields.
func (d *decoder) decodeHistograms(want Columns) error {
	into := d.into
	any := d.e.has(columnHistograms)
	if !any && into.Histograms == nil {
		if d.e.has(columnCorrections) || d.e.has(columnHistogramSums) || d.e.has(columnSeconds) ||
			d.e.has(columnStartCorrections) {
			return fmt.Errorf("%w: sums of histograms without histograms", ErrCorrupt)
		}
		return nil
	}
	clear(extendTail(&into.Histograms, d.at-len(into.Histograms))) // entries of earlier buckets
	all := extendTail(&into.Histograms, d.n)
	clear(all)
	for i, flags := range into.Flags[d.at:] {
		if flags&HasHistograms != 0 {
			all[i] = &Histograms{}
		}
	}
	if err := d.decodeLayouts(all, want); err != nil || !any {
		return err
	}
	if want&(ColumnFirst|ColumnLast|ColumnSum) != 0 {
		if err := d.endHistograms(all, want); err != nil {
			return err
		}
	}
	if want&ColumnSum != 0 && d.e.has(columnHistogramSums) {
		err := d.eachHistogram(columnHistogramSums, all, 1, func(h *Histograms, _ int64, f *histogram.FloatHistogram) {
			h.Sum = f
		})
		if err != nil {
			return err
		}
	}
	if d.e.has(columnSeconds) {
		err := d.eachHistogram(columnSeconds, all, 1, func(h *Histograms, _ int64, f *histogram.FloatHistogram) {
			h.Second = f
		})
		if err != nil {
			return err
		}
	}
	if want&ColumnCorrection != 0 && want&ColumnStarts != 0 && d.e.has(columnStartCorrections) {
		err := d.eachHistogram(columnStartCorrections, all, 1,
			func(h *Histograms, _ int64, f *histogram.FloatHistogram) { h.StartCorrection = f })
		if err != nil {
			return err
		}
	}
	if want&ColumnCorrection != 0 && d.e.has(columnCorrections) {
		return d.eachHistogram(columnCorrections, all, 1, func(h *Histograms, _ int64, f *histogram.FloatHistogram) {
			h.Correction = f
		})
	}
	return nil
}

// decodeLayouts sets the flags, Coarser and Count of each bucket's histograms.
func (d *decoder) decodeLayouts(all []*Histograms, want Columns) error {
	x := make([]int64, 2*len(all))
	counts, words := x[:len(all)], x[len(all):]
	n, both := 0, 0
	for i, h := range all {
		if h == nil {
			continue
		}
		n++
		if d.into.Flags[d.at+i]&hasFloatsToo != 0 {
			both++
		}
	}
	if err := decodeInts(d.e.column(columnLayouts), words[:n], "layouts of histograms"); err != nil {
		return err
	}
	if err := decodeInts(d.e.column(columnHistogramCounts), counts[:both], "numbers of histograms"); err != nil {
		return err
	}
	samples := make([]uint32, len(all))
	if want&ColumnCount != 0 {
		copy(samples, d.into.Count[d.at:])
	}
	for i, h := range all {
		if h == nil {
			continue
		}
		layout := words[0]
		words = words[1:]
		if layout < 0 || layout > int64(layouts.All)<<16|int64(allReconciled)<<13|math.MaxUint8<<5|31 {
			return fmt.Errorf("%w: invalid layout %#x of histograms", ErrCorrupt, layout)
		}
		h.FirstReset, h.MixedKinds, h.SumDropped = layout&1 != 0, layout&2 != 0, layout&4 != 0
		h.HasGauges, h.FirstStartReset, h.Coarser = layout&8 != 0, layout&16 != 0, uint8(layout>>5)
		h.Reconciled, h.Layouts = Reconciled(layout>>13)&allReconciled, layouts.Traits(layout>>16)
		h.Count = samples[i]
		if want&ColumnCount != 0 && d.into.Flags[d.at+i]&hasFloatsToo != 0 {
			if counts[0] <= 0 || counts[0] >= int64(samples[i]) {
				return fmt.Errorf("%w: %d histograms among %d samples", ErrCorrupt, counts[0], samples[i])
			}
			h.Count = uint32(counts[0])
			counts = counts[1:]
		}
	}
	return nil
}

// endHistograms sets the first and the last histograms, and the sum of buckets with one histogram.
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
		if h.Last == h.First && want&ColumnSum != 0 && !h.SumDropped && d.into.Flags[d.at+i]&hasFloatsToo == 0 {
			h.Sum = h.First
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

// eachHistogram calls take for each histogram of a column, which has up to sides histograms per bucket.
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
			return fmt.Errorf("%w: histogram %d belongs to no bucket", ErrCorrupt, h.T)
		}
		take(all[h.T/sides], h.T%sides, h.Float)
	}
	return nil
}
