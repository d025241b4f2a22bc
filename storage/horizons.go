package storage

import (
	"context"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/rollup"
)

// horizon returns the newest timestamp that is no longer kept, milliseconds.
func (s *Store) horizon(kept time.Duration) int64 {
	if kept == 0 {
		return -maxTime
	}
	now, _ := s.times()
	return now.Add(-kept).UnixMilli()
}

// Horizon returns the newest timestamp that is no longer kept at a resolution in the default class, milliseconds.
// A tenant's own retention and other classes may say otherwise: see Horizons.
func (s *Store) Horizon(res rollup.Resolution) int64 { return s.horizon(s.classes.base.Of(res)) }

// Horizons tells until when rows of a class of a tenant's are gone.
type Horizons struct {
	// Class is the bit that Query.Classes knows it by.
	Class uint64
	// At are the newest timestamps that are no longer kept, by resolution, milliseconds; -MaxTime: all is kept.
	At [3]int64
}

// horizons returns those of all classes of a tenant, by their numbers.
func (s *Store) horizons(tenant string) []Horizons {
	list := make([]Horizons, s.classes.count())
	for class := range list {
		keep := s.classes.keep(tenant, int64(class))
		list[class].Class = 1 << class
		for res := range list[class].At {
			list[class].At[res] = s.horizon(keep.Of(rollup.Resolution(res)))
		}
	}
	return list
}

// HorizonsOf tells the horizons of the classes that have series which a query matches, in its range of time: at
// least one. Where all of the range is kept in every class, or there is only one, no rows are read, and all classes
// are told of.
func (s *Store) HorizonsOf(ctx context.Context, q Query) ([]Horizons, error) {
	all := s.horizons(q.Tenant)
	if len(all) == 1 || !slices.ContainsFunc(all, func(h Horizons) bool { return q.MinT <= h.At[rollup.Raw] }) {
		return all, nil
	}
	q.LabelsOnly, q.Limit, q.Sorted, q.Resolution = true, 0, false, rollup.Raw
	series, err := s.Select(ctx, q)
	if err != nil {
		return nil, err
	}
	var found uint64
	for _, x := range series {
		found |= x.classes()
	}
	if found == 0 {
		return all[:1], nil
	}
	return slices.DeleteFunc(all, func(h Horizons) bool { return h.Class&found == 0 }), nil
}

// classes returns the bits of the classes that the series was found in.
func (s *SelectedSeries) classes() (bits uint64) {
	for _, p := range s.sel.parts[s.from:s.to] {
		if p.source == inHead {
			bits |= 1 << s.sel.open[p.at].class
		} else {
			bits |= 1 << s.sel.sources[p.source].class
		}
	}
	return bits
}
