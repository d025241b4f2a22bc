package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	for class := range s.retention.Classes() {
		keep := s.retention.Keep(tenant, class)
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
			if res == rollup.Raw {
				target = roll(h, target)
			}
			var was *keptBefore
			if before := h.KeptMS; kept != 0 && (before == 0 || before > kept.Milliseconds()) {
				was = &keptBefore{KeptMS: before, HiddenMS: h.HiddenMS}
			}
			h.aimLowered(target, seen, was)
			h.keep(kept.Milliseconds(), seen)
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
			h.drop(to, s.expiring)
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
		return fmt.Errorf("storage: window %d of tenant %q is kept, because its rollups could not be created: %w", window, tenant, err)
	}
	rolled[at] = true
	return nil
}

// boundariesToKeep returns the boundaries of a tenant, of all its classes: from then on they hold what retention is in force, also before Expire has first run.
func (s *Store) boundariesToKeep(ctx context.Context, tenant string) (*tenantHorizons, error) {
	for try := 1; ; try++ {
		t, err := s.horizonsOf(ctx, tenant)
		if err != nil || t.broken {
			return t, err
		}
		var missing []horizon
		for class := range s.retention.Classes() {
			for res := rollup.Raw; res <= rollup.OneHour; res++ {
				if t.of(class, res) == nil {
					missing = append(missing, horizon{Class: class, Resolution: res})
				}
			}
		}
		if len(missing) == 0 { // As a rule: an import asks for each series.
			return t, nil
		}
		next := t.clone()
		for _, m := range missing {
			h := next.at(m.Class, m.Resolution)
			h.KeptMS = s.keptMS(tenant, h)
			h.aim(s.targetOf(h), s.clock.SeenMS())
		}
		switch t, err := s.changeHorizons(ctx, tenant, t, next); {
		case err == nil:
			return t, nil
		case !errors.Is(err, errHorizonsChanged) || try == advanceTries:
			return nil, err
		}
	}
}

// importsWithoutRaw reports whether an import makes only rollups of a slot: its raw window has expired, or its retention hides it. Where rows
// don't expire by themselves, a window that the retention shows again takes raw rows if it has no rows at all: one that has rollups
// would show the imported samples, and hide that others are missing. One that the retention hides gets none: then it is
// stored that they are lacking, so that a longer retention doesn't look for them; where older raw rows of the tenant stand, or older samples wait to be
// sealed, those of the slot are made as well, and are dropped with them.
func (s *Store) importsWithoutRaw(ctx context.Context, slot int64, tenant string, class int64) (bool, error) {
	window := s.period.WindowOfSlot(rollup.Raw, slot)
	if s.expiring {
		_, err := s.expiryOf(ctx, tenant, class, window)
		if errors.Is(err, ErrWindowExpired) {
			return true, nil
		}
		return false, err
	}
	start, end := s.startOf(window), s.period.WindowEnd(window)
	for try := 1; ; try++ {
		before, err := s.boundariesToKeep(ctx, tenant)
		if err != nil {
			return false, err
		}
		hidden := s.isOutlived(rollup.Raw, slot, s.retention.Keep(tenant, class))
		h := before.of(class, rollup.Raw)
		missing := h != nil && h.lacks(end)
		switch {
		case before.broken:
			return false, nil
		case missing && hidden:
			return true, nil
		case !missing && !hidden:
			return false, nil
		case !missing:
			older, err := s.everyWindow(ctx, tenant, s.period.WindowAt(rollup.Raw, before.lacking(class, rollup.Raw)+1), window)
			if err != nil || len(older) > 0 || s.head.HoldsBetween(s.period.SlotOf(before.lacking(class, rollup.Raw)+1), slot) {
				return false, err
			}
		}
		next := before.clone()
		if h := next.at(class, rollup.Raw); missing {
			if s.lacksRollups(before, class, slot) { // They would be dropped, and made again.
				return true, nil
			}
			rolled, err := s.wasRolledUp(ctx, tenant, window)
			if err != nil {
				return false, err
			}
			s.aimLonger(tenant, h)
			if rolled || !h.restore(start, end) {
				return true, nil
			}
		} else {
			h.lack(end)
		}
		if _, err := s.changeHorizons(ctx, tenant, before, next); !errors.Is(err, errHorizonsChanged) || try == advanceTries {
			return err == nil && !missing, err
		}
	}
}

