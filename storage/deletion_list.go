package storage

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// deletions are deletes of one tenant, in the order of their ids.
type deletions []*deletion

// where returns those for which keep holds.
func (ds deletions) where(keep func(*deletion) bool) (some deletions) {
	for _, d := range ds {
		if keep(d) {
			some = append(some, d)
		}
	}
	return some
}

// of returns those of a series.
func (ds deletions) of(ls labels.Labels) deletions {
	if len(ds) == 0 {
		return nil
	}
	return ds.where(func(d *deletion) bool { return matchesAll(ls, d.matchers) })
}

// inSlot returns those that touch a slot.
func (ds deletions) inSlot(p *periods, slot int64) deletions {
	return ds.where(func(d *deletion) bool { return d.touchesSlot(p, slot) })
}

// mayMatch returns those that may be about series of a metric.
func (ds deletions) mayMatch(metric string) deletions {
	return ds.where(func(d *deletion) bool { return nameMatches(d.matchers, metric) })
}

// inForce returns those that hide anything.
func (ds deletions) inForce() deletions {
	if !slices.ContainsFunc(ds, func(d *deletion) bool { return d.announced }) {
		return ds
	}
	return ds.where(func(d *deletion) bool { return !d.announced })
}

func (ds deletions) has(id string) bool {
	return slices.ContainsFunc(ds, func(d *deletion) bool { return d.id == id })
}

func (ds deletions) sort() {
	slices.SortFunc(ds, func(a, b *deletion) int { return strings.Compare(a.id, b.id) })
}

// ids returns the names of all, as a chunk that is exempt from them has them.
func (ds deletions) ids() exempt {
	var ids exempt
	for _, d := range ds {
		ids = append(ids, d.id...)
	}
	return ids
}

// hides says whether what is stored at a time is deleted.
func (ds deletions) hides(t int64) bool {
	return slices.ContainsFunc(ds, func(d *deletion) bool { return t >= d.start && t <= d.end })
}

// hide removes what is deleted from samples.
func (ds deletions) hide(s *chunk.Samples) { remove(s, ds.hides) }

// remove removes the samples at times for which gone holds.
func remove(s *chunk.Samples, gone func(t int64) bool) {
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

// hideBuckets removes the buckets from an index on of which all is deleted, and says whether there were any. What
// a delete cuts stays: a bucket can't be taken apart.
func (ds deletions) hideBuckets(b *rollup.Buckets, from int, width int64) bool {
	gone := func(end int64) bool {
		return slices.ContainsFunc(ds, func(d *deletion) bool { return d.covers(end-width, end) })
	}
	if len(ds) == 0 || !slices.ContainsFunc(b.End[from:], gone) {
		return false
	}
	b.Delete(from, gone)
	return true
}

// hideBucket says whether all of a bucket is deleted by one of those that count.
func (ds deletions) hideBucket(end, width int64, counts func(*deletion) bool) bool {
	for _, d := range ds {
		if d.covers(end-width, end) && counts(d) {
			return true
		}
	}
	return false
}

// touchBucket says whether one of them is about any time of a bucket.
func (ds deletions) touchBucket(end, width int64) bool {
	return slices.ContainsFunc(ds, func(d *deletion) bool { return d.touches(end-width, end) })
}
