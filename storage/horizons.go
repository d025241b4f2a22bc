package storage

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// wanted returns the newest timestamp that isn't to be kept any more, milliseconds: where a horizon should go
// by the flags.
func (s *Store) wanted(kept time.Duration) int64 {
	if kept == 0 {
		return never
	}
	now, _ := s.clock.Times()
	return retention.PastAt(now, kept)
}

// Horizon returns the newest timestamp that the default class' retention doesn't ask to be kept at a resolution,
// milliseconds. HorizonsOf returns up to where rows of a tenant's classes are hidden or gone.
func (s *Store) Horizon(res rollup.Resolution) int64 {
	return s.wanted(s.retention.Keep("", retention.DefaultClass).Of(res))
}

// Horizons are until when rows of a class of a tenant's are hidden or gone, as far as a query is concerned: where there is a gap, it is
// one that touches the query's range of time. A query for a part of that range sees no less.
type Horizons struct {
	// Class is its bit in Query.Classes.
	Class uint64
	// At are the newest timestamps that aren't shown, by resolution, milliseconds; -MaxTime: all is.
	At [3]int64
	// held is the newest timestamp of which raw rows may be missing: those after it stand, also where At hides them.
	held int64
}

// OlderQueries returns the queries for the buckets of the times of which a query finds no samples any more, class by class, with
// these columns.
func OlderQueries(q Query, horizons []Horizons, columns rollup.Columns) (list []Query) {
	for _, h := range horizons {
		for _, res := range []rollup.Resolution{rollup.OneHour, rollup.FiveMinutes} {
			older := q
			older.MinT, older.MaxT = max(q.MinT, h.At[res]+1), min(q.MaxT, h.At[res-1], h.At[rollup.Raw])
			older.Classes, older.Resolution, older.Columns, older.LabelsOnly = h.Class, res, columns, false
			if older.MinT <= older.MaxT {
				list = append(list, older)
			}
		}
	}
	return list
}

// horizons returns those of all classes of a tenant, by their numbers, for what asks for the times from minT to maxT.
func (s *Store) horizons(ctx context.Context, tenant string, minT, maxT int64) ([]Horizons, error) {
	list, _, err := s.horizonsNow(ctx, tenant, minT, maxT)
	return list, err
}

// horizonsNow is horizons that also returns the later of the clock's times, see membership.CheckedClock.Bounds: samples that
// a batch accepts are shown.
func (s *Store) horizonsNow(ctx context.Context, tenant string, minT, maxT int64) ([]Horizons, time.Time, error) {
	t, err := s.horizonsOf(ctx, tenant)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, later := s.shownBy()
	list := make([]Horizons, s.retention.Classes())
	for class := range list {
		list[class].Class = 1 << class
		for res := range list[class].At {
			list[class].At[res] = s.shownAfter(now, t, tenant, int64(class), rollup.Resolution(res), minT, maxT)
		}
		list[class].held = t.lacking(int64(class), rollup.Raw)
		if s.expiring { // Hidden rows may expire at any moment.
			list[class].held = list[class].At[rollup.Raw]
		}
	}
	return list, later, nil
}

// shownBy returns the clock's times by which samples are shown, see membership.CheckedClock.Bounds. Where rows expire by themselves, a clock that isn't trusted,
// and may be far behind, doesn't count: hidden rows may have expired.
func (s *Store) shownBy() (now, later time.Time) {
	now, later = s.clock.Bounds()
	if _, doubted := s.clock.Off(); doubted && s.expiring {
		now = s.clock.EngineTime()
	}
	return now, later
}

// shownAfter returns the newest timestamp that isn't shown of a class at a resolution to what asks for the times from minT to maxT.
// Flags and the clock only move it within the window after the stored HiddenMS: only a changed row hides more. It hides less while the clock is
// behind the one by which HiddenMS was stored: what a batch accepts is shown, and all rows after LackingMS stand.
func (s *Store) shownAfter(now time.Time, t *tenantHorizons, tenant string, class int64, res rollup.Resolution, minT, maxT int64) int64 {
	at := retention.PastAt(now, s.retention.Keep(tenant, class).Of(res))
	if h := t.of(class, res); h != nil {
		at = min(at, s.period.WindowEnd(s.period.WindowAt(res, max(h.HiddenMS, never)+1)))
		at = max(at, s.hiddenAt(now, h))
	}
	return max(at, t.lacking(class, res), s.holeEnd(t, class, res, minT, maxT))
}

