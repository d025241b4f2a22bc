package retention

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// HiddenTimes holds the times until which rows of a tenant's class are hidden or missing for a query. A hole is
// included if it overlaps the query's range. A query for a part of the range may therefore read more rows of this part
// than a query for the whole range.
type HiddenTimes struct {
	// Class is the bit of the class in a query's classes.
	Class uint64
	// At holds the newest hidden timestamp for each resolution, in milliseconds, or Never if all are shown.
	At [3]int64
	// Missing is the newest timestamp at which raw rows may be missing. Later rows exist, even if At hides them.
	Missing int64
}

// VisibleRows describes the rows of a tenant that a query may read.
type VisibleRows struct {
	// Hidden is indexed by class. Gaps are ranges of time in which rows may be missing although older rows are shown.
	Hidden []HiddenTimes
	Gaps   Gaps
	// Days holds the lists of classes of the tenant's days, for unsealed series.
	Days DayLists
	// Later is the later of the two times returned by membership.CheckedClock.Bounds. It is used so that all samples
	// that a batch accepts are visible.
	Later time.Time
}

// VisibleRows returns the rows that a query between minT and maxT may read. overGaps is true if the query handles Gaps
// slot by slot; then holes of raw rows hide no other rows. Otherwise a hole also hides all older rows of its
// resolution. Holes of 1h rollups never hide other rows, because there is no coarser resolution to read instead.
// Answers report these holes.
func (k *Keeper) VisibleRows(
	ctx context.Context, tenant string, minT, maxT int64, overGaps bool,
) (s VisibleRows, err error) {
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return s, err
	}
	now, later := k.shownBy()
	s = VisibleRows{Hidden: make([]HiddenTimes, k.Classes()), Later: later, Days: k.NewDayLists(tenant)}
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

// expiredRaw returns the newest timestamp at which raw rows of a class may have expired, apart from holes. Later rows
// exist, even if they are hidden.
func (k *Keeper) expiredRaw(b *Boundaries, class int, hidden int64) int64 {
	switch {
	case class >= len(b.firstRaw): // The class was added since the expiries were read.
		return hidden
	case b.firstRaw[class] == format.FirstWindow(rollup.Raw):
		return Never
	}
	return min(hidden, k.env.Period.WindowStart(b.firstRaw[class]))
}

// hidesSoonMargin is the max time until raw samples are hidden for which a delete of these samples is applied to their
// rollups immediately. The rollups must include the delete when the raw samples are hidden.
const hidesSoonMargin = 24 * time.Hour

// HidesSoon reports whether raw samples of a tenant in a slot are hidden in any class, or will be hidden soon.
func (k *Keeper) HidesSoon(ctx context.Context, tenant string, slot int64) (bool, error) {
	start, end := k.env.Period.SlotStart(slot), k.env.Period.SlotEnd(slot)
	shown, err := k.VisibleRows(ctx, tenant, start, end, true)
	if err != nil || shown.Gaps.ContainsAny(end) {
		return err == nil, err
	}
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return false, err
	}
	now, _ := k.shownBy()
	for class, h := range shown.Hidden {
		expires := k.knownExpiry(b, tenant, int64(class), k.env.Period.WindowOfSlot(rollup.Raw, slot))
		if h.At[rollup.Raw] > start ||
			PastUntil(now.Add(hidesSoonMargin), k.RetentionOf(tenant, int64(class)).Raw) > start ||
			expires != 0 && k.pastUntil()+int64(hidesSoonMargin.Seconds()) >= expires {
			return true, nil
		}
	}
	return false, nil
}

// shownBy returns the clock's times that decide which samples are visible, see membership.CheckedClock.Bounds. An
// untrusted clock may be very slow and show rows that have expired. If the engine expires rows, shownBy therefore
// returns the engine's time instead.
func (k *Keeper) shownBy() (now, later time.Time) {
	now, later = k.env.Clock.Bounds()
	if _, doubted := k.env.Clock.Difference(); doubted && k.env.Expires {
		now = k.env.Clock.EngineTime()
	}
	return now, later
}

// shownAfter returns the newest hidden timestamp of a class at a resolution, apart from holes. The retention and the
// clock of this process hide at most one window beyond the stored HiddenMS, and no raw window whose rollups may be
// missing. Hiding more requires a change of the stored boundary. If this clock is slower than the clock with which
// HiddenMS was stored, less is hidden: samples that a batch accepts must be visible, and all rows after LackingMS
// exist.
func (k *Keeper) shownAfter(now time.Time, b *Boundaries, tenant string, class int64, res rollup.Resolution) int64 {
	at := PastUntil(now, k.RetentionOf(tenant, class).Duration(res))
	h := b.get(class, res)
	if h == nil {
		return at
	}
	to := max(h.HiddenMS, Never)
	if h.NextRolled || res != rollup.Raw {
		to = k.env.Period.WindowEnd(k.env.Period.WindowAt(res, to+1))
	}
	return max(min(at, to), k.hiddenAt(now, h), h.LackingMS)
}

