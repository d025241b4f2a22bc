package storage

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// lookBack is how far back windows are looked for that aren't listed, where less is kept; lookBackForever where
	// nothing expires.
	lookBack        = 400 * 24 * time.Hour
	lookBackForever = 5 * 365 * 24 * time.Hour
	// leftWorkers is how many windows are looked at at once.
	leftWorkers = 16
)

// unlistedRows returns the windows of a tenant that have rows and aren't listed, in order.
func (s *Store) unlistedRows(ctx context.Context, tenant string) ([]int64, error) {
	have, err := s.everyWindow(ctx, tenant, -allWindows, allWindows)
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(leftWorkers)
	var mu sync.Mutex
	var found []int64
	earlier, later := s.clock.Bounds()
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		back := lookBackForever
		if kept := s.classes.longest(tenant).Of(res); kept != 0 {
			back = max(lookBack, kept+expireGrace)
		}
		newest := s.period.WindowAt(res, later.Add(MaxAhead).UnixMilli())
		for w := s.period.WindowAt(res, earlier.Add(-back).UnixMilli()); w <= newest; w++ {
			if _, is := slices.BinarySearch(have, w); is {
				continue
			}
			g.Go(panics.AsError("listing windows", func() error {
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
	err = g.Wait()
	slices.Sort(found)
	return found, err
}

// unlisted names the windows of a tenant that have rows and aren't listed. Where rows don't expire by themselves they have
// gone with their windows' rows. In a window that was dropped, a write that failed may be applied after the window was unlisted: nothing
// shows such rows, and they expire.
func (c *checker) unlisted(tenant string) error {
	if !c.s.expiring {
		return nil
	}
	found, err := c.s.unlistedRows(c.ctx, tenant)
	if err != nil || len(found) == 0 {
		return err
	}
	horizons, err := c.s.horizonsOf(c.ctx, tenant)
	if err != nil {
		return err
	}
	for _, w := range found {
		if !c.s.allDropped(horizons, w) {
			c.report("windows: %s window %d of tenant %q, until %s, has rows but isn't listed, so queries don't find it",
				format.ResolutionOf(w), w, tenant, format.Instant(c.s.period.WindowEnd(w)))
		}
	}
	return nil
}
