package storage

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/query"
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

// horizonsNow is horizons that also returns the later of the clock's times, see membership.CheckedClock.Bounds: samples that
// a batch accepts are shown.
func (s *Store) horizonsNow(ctx context.Context, tenant string, minT, maxT int64) ([]query.Horizons, time.Time, error) {
	t, err := s.horizonsOf(ctx, tenant)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, later := s.shownBy()
	list := make([]query.Horizons, s.retention.Classes())
	for class := range list {
		list[class].Class = 1 << class
		for res := range list[class].At {
			list[class].At[res] = s.shownAfter(now, t, tenant, int64(class), rollup.Resolution(res), minT, maxT)
		}
		list[class].Held = t.lacking(int64(class), rollup.Raw)
		if s.expiring { // Hidden rows may expire at any moment.
			list[class].Held = list[class].At[rollup.Raw]
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
