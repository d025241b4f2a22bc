package storage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/rollup"
)

// Kept is a window of a tenant that is listed: there may be rows in it.
type Kept struct {
	Tenant     string
	Resolution rollup.Resolution
	Window     int64
	// Start and End are what it spans.
	Start, End time.Time
	// Hidden is when the last of its samples is past the longest retention among the tenant's and the classes', as
	// the store was opened with, and Goes when its rows may vanish; zero: never.
	Hidden, Goes time.Time
	// Unrolled is how many seals of a raw window made no rollups: it isn't dropped before they are made.
	Unrolled int
}

// Kept lists all windows by resolution, tenant and time. It reads the marks, and no data.
func (s *Store) Kept(ctx context.Context) ([]Kept, error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	var list []Kept
	for _, tenant := range tenants {
		ofTenant, err := s.keptOf(ctx, tenant)
		if err != nil {
			return nil, err
		}
		list = append(list, ofTenant...)
	}
	slices.SortStableFunc(list, func(a, b Kept) int {
		return cmp.Or(cmp.Compare(a.Resolution, b.Resolution), cmp.Compare(a.Tenant, b.Tenant), a.End.Compare(b.End))
	})
	return list, nil
}

// keptOf lists those of a tenant, by resolution and time.
func (s *Store) keptOf(ctx context.Context, tenant string) (list []Kept, err error) {
	windows, err := s.windowsOf(ctx, tenant, -allWindows, allWindows)
	if err != nil {
		return nil, err
	}
	for _, w := range windows {
		k := s.keptWindow(tenant, w)
		if k.Resolution == rollup.Raw {
			missing, err := s.unrolled(ctx, tenant, w)
			if err != nil {
				return nil, err
			}
			k.Unrolled = len(missing)
		}
		list = append(list, k)
	}
	return list, nil
}

func (s *Store) keptWindow(tenant string, window int64) Kept {
	k := Kept{Tenant: tenant, Window: window, Resolution: resolutionOf(window)}
	width := time.Duration(s.period.ofWindow(window).RawWindowMS) * time.Millisecond
	switch k.Resolution {
	case rollup.FiveMinutes:
		width = time.Duration(window5mMS) * time.Millisecond
	case rollup.OneHour:
		width = time.Duration(window1hMS) * time.Millisecond
	}
	k.End = time.UnixMilli(s.period.endOf(window)).UTC()
	k.Start = k.End.Add(-width)
	if kept := s.classes.longest(tenant).Of(k.Resolution); kept > 0 {
		k.Hidden = k.End.Add(kept)
		k.Goes = k.Hidden.Add(expireGrace)
	}
	return k
}
