package storage

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// Windows are searched for unlisted rows up to an age of at least minSearchAge, or of minSearchAgeForever if their
	// rows are kept forever.
	minSearchAge        = 400 * 24 * time.Hour
	minSearchAgeForever = 5 * 365 * 24 * time.Hour
	// unlistedWorkers is the number of windows that are read concurrently.
	unlistedWorkers = 16
)

// unlistedRows returns the windows of a tenant that have rows although they aren't listed, in order. It omits dropped
// windows: a failed write may still be applied to a window that was dropped and unlisted, but queries never return its
// rows, and they expire. On engines that don't expire rows it returns no windows, because dropping a window deletes all
// of its rows.
func (s *Store) unlistedRows(ctx context.Context, tenant string) ([]int64, error) {
	if !s.retention.Expires() {
		return nil, nil
	}
	have, err := s.readableWindows(ctx, tenant, -allWindows, allWindows)
	if err != nil {
		return nil, err
	}
	outer := ctx
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(unlistedWorkers)
	var mu sync.Mutex
	var found []int64
	earlier, later := s.clock.Bounds()
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		back := minSearchAgeForever
		if kept := s.retention.LongestRetention(tenant).Duration(res); kept != 0 {
			back = max(minSearchAge, kept+retention.Grace)
		}
		newest := s.period.WindowAt(res, later.Add(MaxAhead).UnixMilli())
		for w := s.period.WindowAt(res, earlier.Add(-back).UnixMilli()); w <= newest; w++ {
			if _, is := slices.BinarySearch(have, w); is {
				continue
			}
			g.Go(panics.WrapError("listing windows", func() error {
				rows, err := s.hasRows(ctx, tenant, w)
				if rows {
					mu.Lock()
					found = append(found, w)
					mu.Unlock()
				}
				return err
			}))
		}
	}
	if err := g.Wait(); err != nil || len(found) == 0 {
		return nil, err
	}
	slices.Sort(found)
	horizons, err := s.retention.Boundaries(outer, tenant)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(w int64) bool { return s.retention.AllDropped(horizons, w) }), nil
}
