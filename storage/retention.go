package storage

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// expireGrace is how long after its retention a window may still stand.
const expireGrace = 7 * 24 * time.Hour

// windowList remembers which windows this process has listed.
type windowList struct {
	mu     sync.Mutex
	listed map[tenantWindow]struct{}
}

type tenantWindow struct {
	tenant string
	window int64
}

// maxListed bounds windowList; when full it forgets all.
const maxListed = 1 << 16

// listWindow makes sure that a window of a tenant, and the tenant, are listed. It comes before any row that
// readers must find there.
func (s *Store) listWindow(ctx context.Context, tenant string, window int64) error {
	at := tenantWindow{tenant, window}
	l := &s.windows
	l.mu.Lock()
	_, ok := l.listed[at]
	l.mu.Unlock()
	if ok {
		return nil
	}
	err := s.eng.Write(ctx, []engine.Batch{
		{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text(tenant)}, Timestamp: 1, Value: []byte{1},
		}}},
		{Table: engine.Windows, Partition: engine.Key{engine.Text(tenant)}, Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Int(window)}, Timestamp: 1, Value: []byte{1},
		}}},
	})
	if err != nil {
		return fmt.Errorf("storage: listing window %d of %q: %w", window, tenant, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.listed) >= maxListed || l.listed == nil {
		l.listed = map[tenantWindow]struct{}{}
	}
	l.listed[at] = struct{}{}
	return nil
}

// forget makes sure that a window is listed again before anything is written in it.
func (l *windowList) forget(window int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.listed, func(at tenantWindow, _ struct{}) bool { return at.window == window })
}

// windowsOf lists the windows from first to last in which a tenant may have rows, in order.
func (s *Store) windowsOf(ctx context.Context, tenant string, first, last int64) (windows []int64, err error) {
	return s.windowsAround(ctx, tenant, first, last, s.noteGap)
}

// everyWindow is windowsOf for whoever removes rows: where some can't be read, that is an error.
func (s *Store) everyWindow(ctx context.Context, tenant string, first, last int64) (windows []int64, err error) {
	return s.windowsAround(ctx, tenant, first, last, nil)
}

// windowsAround is windowsOf; missed, if set, is told of what can't be read.
func (s *Store) windowsAround(ctx context.Context, tenant string, first, last int64, missed func(*DamagedRowsError)) (windows []int64, err error) {
	rows := engine.Range{
		Table: engine.Windows, Partition: engine.Key{engine.Text(tenant)}, KeysOnly: true,
		From: engine.Key{engine.Int(first)}, To: engine.Key{engine.Int(last)},
	}
	if missed != nil {
		rows.Damaged = func(d engine.Damage) { missed(s.gapOf(&rows, d)) }
	}
	for row, err := range s.eng.Scan(ctx, rows) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing windows of %q: %w", tenant, err)
		}
		windows = append(windows, row.Clustering[0].Int)
	}
	return windows, nil
}

// allWindows are the bounds of windowsOf that leave none out.
const allWindows = int64(math.MaxInt64)

// Tenants lists the tenants that have, or had, sealed rows or metadata.
func (s *Store) Tenants(ctx context.Context) (names []string, err error) {
	return s.tenantsAround(ctx, s.noteGap)
}

// everyTenant is Tenants for whoever removes rows: where some can't be read, that is an error.
func (s *Store) everyTenant(ctx context.Context) (names []string, err error) {
	return s.tenantsAround(ctx, nil)
}

// tenantsAround is Tenants; missed, if set, is told of what can't be read.
func (s *Store) tenantsAround(ctx context.Context, missed func(*DamagedRowsError)) (names []string, err error) {
	rows := engine.Range{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, KeysOnly: true}
	if missed != nil {
		rows.Damaged = func(d engine.Damage) { missed(s.gapOf(&rows, d)) }
	}
	for row, err := range s.eng.Scan(ctx, rows) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing tenants: %w", err)
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, nil
}

// expiresAfter returns when rows of a window that are kept so long may vanish, seconds since 1970; 0: never.
func (s *Store) expiresAfter(window int64, keep Keep) int64 {
	kept := keep.Of(resolutionOf(window))
	if kept == 0 {
		return 0
	}
	return (s.period.endOf(window) + kept.Milliseconds() + expireGrace.Milliseconds()) / 1000
}

// expires is expiresAfter for what a tenant's classes share: names, marks, shards.
func (s *Store) expires(window int64, tenant string) int64 {
	return s.expiresAfter(window, s.classes.longest(tenant))
}

// isOutlived says whether the flags ask for a window of a resolution, that which holds a slot, no more: its end, the
// retention and the grace have passed. What isn't made yet needn't be made then; what is there goes by horizons alone.
func (s *Store) isOutlived(res rollup.Resolution, slot int64, keep Keep) bool {
	kept := keep.Of(res)
	return kept != 0 && s.period.endOf(s.period.windowOfSlot(res, slot)) <= s.wanted(kept+expireGrace)
}