// hiddenAt returns the time until which the boundary hides windows at time now, according to its retention and at most
// HiddenMS. It is never before LackingMS.
func (k *Keeper) hiddenAt(now time.Time, h *Boundary) int64 {
	return min(h.HiddenMS, max(h.LackingMS, k.target(now, h.Resolution, h.KeptMS)))
}

// target returns the time until which a retention hides whole windows at time now.
func (k *Keeper) target(now time.Time, res rollup.Resolution, keptMS int64) int64 {
	if keptMS == 0 {
		return Never
	}
	return k.env.Period.WindowStart(
		k.env.Period.WindowAt(res, PastUntil(now, time.Duration(keptMS)*time.Millisecond)+1),
	)
}

// PastRetention returns the newest timestamp, in milliseconds, that is past the retention of a class at a resolution.
// It is the target of the class's boundary.
func (k *Keeper) PastRetention(tenant string, class int64, res rollup.Resolution) int64 {
	now, _ := k.env.Clock.Times()
	return PastUntil(now, k.RetentionOf(tenant, class).Duration(res))
}

// isOutlived reports whether the window that contains a slot at a resolution is past its retention and the grace
// period. Missing rows of such a window don't have to be computed. Existing rows are removed only according to
// boundaries.
func (k *Keeper) isOutlived(res rollup.Resolution, slot int64, keep Durations) bool {
	now, _ := k.env.Clock.Times()
	return keep.isWindowPast(k.env.Period, k.env.Period.WindowOfSlot(res, slot), now)
}

// IsOutlived reports whether the raw window that contains a slot is past the retention of every tenant.
func (k *Keeper) IsOutlived(slot int64) bool {
	return k.isOutlived(rollup.Raw, slot, k.longestOfTenants())
}

// OldestTimes holds the times until which a tenant's samples are too old, for each class in which they may be stored.
type OldestTimes struct {
	k      *Keeper
	tenant string
	by     []int64 // by class: samples at or before it are too old
	recent int64   // samples after it aren't too old, in any class
	days   DayLists
	gaps   Gaps
}

// SetOldestTimes sets o to the times until which a tenant's samples are too old, according to cached boundaries. It
// reuses the memory of o. now must be the earlier of the clock's times.
func (k *Keeper) SetOldestTimes(o *OldestTimes, tenant string, now time.Time) {
	b := k.boundaries.Value(tenant)
	o.k, o.tenant, o.recent, o.days, o.by = k, tenant, Never, k.NewDayLists(tenant), o.by[:0]
	for class := range k.Classes() {
		// If raw rows may be missing, only rollups exist, and single samples can't be added to rollups.
		o.by = append(o.by, max(PastUntil(now, k.RetentionOf(tenant, class).Raw), b.Missing(class, rollup.Raw)))
		o.recent = max(o.recent, o.by[class])
	}
	o.gaps = k.appendGaps(o.gaps[:0], b, rollup.Raw)
	for _, g := range o.gaps {
		o.recent = max(o.recent, g.to)
	}
}

// IsTooOld reports whether a sample is too old to be stored in its class.
func (o *OldestTimes) IsTooOld(ctx context.Context, s *head.Series, t int64) (old bool, class int64, err error) {
	if t > o.recent {
		return false, 0, nil
	}
	list, err := o.days.ListAt(ctx, t)
	if err != nil {
		return false, 0, err
	}
	class = min(list.ClassOf(s), int64(len(o.by)-1))
	return t <= o.by[class] || o.gaps.Contains(class, rollup.Raw, t), class, nil
}

// DroppedAhead explains why a sample within the retention is too old. It returns the time until which raw rows of the
// sample's class were dropped. Because rows are hidden for a week before they are dropped, some clock must have been
// fast. now must be the earlier of the clock's times.
func (o *OldestTimes) DroppedAhead(class, t int64, now time.Time) (to int64, ok bool) {
	to = droppedAhead(now, o.k.boundaries.Value(o.tenant), class)
	return to, t <= to && t > PastUntil(now, o.k.RetentionOf(o.tenant, class).Raw)
}

// droppedAhead returns the time until which raw rows of a class were dropped, if only a fast clock can have caused the
// drop. Otherwise it returns Never.
func droppedAhead(now time.Time, b *Boundaries, class int64) int64 {
	if to := b.Dropped(class, rollup.Raw); to > PastUntil(now, Grace) {
		return to
	}
	return Never
}
