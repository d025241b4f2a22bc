package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// expiry is what one Expire remembers.
type expiry struct {
	rolled map[tenantWindow]bool // whose rollups are there
	told   atomic.Int64          // changes that were logged
}

// advanceTries is how often horizons are advanced where others change them meanwhile.
const advanceTries = 3

// advance brings the horizons of a tenant to its retention, and returns them. Windows hidden from now on may
// be dropped when a week has passed; those hidden for so long may be dropped from now on, once it has rollups.
func (s *Store) advance(ctx context.Context, tenant string, x *expiry) (*tenantHorizons, error) {
	for try := 1; ; try++ {
		before, err := s.readHorizons(ctx, tenant, s.horizonMemory.get(tenant))
		if err != nil || before.broken {
			return before, err
		}
		next := before.clone()
		var failed error
		s.aim(ctx, tenant, before, &next, func(h *horizon, target int64) int64 {
			to, err := s.rollHidden(ctx, tenant, h, target, x.rolled)
			failed = errors.Join(failed, err)
			return to
		})
		err = errors.Join(failed, s.dropDue(ctx, tenant, &next, x.rolled))
		if next.equal(&before.horizonRow) {
			return before, err
		}
		switch after, changed := s.changeHorizons(ctx, tenant, before, next); {
		case changed == nil:
			s.tellChanged(ctx, tenant, &before.horizonRow, &next, x)
			return after, err
		case !errors.Is(changed, errHorizonsChanged) || try == advanceTries:
			return before, errors.Join(err, changed)
		}
	}
}

// aim hides whole windows that are past the retention of each class, and shows those again that aren't any more. Samples are
// hidden when their rollups are there, which answer from then on: roll makes them, and returns up to where it has.
func (s *Store) aim(ctx context.Context, tenant string, before *tenantHorizons, next *horizonRow, roll func(h *horizon, target int64) int64) {
	seen := s.clock.SeenMS()
	for class := range s.classes.count() {
		keep := s.classes.keep(tenant, class)
		for res := rollup.Raw; res <= rollup.OneHour; res++ {
			target, kept := int64(never), keep.Of(res)
			if kept != 0 {
				target = s.startOf(s.period.WindowAt(res, s.wanted(kept)+1))
			}
			known := next.of(class, res) != nil
			h := next.at(class, res)
			if !known {
				h.KeptMS = kept.Milliseconds()
			}
			h.lack(before.lacking(class, res))
			h.lackVanished(s.outlived(res))
			if res == rollup.Raw {
				target = roll(h, target)
			}
			var was *keptBefore
			if before := h.KeptMS; kept != 0 && (before == 0 || before > kept.Milliseconds()) {
				was = &keptBefore{KeptMS: before, HiddenMS: h.HiddenMS}
			}
			h.aimLowered(target, seen, was)
			h.keep(kept.Milliseconds(), seen, s.writtenUntilNow(ctx, tenant, h))
		}
	}
}

// rollHidden makes the rollups of the raw windows that are to be hidden, and of the one after them, of which the clock hides more and
// more, and returns up to where they may be hidden. While a delete isn't cleaned it also makes those of windows that are hidden: they may have got
// samples since, which are only shown when rollups know of the delete.
func (s *Store) rollHidden(ctx context.Context, tenant string, h *horizon, target int64, rolled map[tenantWindow]bool) (int64, error) {
	if target == never {
		return target, nil
	}
	from := min(h.HiddenMS, target)
	ds, err := s.deletesOf(ctx, tenant)
	switch {
	case err != nil:
		return from, err
	case len(ds) == 0:
		s.rolled.replace(tenant, h.Class, nil)
		if target <= h.HiddenMS {
			return target, nil
		}
	default:
		if err := s.rollAgain(ctx, tenant, h, from, ds, rolled); err != nil {
			return from, err
		}
	}
	next := s.period.WindowEnd(s.period.WindowAt(rollup.Raw, target+1))
	to, err := s.rollUntil(ctx, tenant, from, next, rolled)
	return min(to, target), err
}

// rolledMemory holds the hidden windows of the tenants that have uncleaned deletes, with a stamp of their marks and of the deletes when nothing was missing
// of their rollups: an Expire a minute later reads no marks of them.
type rolledMemory struct {
	mu sync.Mutex
	of map[rolledOf]map[int64]uint64
}

type rolledOf struct {
	tenant string
	class  int64
}

func (m *rolledMemory) get(tenant string, class int64) map[int64]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[rolledOf{tenant, class}]
}

// replace remembers other windows; nil: none.
func (m *rolledMemory) replace(tenant string, class int64, windows map[int64]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case windows == nil:
		delete(m.of, rolledOf{tenant, class})
	case m.of == nil:
		m.of = map[rolledOf]map[int64]uint64{{tenant, class}: windows}
	default:
		m.of[rolledOf{tenant, class}] = windows
	}
}

