package counts

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/rollup"
)

// WindowSeries is the number of series in a raw window, and the change since the previous window.
type WindowSeries struct {
	Window     int64
	Start, End time.Time
	Metrics    int
	Series     int
	// Added is the number of series that aren't in the previous window. Gone is the number of series that are only in
	// the previous window. Both are -1 if there is no previous window.
	Added, Gone int
}

// maxChurnSeries is the number of series after which a call of Churn reads no more windows.
const maxChurnSeries = 5_000_000

// Churn compares a tenant's newest raw windows, oldest first. cut is true if the list doesn't contain all requested
// windows, because the newer ones have more than maxChurnSeries series. Churn reads the stored counts of windows that
// haven't been written to since they were counted. For other windows it reads keys, and caches the result until the
// window changes.
func (s *Statistics) Churn(ctx context.Context, tenant string, windows int) (list []WindowSeries, cut bool, err error) {
	r, err := s.env.NewReader(ctx, tenant, damage.Warnings(ctx))
	if err != nil {
		return nil, false, err
	}
	found, err := r.Windows(ctx)
	if err != nil {
		return nil, false, err
	}
	found = found[max(0, len(found)-windows-1):] // One more window is needed to compare the oldest one.
	c := churn{s: s, WindowReader: r, tenant: tenant, all: make([]comparedWindow, len(found))}
	for i, w := range found {
		if err := c.readWindow(ctx, i, w); err != nil {
			return nil, false, err
		}
	}
	first, read := len(found), 0
	for ; first > 0; first-- { // Newest first, so that older windows are omitted if there are too many series.
		if !c.needsSet(first-1, len(found) <= windows) {
			continue
		}
		if read > maxChurnSeries {
			cut = true
			break
		}
		w := &c.all[first-1]
		if w.set, err = c.readSet(ctx, w); err != nil {
			return nil, false, err
		}
		read += len(w.set.ids)
	}
	for i := first; i < len(c.all); i++ {
		list = append(list, c.series(i))
	}
	return list[max(0, len(list)-windows):], cut, nil
}

// churn compares consecutive windows.
type churn struct {
	WindowReader

	s      *Statistics
	tenant string
	all    []comparedWindow
}

// comparedWindow holds the stored counts of a window, and its series if they are needed.
type comparedWindow struct {
	WindowVersion
	classes []int64
	state   uint64
	// follows is true if the previous window in the list ends where this one starts, so that they can be compared.
	follows bool
	storedSeries
	set *windowSet // nil if not needed
}

// readWindow reads the state of a window and its stored counts.
func (c *churn) readWindow(ctx context.Context, i int, found WindowVersion) error {
	classes, others, err := c.s.env.Classes(ctx, c.tenant, found.Window)
	if err != nil {
		return err
	}
	w, before := &c.all[i], uint64(0)
	*w = comparedWindow{WindowVersion: found, classes: classes, state: stateOf(found.Version, others)}
	if i > 0 && c.s.env.Period.RawWindowEnd(c.all[i-1].Window) == c.s.env.Period.WindowEnd(found.Window-1) {
		w.follows = true
		if c.s.MayHaveCounts(c.all[i-1].Window) {
			before = c.all[i-1].state
		}
	}
	w.storedSeries = c.s.storedSeries(ctx, c.tenant, found.Window, w.state, before)
	return ctx.Err()
}

// needsSet reports whether the ids of a window's series must be read. firstToo is true if the series of the first
// window are also counted.
func (c *churn) needsSet(i int, firstToo bool) bool {
	w := &c.all[i]
	return w.head == nil && (i > 0 || firstToo) || w.follows && w.change == nil ||
		i+1 < len(c.all) && c.all[i+1].follows && c.all[i+1].change == nil
}

func (c *churn) series(i int) WindowSeries {
	w := &c.all[i]
	one := WindowSeries{
		Window: w.Window, Start: time.UnixMilli(c.s.env.Period.WindowEnd(w.Window - 1)).UTC(),
		End: time.UnixMilli(c.s.env.Period.WindowEnd(w.Window)).UTC(), Added: -1, Gone: -1,
	}
	if w.head != nil {
		one.Series, one.Metrics = int(w.head.Series), int(w.head.AllMetrics)
	} else if w.set != nil {
		one.Series, one.Metrics = len(w.set.ids), w.set.metrics
	}
	switch {
	case w.change != nil:
		one.Added, one.Gone = int(w.change.Added), int(w.change.Gone)
	case w.follows && c.all[i-1].set != nil:
		both := 0
		for id := range w.set.ids {
			if _, ok := c.all[i-1].set.ids[id]; ok {
				both++
			}
		}
		one.Added, one.Gone = len(w.set.ids)-both, len(c.all[i-1].set.ids)-both
	}
	return one
}

// windowSet holds the ids of a window's series, and the number of metrics with series.
type windowSet struct {
	ids     map[format.SeriesID]struct{}
	metrics int
}

// idBytes is the approximate size of an id in a map.
const idBytes = 24

func (w *windowSet) Bytes() int64 { return int64(len(w.ids)) * idBytes }

func (c *churn) readSet(ctx context.Context, w *comparedWindow) (*windowSet, error) {
	v, err := c.s.env.Cache.Get(ctx, cache.EntryKey{Kind: cache.KindIDs, Window: w.Window, Tenant: c.tenant}, w.state,
		func(ctx context.Context) (cache.EntryValue, error) {
			metrics, err := c.Metrics(ctx, w.WindowVersion)
			if err != nil {
				return nil, err
			}
			set := &windowSet{ids: map[format.SeriesID]struct{}{}}
			size, walk := meter.NewLoad(ctx, c.s.env.QueryBytes), newLenientWalk(c, c.tenant, w.Window, w.classes)
			for _, m := range metrics {
				before := len(set.ids)
				err := walk.all(ctx, m, true, func(row engine.Row) error {
					var id format.SeriesID
					copy(id[:], row.Clustering[format.SeriesField(rollup.Raw)].Text)
					set.ids[id] = struct{}{}
					return size.Charge(idBytes)
				})
				if err != nil {
					return nil, err
				}
				set.metrics += min(1, len(set.ids)-before)
			}
			return set, nil
		})
	if err != nil {
		return nil, err
	}
	return v.(*windowSet), nil
}
