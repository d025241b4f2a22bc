package retention

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// dueSlack is the additional time for which a window may still exist after it has been hidden for a week.
const dueSlack = 24 * time.Hour

// Lifetime returns the time at which a window's last samples are past the longest retention among the tenant's classes,
// and the time at which its rows are dropped if the retention doesn't change. A zero time means never.
func (k *Keeper) Lifetime(b *Boundaries, tenant string, window int64) (hidden, goes time.Time) {
	for class := range k.Classes() {
		h, g := k.lifetime(b, tenant, class, window)
		if g.IsZero() {
			return h, g
		}
		if h.After(hidden) {
			hidden = h
		}
		if g.After(goes) {
			goes = g
		}
	}
	return hidden, goes
}

// lifetime is Lifetime for the rows of one class.
func (k *Keeper) lifetime(b *Boundaries, tenant string, class, window int64) (hidden, goes time.Time) {
	res, end := format.ResolutionOf(window), k.env.Period.WindowEnd(window)
	now, kept, h := k.env.Now().UTC(), k.RetentionOf(tenant, class).Duration(res), b.Boundary(class, res)
	if kept > 0 {
		hidden = time.UnixMilli(end).UTC().Add(kept)
	}
	switch {
	case h != nil && end <= h.DroppedMS:
		if kept == 0 || hidden.After(now) {
			hidden = now
		}
		return hidden, now
	case kept == 0:
		return time.Time{}, time.Time{}
	case hidden.After(now):
		return hidden, hidden.Add(Grace)
	}
	since, ok := h.hiddenSince(end)
	if !ok {
		since = k.env.Clock.ObservedUptimeMS()
	}
	return hidden, k.dropTime(since)
}

// DueWindow returns a tenant's newest raw window that should have been removed by now: it was dropped, or it has been
// past the retention of every class for a week and also hidden for a week.
func (k *Keeper) DueWindow(ctx context.Context, tenant string) (window int64, ok bool, err error) {
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return 0, false, err
	}
	to := int64(format.MaxTime)
	for class := range k.Classes() {
		to = min(to, k.dueUntil(b, tenant, class))
	}
	return k.env.Period.WindowAt(rollup.Raw, to), to > Never, nil
}

// dueUntil returns the time until which raw rows of a class should have been removed.
func (k *Keeper) dueUntil(b *Boundaries, tenant string, class int64) int64 {
	due, kept := b.Dropped(class, rollup.Raw), k.RetentionOf(tenant, class).Raw
	if kept == 0 {
		return due
	}
	now, _ := k.env.Clock.Times()
	outlived := k.target(now, rollup.Raw, (kept + Grace).Milliseconds())
	if h := b.Boundary(class, rollup.Raw); h != nil {
		for i, step := range h.Steps {
			if k.env.Clock.ObservedUptimeMS()-step.SeenMS < (Grace + dueSlack).Milliseconds() {
				outlived = min(outlived, h.hiddenBySteps(i))
				break
			}
		}
	}
	return max(due, outlived)
}

// DroppedAhead returns the time until which raw samples of a tenant were dropped, if only a fast clock can have caused
// the drop. Otherwise it returns the zero time.
func (k *Keeper) DroppedAhead(ctx context.Context, tenant string) (time.Time, error) {
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return time.Time{}, err
	}
	to := int64(Never)
	for class := range k.Classes() {
		to = max(to, droppedAhead(k.env.Now(), b, class))
	}
	return timeOf(to), nil
}
