package storage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// What goes at once is a range of keys. Those of sealed rows begin with window, class and tenant, others' with window
// and tenant:
//
//	window                    nobody keeps anything of it any more
//	window, each class, tenant    a tenant doesn't, others do
//	window, class             nobody keeps that class; names and marks stay as long as any row does
//	window, class, tenant     a tenant doesn't, others do

// drops are the ranges to drop, each with the tenants that have rows in its window.
type drops map[dropped][]string

// dropped names a range of a window: of a class, or whole; of a tenant, or everybody's.
type dropped struct {
	window int64
	class  int64 // or wholeWindow
	tenant string
}

const wholeWindow = -1

// dropMemory holds up to where this process has dropped the rows of classes from windows that stand, so that it happens once. It has an entry for each
// tenant, class and resolution, however many windows stand.
type dropMemory struct {
	mu sync.Mutex
	to map[horizonAt]int64
}

// horizonAt names a horizon.
type horizonAt struct {
	tenant string
	class  int64
	res    rollup.Resolution
}

// has reports whether the rows of a class were dropped from the windows up to a time.
func (m *dropMemory) has(at horizonAt, end int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	to, ok := m.to[at]
	return ok && end <= to
}

// set notes up to where rows of all tenants' classes were dropped.
func (m *dropMemory) set(of map[string]*retention.Boundaries, classes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to = map[horizonAt]int64{}
	for tenant, b := range of {
		for class := range classes {
			for res := rollup.Raw; res <= rollup.OneHour; res++ {
				if to := b.Dropped(class, res); to > never {
					m.to[horizonAt{tenant, class, res}] = to
				}
			}
		}
	}
}

// Expire brings the horizons of all tenants to their retentions, and drops windows that have been hidden for a week. It
// returns how many windows went, or parts of windows that others keep. No seal runs meanwhile.
func (s *Store) Expire(ctx context.Context) (parts int, err error) {
	ctx = engine.MakingRoom(ctx)
	if err := s.clock.MayRemove(); err != nil {
		return 0, err
	}
	tenants, err := s.tenantsAround(ctx, nil)
	if err != nil {
		return 0, err
	}
	of := make(map[string]*retention.Boundaries, len(tenants))
	x := s.retention.Advance(&hiddenRoller{s: s, rolled: map[tenantWindow]bool{}})
	var failed error
	for _, tenant := range tenants {
		if of[tenant], err = x.Tenant(ctx, tenant); err != nil {
			if of[tenant] == nil || ctx.Err() != nil {
				return 0, err
			}
			failed = errors.Join(failed, err)
		}
	}
	expired, err := s.expired(ctx, tenants, of)
	if err != nil {
		return 0, errors.Join(failed, err)
	}
	if len(expired) == 0 {
		s.gone.set(of, s.retention.Classes())
		return 0, failed
	}
	for i := range s.sealMu {
		s.sealMu[i].Lock()
		defer s.sealMu[i].Unlock()
	}
	if err := s.clock.MayRemove(); err != nil { // Rollups may have taken long.
		return 0, err
	}
	for _, tenant := range tenants { // An import may have restored windows.
		if of[tenant], err = s.retention.Boundaries(ctx, tenant); err != nil {
			return 0, errors.Join(failed, err)
		}
	}
	// A seal may have brought a window rows of a tenant that keeps them longer.
	if expired, err = s.expired(ctx, tenants, of); err != nil {
		return 0, errors.Join(failed, err)
	}
	for _, d := range slices.SortedFunc(maps.Keys(expired), dropped.compare) {
		gone, err := s.dropPart(ctx, d, expired[d])
		if err != nil {
			return parts, errors.Join(failed, err)
		}
		if gone {
			parts++
			s.metrics.droppedWindows.Inc()
		}
	}
	s.gone.set(of, s.retention.Classes())
	return parts, failed
}

func (d dropped) compare(o dropped) int {
	return cmp.Or(cmp.Compare(d.window, o.window), cmp.Compare(d.class, o.class), cmp.Compare(d.tenant, o.tenant))
}

// expired finds the listed windows that are dropped, by the horizons of their tenants.
func (s *Store) expired(ctx context.Context, tenants []string, of map[string]*retention.Boundaries) (drops, error) {
	d := drops{}
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		newest := int64(never)
		for _, tenant := range tenants {
			for class := range s.retention.Classes() {
				newest = max(newest, of[tenant].Dropped(class, res))
			}
		}
		if newest == never {
			continue
		}
		kept := map[int64][]string{} // by whom
		for _, tenant := range tenants {
			windows, err := s.everyWindow(ctx, tenant, format.FirstWindow(res), s.period.WindowAt(res, newest))
			if err != nil {
				return nil, err
			}
			for _, window := range windows {
				if s.retention.AllDropped(of[tenant], window) {
					d.add(dropped{window, wholeWindow, ""}, tenant)
				} else {
					kept[window] = append(kept[window], tenant)
				}
			}
		}
		for window, by := range kept {
			all := dropped{window, wholeWindow, ""}
			for _, tenant := range d[all] {
				d.add(dropped{window, wholeWindow, tenant}, tenant)
			}
			delete(d, all)
			s.expiredClasses(window, by, of, d)
		}
	}
	return d, nil
}

func (d drops) add(part dropped, tenant string) { d[part] = append(d[part], tenant) }

// expiredClasses adds the classes that are dropped from a window that some tenants keep, unless they were before: for all of them at once where
// it is.
func (s *Store) expiredClasses(window int64, tenants []string, of map[string]*retention.Boundaries, d drops) {
	res, end := format.ResolutionOf(window), s.period.WindowEnd(window)
	for class := range s.retention.Classes() {
		var from, due []string
		for _, tenant := range tenants {
			if end > of[tenant].Dropped(class, res) {
				continue
			}
			from = append(from, tenant)
			if !s.gone.has(horizonAt{tenant, class, res}, end) {
				due = append(due, tenant)
			}
		}
		switch {
		case len(due) == 0:
		case len(from) == len(tenants):
			d[dropped{window, class, ""}] = from
		default:
			for _, tenant := range due {
				d.add(dropped{window, class, tenant}, tenant)
			}
		}
	}
}