// lacksRollups reports whether rollups of the windows that hold a slot may be missing.
func (s *Store) lacksRollups(t *tenantHorizons, class, slot int64) bool {
	for _, res := range rollup.Resolutions {
		if h := t.of(class, res); h != nil && h.lacks(s.period.WindowEnd(s.period.WindowOfSlot(res, slot))) {
			return true
		}
	}
	return false
}

// restoreRollups has the windows of rollups that hold a slot take rows again, before an import, where rows don't expire by themselves: those that were
// dropped, that the retention shows again, and that have no rows at all, nor coarser rollups of their time, which answer for it.
func (s *Store) restoreRollups(ctx context.Context, slot int64, tenant string, class int64) error {
	if keep := s.retention.Keep(tenant, class); s.expiring || s.isOutlived(rollup.FiveMinutes, slot, keep) {
		return nil
	}
	for try := 1; ; try++ {
		before, err := s.horizonsOf(ctx, tenant)
		if err != nil || before.broken || !s.lacksRollups(before, class, slot) {
			return err
		}
		next := before.clone()
		for _, res := range rollup.Resolutions {
			window := s.period.WindowOfSlot(res, slot)
			start, end := s.startOf(window), s.period.WindowEnd(window)
			h := next.of(class, res)
			if h == nil || !h.lacks(end) {
				continue
			}
			if rolled, err := s.hasMarks(ctx, tenant, res, start, end); err != nil || rolled {
				return err
			}
			if s.aimLonger(tenant, h); !h.restore(start, end) {
				return nil
			}
		}
		if _, err = s.changeHorizons(ctx, tenant, before, next); !errors.Is(err, errHorizonsChanged) || try == advanceTries {
			return err
		}
	}
}

// wasRolledUp reports whether a raw window has, or is about to get, rollups.
func (s *Store) wasRolledUp(ctx context.Context, tenant string, window int64) (bool, error) {
	start, end := s.startOf(window), s.period.WindowEnd(window)
	if s.head.HoldsBetween(s.period.SlotOf(start+1), s.period.SlotOf(end)) {
		return true, nil
	}
	return s.hasMarks(ctx, tenant, rollup.FiveMinutes, start, end)
}

// hasMarks reports whether slots from one time to another have commit records of a resolution or a coarser one.
func (s *Store) hasMarks(ctx context.Context, tenant string, res rollup.Resolution, start, end int64) (bool, error) {
	from, to := s.period.SlotOf(start+1), s.period.SlotOf(end)
	for ; res <= rollup.OneHour; res++ {
		for window := s.period.WindowOfSlot(res, from); window <= s.period.WindowOfSlot(res, to); window++ {
			for _, err := range s.eng.Scan(ctx, engine.Range{
				Table: engine.Sealed, Partition: format.SealedPartition(window, tenant),
				From: engine.Key{engine.Int(from)}, To: engine.Key{engine.Int(to)}, KeysOnly: true, Limit: 1,
			}) {
				if err != nil {
					return false, fmt.Errorf("storage: reading the commit records of window %d of tenant %q: %w", window, tenant, err)
				}
				return true, nil
			}
		}
	}
	return false, nil
}

// aimLonger has a horizon go by a longer retention that Expire hasn't heard of yet.
func (s *Store) aimLonger(tenant string, h *horizon) {
	keptMS := s.keptMS(tenant, h)
	if !longerKept(keptMS, h.KeptMS) {
		return
	}
	seen := s.clock.SeenMS()
	h.keep(keptMS, seen)
	h.aim(min(s.targetOf(h), h.HiddenMS), seen)
}

// targetOf returns up to where the retention that a horizon goes by hides whole windows.
func (s *Store) targetOf(h *horizon) int64 {
	if h.KeptMS == 0 {
		return never
	}
	return s.startOf(s.period.WindowAt(h.Resolution, s.wanted(time.Duration(h.KeptMS)*time.Millisecond)+1))
}
