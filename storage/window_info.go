package storage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// WindowInfo describes a listed window of a tenant. A listed window may have rows.
type WindowInfo struct {
	Tenant     string
	Resolution rollup.Resolution
	Window     int64
	// Start and End are the start and end of the window.
	Start, End time.Time
	// Hidden is the time at which the window's last samples are past the longest retention of the tenant and its
	// classes, as configured in Options. Goes is the time at which the rows are deleted, which is a week of observed
	// uptime after Hidden. Both are zero if the window is kept forever. Engines that expire rows may delete them
	// earlier.
	Hidden, Goes time.Time
	// Unrolled is the number of seals, imports and deletes of a raw window that its rollups don't include. The window
	// isn't dropped before its rollups are complete.
	Unrolled int
}

// WindowInfos lists all windows by resolution, tenant and time. It reads commit records, but no samples.
func (s *Store) WindowInfos(ctx context.Context) ([]WindowInfo, error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	var list []WindowInfo
	for _, tenant := range tenants {
		ofTenant, err := s.windowInfosOf(ctx, tenant)
		if err != nil {
			return nil, err
		}
		list = append(list, ofTenant...)
	}
	slices.SortStableFunc(list, func(a, b WindowInfo) int {
		return cmp.Or(cmp.Compare(a.Resolution, b.Resolution), cmp.Compare(a.Tenant, b.Tenant), a.End.Compare(b.End))
	})
	return list, nil
}

// windowInfosOf lists the windows of a tenant by resolution and time.
func (s *Store) windowInfosOf(ctx context.Context, tenant string) (list []WindowInfo, err error) {
	b, err := s.retention.Boundaries(ctx, tenant)
	if err != nil {
		return nil, err
	}
	windows, err := s.windowsOf(ctx, tenant, -allWindows, allWindows)
	if err != nil {
		return nil, err
	}
	for _, w := range windows {
		k := s.windowInfo(b, tenant, w)
		if k.Resolution == rollup.Raw {
			missing, err := s.listUnrolled(ctx, tenant, w)
			if err != nil {
				return nil, err
			}
			k.Unrolled = len(missing)
		}
		list = append(list, k)
	}
	return list, nil
}

func (s *Store) windowInfo(b *retention.Boundaries, tenant string, window int64) WindowInfo {
	k := WindowInfo{Tenant: tenant, Window: window, Resolution: format.ResolutionOf(window)}
	k.Start = time.UnixMilli(s.period.WindowStart(window)).UTC()
	k.End = time.UnixMilli(s.period.WindowEnd(window)).UTC()
	k.Hidden, k.Goes = s.retention.Lifetime(b, tenant, window)
	return k
}
