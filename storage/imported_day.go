package storage

import (
	"errors"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// importedDay is a series with its samples or buckets of one day.
type importedDay struct {
	collectedSeries
	samples chunk.Samples
	buckets rollup.Buckets
}

// importedSlot is the part of an importedDay in one slot.
type importedSlot struct {
	samples chunk.Samples
	buckets rollup.Buckets
}

// len returns the number of samples, including the samples that buckets aggregate.
func (c *importedDay) len() int { return c.samples.Len() + c.buckets.Samples() }

// eachSlot calls f with the part in each slot, oldest first.
func (c *importedDay) eachSlot(period *format.Periods, f func(slot int64, part *importedSlot) error) error {
	for rest := c.samples; rest.Len() > 0; {
		t, _ := format.TimeBounds(&rest)
		slot := period.SlotOf(t)
		var part importedSlot
		part.samples, rest = cutSamples(rest, period.SlotEnd(slot))
		if err := f(slot, &part); err != nil {
			return err
		}
	}
	return eachRun(&c.buckets, period.SlotOf, func(slot int64, buckets rollup.Buckets) error {
		return f(slot, &importedSlot{buckets: buckets})
	})
}

// eachRun calls f with each run of consecutive buckets that have the same key. The function key returns a bucket's key
// from its end.
func eachRun(b *rollup.Buckets, key func(end int64) int64, f func(key int64, run rollup.Buckets) error) error {
	for from := 0; from < b.Len(); {
		k, to := key(b.End[from]), from+1
		for to < b.Len() && key(b.End[to]) == k {
			to++
		}
		if err := f(k, b.Slice(from, to)); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// encodedBytes estimates the encoded size of the samples or buckets. The estimate is usually too high.
func (c *importedDay) encodedBytes() int64 {
	n := 2*len(c.samples.T) + 16*c.buckets.Len()
	for _, h := range c.samples.H {
		if h.Int != nil {
			n += 16 + 2*(len(h.Int.PositiveBuckets)+len(h.Int.NegativeBuckets))
		} else {
			n += 16 + 4*(len(h.Float.PositiveBuckets)+len(h.Float.NegativeBuckets))
		}
	}
	return int64(n)
}

// errBucketWidth means that imported buckets have a width that isn't stored.
var errBucketWidth = errors.New("storage: imported buckets must be of 5m or 1h")

// addBuckets divides the buckets of a series into days.
func (m *importing) addBuckets(in *ImportedBuckets) error {
	b, width := in.Buckets, in.Resolution.Width()
	if width == 0 {
		return errBucketWidth
	}
	name, ok := m.checkedLabels(in.Labels, b.Samples())
	if !ok {
		return nil
	}
	if err := b.CheckAggregates(width); err != nil {
		m.stats.AddRefusal(in.Labels, b.Samples(), err)
		return nil
	}
	_, now := m.s.clock.Bounds()
	newest := now.Add(MaxAhead).UnixMilli()
	before := b.Samples()
	b.Delete(0, func(end int64) bool { return end-width >= newest || end-width < -format.MaxTime })
	if m.stats.Ahead += before - b.Samples(); b.Len() == 0 {
		return nil
	}
	series, err := m.head.Define(m.tenant, name, nil)
	if err != nil {
		return err
	}
	m.stats.Series++
	dayOf := func(end int64) int64 { return m.s.period.DayOf(m.s.period.SlotOf(end)) }
	return eachRun(b, dayOf, func(_ int64, run rollup.Buckets) error {
		d := m.day(run.End[0], in.Resolution)
		same := d.of[series]
		if same == nil {
			same = &importedDay{collectedSeries: collectedSeries{series: series}, buckets: run}
			d.of[series], d.list = same, append(d.list, same)
			return nil
		}
		var all rollup.Buckets // The import contains this series more than once.
		_, left := rollup.Extend(&all, &same.buckets, &run, width)
		same.buckets = all
		m.stats.RollupsOnly, m.stats.LeftOut = m.stats.RollupsOnly+left, m.stats.LeftOut+left
		return nil
	})
}
