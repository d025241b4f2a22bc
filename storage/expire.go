package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
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

// dropMemory remembers which classes' rows this process has dropped from windows that stand, so that it happens
// once. It is bounded: when full it forgets all.
type dropMemory struct {
	mu   sync.Mutex
	done map[dropped]struct{}
}

const maxDropMemory = 1 << 16

func (m *dropMemory) has(d dropped) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.done[d]
	return ok
}

func (m *dropMemory) add(d dropped) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.done) >= maxDropMemory || m.done == nil {
		m.done = map[dropped]struct{}{}
	}
	m.done[d] = struct{}{}
}

// Expire drops what is past its retention, and returns how many windows, or parts of windows that others keep. No
// seal runs meanwhile. Raw never goes before its rollups are there.
func (s *Store) Expire(ctx context.Context) (parts int, err error) {
	if err := s.believed(); err != nil {
		return 0, err
	}
	expired, err := s.expired(ctx)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	rolled := map[tenantWindow]bool{}
	for d, tenants := range expired {
		if err := s.rollFirst(ctx, d.window, tenants, rolled); err != nil {
			return 0, err
		}
	}
	for i := range s.sealMu {
		s.sealMu[i].Lock()
		defer s.sealMu[i].Unlock()
	}
	if err := s.believed(); err != nil { // Rollups may have taken long.
		return 0, err
	}
	// A seal may have brought a window rows of a tenant that keeps them longer.
	if expired, err = s.expired(ctx); err != nil {
		return 0, err
	}
	for _, d := range slices.SortedFunc(maps.Keys(expired), dropped.compare) {
		if slices.ContainsFunc(expired[d], func(tenant string) bool { return !rolled[tenantWindow{tenant, d.window}] }) {
			continue
		}
		if err := s.dropPart(ctx, d, expired[d]); err != nil {
			return parts, err
		}
		parts++
		s.metrics.droppedWindows.Inc()
	}
	return parts, nil
}

func (d dropped) compare(o dropped) int {
	return cmp.Or(cmp.Compare(d.window, o.window), cmp.Compare(d.class, o.class), cmp.Compare(d.tenant, o.tenant))
}

// rollFirst makes the rollups of a window, if it is one of raw rows, and notes for whom they are there.
func (s *Store) rollFirst(ctx context.Context, window int64, tenants []string, rolled map[tenantWindow]bool) error {
	for _, tenant := range tenants {
		at := tenantWindow{tenant, window}
		if resolutionOf(window) == rollup.Raw && !rolled[at] {
			if _, err := s.rollWindow(ctx, tenant, window, func() {}); err != nil {
				return fmt.Errorf("storage: window %d of %q stays, for its rollups could not be made: %w", window, tenant, err)
			}
		}
		rolled[at] = true
	}
	return nil
}

// expired finds what is past its retention.
func (s *Store) expired(ctx context.Context) (drops, error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	d := drops{}
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		newest, ok := s.newestGone(res, tenants)
		if !ok {
			continue
		}
		kept := map[int64]bool{} // by anybody
		for _, tenant := range tenants {
			windows, err := s.windowsOf(ctx, tenant, firstWindowOf(res), newest)
			if err != nil {
				return nil, err
			}
			for _, window := range windows {
				if s.isPast(window, s.classes.longest(tenant)) {
					d.add(dropped{window, wholeWindow, ""}, tenant)
					continue
				}
				kept[window] = true
				s.expiredClasses(window, tenant, d)
			}
		}
		for window := range kept {
			all := dropped{window, wholeWindow, ""}
			for _, tenant := range d[all] {
				d.add(dropped{window, wholeWindow, tenant}, tenant)
			}
			delete(d, all)
		}
	}
	return d, nil
}

func (d drops) add(part dropped, tenant string) { d[part] = append(d[part], tenant) }

// isPast says whether rows of a window that are kept so long may go.
func (s *Store) isPast(window int64, keep Keep) bool {
	newest, ok := s.expiredWindow(resolutionOf(window), keep)
	return ok && window <= newest
}

