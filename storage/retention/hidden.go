package retention

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Hidden is up to when rows of a class of a tenant are hidden or missing, as far as a query is concerned: where there is a hole, it is
// one that touches the query's range of time. A query for a part of that range sees no less.
type Hidden struct {
	// Class is its bit in a query's classes.
	Class uint64
	// At are the newest timestamps that aren't shown, by resolution, milliseconds; Never: all is.
	At [3]int64
	// Missing is the newest timestamp of which raw rows may be missing: those after it stand, also where At hides them.
	Missing int64
}

// Shown is what queries see of a tenant.
type Shown struct {
	// Hidden is that of all classes, by their numbers. Gaps are ranges of time of which rows may be missing, though older ones are shown.
	Hidden []Hidden
	Gaps   Gaps
	// Days has the lists of classes of the tenant's days, for unsealed series.
	Days DayLists
	// Later is the later of the clock's times, see membership.CheckedClock.Bounds: samples that a batch accepts are shown.
	Later time.Time
}

// Shown returns what a query of the times from minT to maxT sees. overGaps is true if the query looks at Gaps slot by slot: then holes of raw rows hide
// nothing else. Nor do holes of 1h rollups ever, because there is no coarser resolution to answer instead: the answer names them.
func (k *Keeper) Shown(ctx context.Context, tenant string, minT, maxT int64, overGaps bool) (s Shown, err error) {
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return s, err
	}
	now, later := k.shownBy()
	s = Shown{Hidden: make([]Hidden, k.Classes()), Later: later, Days: k.Days(tenant)}
	for class := range s.Hidden {
		h, holes := &s.Hidden[class], [3]int64{}
		h.Class = 1 << class
		for res := range h.At {
			h.At[res] = k.shownAfter(now, b, tenant, int64(class), rollup.Resolution(res))
			holes[res] = k.holeEnd(b, int64(class), rollup.Resolution(res), minT, maxT)
		}
		h.Missing = b.Missing(int64(class), rollup.Raw)
		if k.env.Expires {
			h.Missing = max(k.expiredRaw(b, class, h.At[rollup.Raw]), holes[rollup.Raw])
		}
		if holes[rollup.OneHour] = Never; overGaps {
			holes[rollup.Raw] = Never
		}
		for res := range h.At {
			h.At[res] = max(h.At[res], holes[res])
		}
	}
	if s.Gaps = k.appendGaps(nil, b, rollup.OneHour); overGaps {
		s.Gaps = k.appendGaps(s.Gaps, b, rollup.Raw)
	}
	return s, nil
}

// expiredRaw returns the newest timestamp of which raw rows of a class may have expired, beside holes: rows after it stand, also where they are hidden.
func (k *Keeper) expiredRaw(b *Boundaries, class int, hidden int64) int64 {
	switch {
	case class >= len(b.firstRaw): // The class was added since the expiries were read.
		return hidden
	case b.firstRaw[class] == format.FirstWindow(rollup.Raw):
		return Never
	}
	return min(hidden, k.env.Period.WindowStart(b.firstRaw[class]))
}

// soon is how long before raw samples are hidden a delete of some of them is applied to rollups at once: until then these must know of it.
const soon = 24 * time.Hour

// HidesSoon reports whether raw samples of a tenant's class in a slot are hidden, or will be soon.
func (k *Keeper) HidesSoon(ctx context.Context, tenant string, slot int64) (bool, error) {
	start, end := k.env.Period.SlotStart(slot), k.env.Period.SlotEnd(slot)
	shown, err := k.Shown(ctx, tenant, start, end, true)
	if err != nil || shown.Gaps.HoldAny(end) {
		return err == nil, err
	}
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return false, err
	}
	now, _ := k.shownBy()
	for class, h := range shown.Hidden {
		expires := k.knownExpiry(b, tenant, int64(class), k.env.Period.WindowOfSlot(rollup.Raw, slot))
		if h.At[rollup.Raw] > start || PastAt(now.Add(soon), k.Keep(tenant, int64(class)).Raw) > start || expires != 0 && k.pastUntil()+int64(soon.Seconds()) >= expires {
			return true, nil
		}
	}
	return false, nil
}

// shownBy returns the clock's times by which samples are shown, see membership.CheckedClock.Bounds. Where rows expire by themselves, a clock that isn't trusted,
// and may be far behind, doesn't count: hidden rows may have expired.
func (k *Keeper) shownBy() (now, later time.Time) {
	now, later = k.env.Clock.Bounds()
	if _, doubted := k.env.Clock.Off(); doubted && k.env.Expires {
		now = k.env.Clock.EngineTime()
	}
	return now, later
}

