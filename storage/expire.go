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

// One drop deletes a range of keys. Keys of sealed rows begin with window, class and tenant. Keys of other tables begin
// with window and tenant:
//
//	window                        no tenant keeps any rows
//	window, each class, tenant    this tenant keeps no rows, other tenants do
//	window, class                 no tenant keeps the class; names and commit records stay as long as any row does
//	window, class, tenant         this tenant doesn't keep the class, other tenants do

// dropList maps each range to drop to the tenants that have rows in the range's window.
type dropList map[dropRange][]string

// dropRange identifies a range of a window: one class or the whole window, of one tenant or of all tenants (tenant "").
type dropRange struct {
	window int64
	class  int64 // or wholeWindow
	tenant string
}

const wholeWindow = -1

// dropMemory caches, per tenant, class and resolution, the time until which this process has dropped rows of the class
// from windows that other tenants or classes keep. So each class of a window is dropped once. The number of entries
// doesn't depend on the number of windows.
type dropMemory struct {
	mu sync.Mutex
	to map[boundaryKey]int64
}

// boundaryKey identifies a retention boundary.
type boundaryKey struct {
	tenant string
	class  int64
	res    rollup.Resolution
}

// isDropped reports whether the rows of a class were dropped from the window that ends at end.
func (m *dropMemory) isDropped(at boundaryKey, end int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	to, ok := m.to[at]
	return ok && end <= to
}

// set records the times until which the rows of each tenant's classes were dropped.
func (m *dropMemory) set(of map[string]*retention.Boundaries, classes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to = map[boundaryKey]int64{}
	for tenant, b := range of {
		for class := range classes {
			for res := rollup.Raw; res <= rollup.OneHour; res++ {
				if to := b.Dropped(class, res); to > never {
					m.to[boundaryKey{tenant, class, res}] = to
				}
			}
		}
	}
}

// Expire advances the retention boundaries of all tenants according to their retention, and drops windows that have
// been hidden for a week. It returns the number of dropped windows, plus the number of dropped parts of windows that
// other tenants or classes keep. No seal runs during the drops.
func (s *Store) Expire(ctx context.Context) (parts int, err error) {
	ctx = engine.WithMakingRoom(ctx)
	if err := s.clock.MayRemove(); err != nil {
		return 0, err
	}
	tenants, err := s.tenantsSkipping(ctx, nil)
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
	expired, err := s.listExpired(ctx, tenants, of)
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
	if err := s.clock.MayRemove(); err != nil { // Computing rollups may have taken long.
		return 0, err
	}
	for _, tenant := range tenants { // An import may have restored windows.
		if of[tenant], err = s.retention.Boundaries(ctx, tenant); err != nil {
			return 0, errors.Join(failed, err)
		}
	}
	// The first list may be outdated: a seal may since have added rows of a tenant that keeps the window longer.
	if expired, err = s.listExpired(ctx, tenants, of); err != nil {
		return 0, errors.Join(failed, err)
	}
	for _, d := range slices.SortedFunc(maps.Keys(expired), dropRange.compare) {
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

func (d dropRange) compare(o dropRange) int {
	return cmp.Or(cmp.Compare(d.window, o.window), cmp.Compare(d.class, o.class), cmp.Compare(d.tenant, o.tenant))
}

// listExpired returns the ranges to drop in listed windows, according to the tenants' retention boundaries.
func (s *Store) listExpired(
	ctx context.Context, tenants []string, of map[string]*retention.Boundaries,
) (dropList, error) {
	d := dropList{}
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
		kept := map[int64][]string{} // window to tenants
		for _, tenant := range tenants {
			windows, err := s.readableWindows(ctx, tenant, format.FirstWindow(res), s.period.WindowAt(res, newest))
			if err != nil {
				return nil, err
			}
			for _, window := range windows {
				if s.retention.AllDropped(of[tenant], window) {
					d.addRange(dropRange{window, wholeWindow, ""}, tenant)
				} else {
					kept[window] = append(kept[window], tenant)
				}
			}
		}
		for window, by := range kept {
			all := dropRange{window, wholeWindow, ""}
			for _, tenant := range d[all] {
				d.addRange(dropRange{window, wholeWindow, tenant}, tenant)
			}
			delete(d, all)
			s.addExpiredClasses(window, by, of, d)
		}
	}
	return d, nil
}

func (d dropList) addRange(part dropRange, tenant string) { d[part] = append(d[part], tenant) }

// addExpiredClasses adds the classes to drop from a window that some tenants keep, except classes that were dropped
// before. A class that no tenant keeps is dropped for all tenants at once.
func (s *Store) addExpiredClasses(window int64, tenants []string, of map[string]*retention.Boundaries, d dropList) {
	res, end := format.ResolutionOf(window), s.period.WindowEnd(window)
	for class := range s.retention.Classes() {
		var from, due []string
		for _, tenant := range tenants {
			if end > of[tenant].Dropped(class, res) {
				continue
			}
			from = append(from, tenant)
			if !s.gone.isDropped(boundaryKey{tenant, class, res}, end) {
				due = append(due, tenant)
			}
		}
		switch {
		case len(due) == 0:
		case len(from) == len(tenants):
			d[dropRange{window, class, ""}] = from
		default:
			for _, tenant := range due {
				d.addRange(dropRange{window, class, tenant}, tenant)
			}
		}
	}
}