// newestGone returns the newest window of a resolution of which anything may go.
func (s *Store) newestGone(res rollup.Resolution, tenants []string) (newest int64, some bool) {
	for _, tenant := range tenants {
		for class := range s.classes.count() {
			if w, ok := s.expiredWindow(res, s.classes.keep(tenant, class)); ok && (!some || w > newest) {
				newest, some = w, true
			}
		}
	}
	return newest, some
}

// expiredClasses adds the classes that are past their retention in a window that a tenant keeps.
func (s *Store) expiredClasses(window int64, tenant string, d drops) {
	for class := range s.classes.count() {
		part := dropped{window, class, tenant}
		if len(s.classes.tenants) == 0 { // All tenants' are.
			part.tenant = ""
		}
		if s.isPast(window, s.classes.keep(tenant, class)) && !s.gone.has(part) {
			d.add(part, tenant)
		}
	}
}

// perTenant are the tables whose keys begin with window and tenant.
var perTenant = [...]*engine.Table{engine.Shards, engine.Metadata, engine.Sealed}

// dropWindow drops the rows of a window, and lists it no longer.
func (s *Store) dropWindow(ctx context.Context, window int64, tenants []string) error {
	res := resolutionOf(window)
	for _, t := range append([]*engine.Table{tableOf(res), engine.Catalog}, perTenant[:]...) {
		if err := s.drop(ctx, t, engine.Key{engine.Int(window)}); err != nil {
			return err
		}
	}
	return s.unlist(ctx, window, tenants...)
}

// dropTenant drops the rows of a tenant in a window that others have rows in, too.
func (s *Store) dropTenant(ctx context.Context, window int64, tenant string) error {
	res := resolutionOf(window)
	for class := range s.classes.count() {
		if err := s.drop(ctx, tableOf(res), engine.Key{engine.Int(window), engine.Int(class), engine.Text(tenant)}); err != nil {
			return err
		}
	}
	if err := s.drop(ctx, engine.Catalog, engine.Key{engine.Int(window), engine.Int(int64(res)), engine.Text(tenant)}); err != nil {
		return err
	}
	for _, t := range perTenant {
		if err := s.drop(ctx, t, engine.Key{engine.Int(window), engine.Text(tenant)}); err != nil {
			return err
		}
	}
	return s.unlist(ctx, window, tenant)
}

// dropPart drops one range.
func (s *Store) dropPart(ctx context.Context, d dropped, tenants []string) error {
	switch {
	case d.class == wholeWindow && d.tenant == "":
		return s.dropWindow(ctx, d.window, tenants)
	case d.class == wholeWindow:
		return s.dropTenant(ctx, d.window, d.tenant)
	}
	prefix := engine.Key{engine.Int(d.window), engine.Int(d.class)}
	if d.tenant != "" {
		prefix = append(prefix, engine.Text(d.tenant))
	}
	err := s.drop(ctx, tableOf(resolutionOf(d.window)), prefix)
	if err == nil {
		s.gone.add(d)
	}
	return err
}

func (s *Store) drop(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	if err := s.eng.Drop(ctx, t, prefix); err != nil {
		return fmt.Errorf("storage: dropping window %d of %s: %w", prefix[0].Int, t, err)
	}
	return nil
}

// unlist lists a window no longer for these tenants.
func (s *Store) unlist(ctx context.Context, window int64, tenants ...string) error {
	s.windows.forget(window)
	rows := make([]engine.Batch, len(tenants))
	for i, tenant := range tenants {
		rows[i] = engine.Batch{Table: engine.Windows, Partition: engine.Key{engine.Text(tenant)}, Mutations: []engine.Mutation{
			{Op: engine.Delete, Clustering: engine.Key{engine.Int(window)}, Timestamp: 1},
		}}
	}
	return s.eng.Write(ctx, rows)
}