// hiddenAt returns HiddenMS, or up to where the retention that it goes by hides at a time of the clock's, if that is less.
func (s *Store) hiddenAt(now time.Time, h *horizon) int64 {
	by := int64(never)
	if h.KeptMS != 0 {
		by = s.startOf(s.period.WindowAt(h.Resolution, retention.PastAt(now, time.Duration(h.KeptMS)*time.Millisecond)+1))
	}
	return min(h.HiddenMS, max(h.LackingMS, by))
}

// droppedAhead returns up to where raw rows of a class were dropped, if only a clock can have done that which was ahead; otherwise never.
func (s *Store) droppedAhead(now time.Time, t *tenantHorizons, class int64) int64 {
	if t == nil {
		return never
	}
	if to := t.dropped(class, rollup.Raw); to > retention.PastAt(now, retention.Grace) {
		return to
	}
	return never
}

// isGone reports whether rows of a class may be missing in the window of a resolution that holds a slot, as far as this process has read: see
// horizonsOf, fixSlot.
func (s *Store) isGone(res rollup.Resolution, slot int64, tenant string, class int64) bool {
	window, t := s.period.WindowOfSlot(res, slot), s.horizonMemory.get(tenant)
	if s.expiring {
		return s.hasExpired(t, tenant, class, window)
	}
	if t == nil {
		return false
	}
	h := t.of(class, res)
	return h != nil && h.lacks(s.period.WindowEnd(window))
}

// expirer is implemented by engines whose rows may vanish by themselves, at the time that they were written with.
type expirer interface{ ExpiresRows() bool }

// HorizonsOf returns the horizons of the classes that have series which a query matches, in its range of time: at
// least one. Where all of the range is kept in every class, or there is only one, no rows are read, and all classes
// are returned.
func (s *Store) HorizonsOf(ctx context.Context, q Query) ([]Horizons, error) {
	all, err := s.horizons(ctx, q.Tenant, q.MinT, q.MaxT)
	if err != nil {
		return nil, err
	}
	if len(all) == 1 || !slices.ContainsFunc(all, func(h Horizons) bool { return q.MinT <= h.At[rollup.Raw] }) {
		return all, nil
	}
	q.LabelsOnly, q.Limit, q.Sorted, q.Resolution = true, 0, false, rollup.Raw
	found, err := s.classesOf(ctx, q, all)
	if err != nil {
		return nil, err
	}
	if found == 0 {
		return all[:1], nil
	}
	return slices.DeleteFunc(all, func(h Horizons) bool { return h.Class&found == 0 }), nil
}

// HorizonsBySeries returns a function that returns the horizons of the class of a tenant's series at a time, milliseconds, for queries of the times from minT
// to maxT.
func (s *Store) HorizonsBySeries(ctx context.Context, tenant string, minT, maxT int64) (func(ls labels.Labels, t int64) (Horizons, error), error) {
	all, err := s.horizons(ctx, tenant, minT, maxT)
	if err != nil {
		return nil, err
	}
	days := dayLists{s: s, tenant: tenant}
	return func(ls labels.Labels, t int64) (Horizons, error) {
		list, err := days.at(ctx, t)
		class := retention.DefaultClass
		if err == nil {
			class = int(list.Find(ls))
		}
		if class >= len(all) { // Another process has added it since.
			class = retention.DefaultClass
		}
		return all[class], err
	}, nil
}

// classesOf returns the bits of those classes that have series which a query matches. Sealed series are searched only if the unsealed
// ones aren't in all of the classes.
func (s *Store) classesOf(ctx context.Context, q Query, all []Horizons) (found uint64, err error) {
	if err := s.Ready(); err != nil {
		return 0, err
	}
	r, err := s.newRequest(ctx, q)
	if err != nil {
		return 0, err
	}
	var wanted uint64
	for _, h := range all {
		wanted |= h.Class
	}
	if r.minT <= r.maxT {
		if found, err = r.openClasses(ctx, wanted&r.classes); err != nil || found == wanted {
			return found, err
		}
	}
	q.part = inSealed
	series, err := s.Select(ctx, q)
	for _, x := range series {
		for _, p := range x.sel.parts[x.from:x.to] {
			found |= 1 << x.sel.sources[p.source].class
		}
	}
	return found, err
}
