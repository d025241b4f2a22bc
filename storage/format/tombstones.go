package format

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Tombstones are deletes of one tenant, ordered by id.
type Tombstones []*Tombstone

// Filter returns the deletes for which keep returns true.
func (ds Tombstones) Filter(keep func(*Tombstone) bool) (some Tombstones) {
	for _, d := range ds {
		if keep(d) {
			some = append(some, d)
		}
	}
	return some
}

// OfSeries returns the deletes whose matchers match a series.
func (ds Tombstones) OfSeries(ls labels.Labels) Tombstones {
	if len(ds) == 0 {
		return nil
	}
	return ds.Filter(func(d *Tombstone) bool { return MatchesAll(ls, d.Matchers) })
}

// InSlot returns the deletes that touch a slot.
func (ds Tombstones) InSlot(p *Periods, slot int64) Tombstones {
	return ds.Filter(func(d *Tombstone) bool { return d.TouchesSlot(p, slot) })
}

// OfMetric returns the deletes that may match series of a metric, because their matchers of names match.
func (ds Tombstones) OfMetric(metric string) Tombstones {
	return ds.Filter(func(d *Tombstone) bool { return MatchesName(d.Matchers, metric) })
}

// InForce returns the deletes that are in force: all except the announced ones.
func (ds Tombstones) InForce() Tombstones {
	if !slices.ContainsFunc(ds, func(d *Tombstone) bool { return d.Announced }) {
		return ds
	}
	return ds.Filter(func(d *Tombstone) bool { return !d.Announced })
}

// Has reports whether there is a delete with an id.
func (ds Tombstones) Has(id string) bool {
	return slices.ContainsFunc(ds, func(d *Tombstone) bool { return d.ID == id })
}

// Sort orders the deletes by id.
func (ds Tombstones) Sort() {
	slices.SortFunc(ds, func(a, b *Tombstone) int { return strings.Compare(a.ID, b.ID) })
}

// IDs returns the ids of all deletes.
func (ds Tombstones) IDs() TombstoneIDs {
	var ids TombstoneIDs
	for _, d := range ds {
		ids = append(ids, d.ID...)
	}
	return ids
}

// Hides reports whether samples at a timestamp are deleted.
func (ds Tombstones) Hides(t int64) bool {
	return slices.ContainsFunc(ds, func(d *Tombstone) bool { return t >= d.Start && t <= d.End })
}

// RemoveDeleted removes deleted samples.
func (ds Tombstones) RemoveDeleted(s *chunk.Samples) { RemoveSamples(s, ds.Hides) }

// RemoveSamples removes the samples at timestamps for which gone returns true.
func RemoveSamples(s *chunk.Samples, gone func(t int64) bool) {
	if !slices.ContainsFunc(s.T, gone) && !slices.ContainsFunc(s.H, func(h chunk.Histogram) bool { return gone(h.T) }) {
		return
	}
	var left chunk.Samples
	for i, t := range s.T {
		if gone(t) {
			continue
		}
		st := int64(0)
		if len(s.ST) > 0 {
			st = s.ST[i]
		}
		left.AppendFloat(t, st, s.V[i])
	}
	for _, h := range s.H {
		if !gone(h.T) {
			left.AppendHistogram(h)
		}
	}
	*s = left
}

// TrimBuckets removes the buckets whose samples are all deleted. due(end) returns the deletes to apply to the buckets
// that end at end; a bucket is removed only if a single one of them covers all its samples. A bucket that is only
// partly deleted is kept and gets the flag HasDeleted, because its deleted samples can't be separated. TrimBuckets
// reports whether it changed b. b must have all columns.
func TrimBuckets(b *rollup.Buckets, due func(end int64) Tombstones) (changed bool) {
	gone := map[int64]bool{}
	for i, end := range b.End {
		first, last := b.TimesOf(i)
		for _, d := range due(end) {
			switch {
			case d.Start <= first && last <= d.End:
				gone[end] = true
			case d.Start <= last && first <= d.End && b.Flags[i]&rollup.HasDeleted == 0:
				b.Flags[i] |= rollup.HasDeleted
				changed = true
			}
		}
	}
	b.Delete(0, func(end int64) bool { return gone[end] })
	return changed || len(gone) > 0
}

// HidesBucket reports whether any of the deletes covers the whole bucket. It considers only deletes for which counts
// returns true.
func (ds Tombstones) HidesBucket(end, width int64, counts func(*Tombstone) bool) bool {
	for _, d := range ds {
		if d.Covers(end-width, end) && counts(d) {
			return true
		}
	}
	return false
}

// TouchesBucket reports whether a delete covers any time of a bucket.
func (ds Tombstones) TouchesBucket(end, width int64) bool {
	return slices.ContainsFunc(ds, func(d *Tombstone) bool { return d.Touches(end-width, end) })
}