// rollAgain makes the rollups of hidden windows that lack some, up to a time, but for those to which nothing was written since it found nothing missing.
func (s *Store) rollAgain(ctx context.Context, tenant string, h *horizon, to int64, ds format.Tombstones, rolled map[tenantWindow]bool) error {
	windows, err := s.everyWindow(ctx, tenant, s.period.WindowAt(rollup.Raw, h.LackingMS+1), s.period.WindowAt(rollup.Raw, to))
	if err != nil {
		return err
	}
	before, now := s.rolled.get(tenant, h.Class), make(map[int64]uint64, len(windows))
	for _, w := range windows {
		stamp, ok := s.stampOfMarks(tenant, w, ds)
		if known, is := before[w]; !ok || !is || known != stamp {
			if err := s.rollFirst(ctx, w, tenant, rolled); err != nil {
				return err
			}
		}
		if ok { // Of the marks before: those that were written just now are looked at once more.
			now[w] = stamp
		}
	}
	s.rolled.replace(tenant, h.Class, now)
	return nil
}

// stampOfMarks returns a number that changes when marks of a raw window, or of its rollups, are written, or with the deletes; ok is false if that
// isn't known.
func (s *Store) stampOfMarks(tenant string, window int64, ds format.Tombstones) (stamp uint64, ok bool) {
	if s.versions == nil {
		return 0, false
	}
	var b []byte
	start, _ := s.period.WindowSpan(window)
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		version, ok := s.versions.Version(engine.Sealed, format.SealedPartition(s.period.WindowAt(res, start+1), tenant))
		if !ok {
			return 0, false
		}
		b = binary.LittleEndian.AppendUint64(b, version)
	}
	for _, d := range ds {
		b = append(b, d.ID...)
	}
	return xxhash.Sum64(b), true
}

// dropDue notes what may be dropped from now on. Raw never goes before its rollups are there: where they can't be made,
// newer windows stay, too.
func (s *Store) dropDue(ctx context.Context, tenant string, next *horizonRow, rolled map[tenantWindow]bool) error {
	seen := s.clock.SeenMS()
	var failed error
	for i := range next.Horizons {
		h := &next.Horizons[i]
		to := h.due(seen)
		if to == h.DroppedMS {
			continue
		}
		if h.Resolution == rollup.Raw {
			var err error
			if to, err = s.rollUntil(ctx, tenant, h.DroppedMS, to, rolled); err != nil {
				failed = err
			}
		}
		if to > h.DroppedMS {
			h.drop(to)
		}
	}
	return failed
}

// rollUntil makes the rollups of the raw windows between two ends of windows, and returns up to where they are there.
func (s *Store) rollUntil(ctx context.Context, tenant string, from, to int64, rolled map[tenantWindow]bool) (int64, error) {
	windows, err := s.everyWindow(ctx, tenant, s.period.WindowAt(rollup.Raw, from+1), s.period.WindowAt(rollup.Raw, to))
	if err != nil {
		return from, err
	}
	for _, w := range windows {
		if err := s.rollFirst(ctx, w, tenant, rolled); err != nil {
			return max(from, s.startOf(w)), err
		}
	}
	return to, nil
}

// rollFirst makes the rollups of a raw window that they lack.
func (s *Store) rollFirst(ctx context.Context, window int64, tenant string, rolled map[tenantWindow]bool) error {
	at := tenantWindow{tenant, window}
	if rolled[at] {
		return nil
	}
	if _, err := s.rollWindow(ctx, tenant, window, func() {}); err != nil {
		return fmt.Errorf("storage: window %d of %q is kept, because its rollups could not be created: %w", window, tenant, err)
	}
	rolled[at] = true
	return nil
}

// importsWithoutRaw reports whether an import makes only rollups of a slot: its raw rows may be gone, or nobody wants them any
// more. Then it is stored that they are lacking, so that a higher retention doesn't look for them. Where older raw rows of
// the tenant stand, or older samples wait to be sealed, those of the slot are made, too, and go with them.
func (s *Store) importsWithoutRaw(ctx context.Context, slot int64, tenant string, class int64) (bool, error) {
	for try := 1; ; try++ {
		before, err := s.noteKept(ctx, tenant)
		if err != nil {
			return false, err
		}
		window, lacking := s.period.WindowOfSlot(rollup.Raw, slot), before.lacking(class, rollup.Raw)
		switch {
		case s.period.WindowEnd(window) <= lacking, s.hasVanished(before, class, window):
			return true, nil
		case !s.isOutlived(rollup.Raw, slot, s.classes.keep(tenant, class)):
			return false, nil
		case before.broken:
			return s.expiring, nil
		case !s.expiring:
			older, err := s.everyWindow(ctx, tenant, s.period.WindowAt(rollup.Raw, lacking+1), window)
			if err != nil || len(older) > 0 || s.head.HoldsBetween(s.period.SlotOf(lacking+1), slot) {
				return false, err
			}
		}
		next := before.clone()
		next.at(class, rollup.Raw).lack(s.period.WindowEnd(window))
		if _, err := s.changeHorizons(ctx, tenant, before, next); !errors.Is(err, errHorizonsChanged) || try == advanceTries {
			return err == nil, err
		}
	}
}
