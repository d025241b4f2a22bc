package storage

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
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
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Windows, Partition: engine.Key{engine.Text(tenant)}, KeysOnly: true,
		From: engine.Key{engine.Int(first)}, To: engine.Key{engine.Int(last)},
	}) {
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
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing tenants: %w", err)
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, nil
}

// expires returns when rows of a window may vanish, seconds since 1970; 0: never.
func (s *Store) expires(window int64) int64 {
	kept := s.opts.retention(resolutionOf(window))
	if kept == 0 {
		return 0
	}
	return (s.period.endOf(window) + kept.Milliseconds() + expireGrace.Milliseconds()) / 1000
}

// expiredWindow returns the newest window of a resolution whose rows may go: its end, the retention and the
// grace have passed. Without a retention none may.
func (s *Store) expiredWindow(res rollup.Resolution) (int64, bool) {
	kept := s.opts.retention(res)
	if kept == 0 {
		return 0, false
	}
	until := s.opts.Now().Add(-kept - expireGrace).UnixMilli()
	return s.period.windowAt(res, until+1) - 1, true
}

// Expire drops the windows that are past their retention, and returns how many. No seal runs meanwhile.
func (s *Store) Expire(ctx context.Context) (windows int, err error) {
	expired, err := s.expired(ctx)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	for window, tenants := range expired {
		if resolutionOf(window) != rollup.Raw {
			continue
		}
		for _, tenant := range tenants { // Raw never goes before its rollups are there.
			if _, err := s.rollWindow(ctx, tenant, window, func() {}); err != nil {
				return 0, fmt.Errorf("storage: window %d of %q stays, for its rollups could not be made: %w", window, tenant, err)
			}
		}
	}
	for i := range s.sealMu {
		s.sealMu[i].Lock()
		defer s.sealMu[i].Unlock()
	}
	for _, window := range slices.Sorted(maps.Keys(expired)) {
		if err := s.dropWindow(ctx, window, expired[window]); err != nil {
			return windows, err
		}
		windows++
		s.metrics.droppedWindows.Inc()
	}
	return windows, nil
}

// expired returns the windows of all resolutions that are past their retention, and who has rows there.
func (s *Store) expired(ctx context.Context) (map[int64][]string, error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	expired := map[int64][]string{}
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		newest, ok := s.expiredWindow(res)
		if !ok {
			continue
		}
		for _, tenant := range tenants {
			list, err := s.windowsOf(ctx, tenant, firstWindowOf(res), newest)
			if err != nil {
				return nil, err
			}
			for _, window := range list {
				expired[window] = append(expired[window], tenant)
			}
		}
	}
	return expired, nil
}

// dropWindow drops the rows of a window, and lists it no longer.
func (s *Store) dropWindow(ctx context.Context, window int64, tenants []string) error {
	for _, t := range []*engine.Table{tableOf(resolutionOf(window)), engine.Catalog, engine.Shards, engine.Metadata, engine.Sealed} {
		if err := s.eng.Drop(ctx, t, engine.Key{engine.Int(window)}); err != nil {
			return fmt.Errorf("storage: dropping window %d of %s: %w", window, t, err)
		}
	}
	s.windows.forget(window)
	rows := make([]engine.Batch, len(tenants))
	for i, tenant := range tenants {
		rows[i] = engine.Batch{Table: engine.Windows, Partition: engine.Key{engine.Text(tenant)}, Mutations: []engine.Mutation{
			{Op: engine.Delete, Clustering: engine.Key{engine.Int(window)}, Timestamp: 1},
		}}
	}
	return s.eng.Write(ctx, rows)
}