// shownAfter returns the newest timestamp that isn't shown of a class at a resolution, beside holes.
// Flags and the clock only move it within the window after the stored HiddenMS: only a changed row hides more. It hides less while the clock is
// behind the one by which HiddenMS was stored: what a batch accepts is shown, and all rows after LackingMS stand.
func (k *Keeper) shownAfter(now time.Time, b *Boundaries, tenant string, class int64, res rollup.Resolution) int64 {
	at := PastAt(now, k.Keep(tenant, class).Of(res))
	h := b.get(class, res)
	if h == nil {
		return at
	}
	at = min(at, k.env.Period.WindowEnd(k.env.Period.WindowAt(res, max(h.HiddenMS, Never)+1)))
	return max(at, k.hiddenAt(now, h), h.LackingMS)
}

// hiddenAt returns HiddenMS, or up to where the retention that it goes by hides at a time of the clock's, if that is less.
func (k *Keeper) hiddenAt(now time.Time, h *Boundary) int64 {
	return min(h.HiddenMS, max(h.LackingMS, k.target(now, h.Resolution, h.KeptMS)))
}

// target returns up to where a retention hides whole windows at a time.
func (k *Keeper) target(now time.Time, res rollup.Resolution, keptMS int64) int64 {
	if keptMS == 0 {
		return Never
	}
	return k.env.Period.WindowStart(k.env.Period.WindowAt(res, PastAt(now, time.Duration(keptMS)*time.Millisecond)+1))
}

// Past returns the newest timestamp that the retention of a class doesn't ask to be kept at a resolution, milliseconds: where a boundary should go.
func (k *Keeper) Past(tenant string, class int64, res rollup.Resolution) int64 {
	now, _ := k.env.Clock.Times()
	return PastAt(now, k.Keep(tenant, class).Of(res))
}

// isOutlived reports whether the retention asks for a window of a resolution, the one that holds a slot, no more: its end, the
// retention and the grace have passed. Rows that aren't made yet needn't be made then; existing ones go by boundaries alone.
func (k *Keeper) isOutlived(res rollup.Resolution, slot int64, keep Keep) bool {
	now, _ := k.env.Clock.Times()
	return keep.outlived(k.env.Period, k.env.Period.WindowOfSlot(res, slot), now)
}

// IsOutlived reports whether no tenant's retention asks for the raw window that holds a slot any more.
func (k *Keeper) IsOutlived(slot int64) bool { return k.isOutlived(rollup.Raw, slot, k.longestOfAll()) }

// Oldest is up to when samples of a tenant are too old, by the class that they would be stored in.
type Oldest struct {
	k      *Keeper
	tenant string
	by     []int64 // by class: samples at or before it are too old
	recent int64   // samples after it aren't, in any class
	days   DayLists
	gaps   Gaps
}

// Oldest sets o to a tenant's as far as this process has read, reusing its memory. now is the earlier of the clock's times.
func (k *Keeper) Oldest(o *Oldest, tenant string, now time.Time) {
	b := k.boundaries.At(tenant)
	o.k, o.tenant, o.recent, o.days, o.by = k, tenant, Never, k.Days(tenant), o.by[:0]
	for class := range k.Classes() {
		// Where rows may be missing there are only rollups, and a sample can't be added to those.
		o.by = append(o.by, max(PastAt(now, k.Keep(tenant, class).Raw), b.Missing(class, rollup.Raw)))
		o.recent = max(o.recent, o.by[class])
	}
	o.gaps = k.appendGaps(o.gaps[:0], b, rollup.Raw)
	for _, g := range o.gaps {
		o.recent = max(o.recent, g.to)
	}
}

// Passes reports whether the class in which a sample would be stored has no place for it any more.
func (o *Oldest) Passes(ctx context.Context, s *head.Series, t int64) (old bool, class int64, err error) {
	if t > o.recent {
		return false, 0, nil
	}
	list, err := o.days.At(ctx, t)
	if err != nil {
		return false, 0, err
	}
	class = min(list.Of(s), int64(len(o.by)-1))
	return t <= o.by[class] || o.gaps.Hold(class, rollup.Raw, t), class, nil
}

// DroppedAhead returns up to when raw rows of the class of a sample that is too old were dropped, if it is within the retention. A right clock drops none of the
// last week, in which they were hidden: where some are, another clock was ahead. now is the earlier of the clock's times.
func (o *Oldest) DroppedAhead(class, t int64, now time.Time) (to int64, ok bool) {
	to = droppedAhead(now, o.k.boundaries.At(o.tenant), class)
	return to, t <= to && t > PastAt(now, o.k.Keep(o.tenant, class).Raw)
}

// droppedAhead returns up to where raw rows of a class were dropped, if only a clock can have done that which was ahead; otherwise Never.
func droppedAhead(now time.Time, b *Boundaries, class int64) int64 {
	if to := b.Dropped(class, rollup.Raw); to > PastAt(now, Grace) {
		return to
	}
	return Never
}
