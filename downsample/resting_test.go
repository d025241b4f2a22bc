package downsample

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/ended"
)

// overDays yields one past window per day for each tenant, tenant by tenant.
func overDays(tenants, days int) iter.Seq2[ended.OverWindow, error] {
	return func(yield func(ended.OverWindow, error) bool) {
		for t := range tenants {
			for d := range days {
				w := ended.OverWindow{
					Tenant: fmt.Sprintf("tenant-%03d", t), Window: int64(d), EndMS: int64(d+1) * 86_400_000,
				}
				if !yield(w, nil) {
					return
				}
			}
		}
	}
}

// listing is a restingWindows with a clock, and counts its listings.
type listing struct {
	restingWindows
	t     *testing.T
	clock time.Time
	lists int
}

func newListing(t *testing.T, most int) *listing {
	return &listing{t: t, clock: testStart, restingWindows: restingWindows{most: most}}
}

func (l *listing) now() time.Time { return l.clock }

func (l *listing) list1(all iter.Seq2[ended.OverWindow, error]) {
	l.t.Helper()
	require.NoError(l.t, l.set(all, l.now))
	l.lists++
}

// without yields the windows that aren't in done.
func without(all iter.Seq2[ended.OverWindow, error], done map[windowKey]bool) iter.Seq2[ended.OverWindow, error] {
	return func(yield func(ended.OverWindow, error) bool) {
		for w, err := range all {
			if !done[windowKey{w.Tenant, w.Window}] && !yield(w, err) {
				return
			}
		}
	}
}

// workOff processes all windows, and returns them in the order in which they were tried. fails selects the windows that
// fail.
func (l *listing) workOff(all iter.Seq2[ended.OverWindow, error], fails func(*restingWindow) bool) (order []windowKey) {
	l.t.Helper()
	done, failed, windows := map[windowKey]bool{}, map[windowKey]bool{}, 0
	for range all {
		windows++
	}
	for rounds := 0; len(done)+len(failed) < windows; rounds++ {
		require.Less(l.t, rounds, 1000, "%d of %d", len(done)+len(failed), windows)
		if l.due(l.clock, thoroughInterval) {
			l.list1(without(all, done))
		}
		l.clock = l.clock.Add(overRest)
		for {
			w, ok := l.pick(l.clock)
			if !ok {
				break
			}
			order = append(order, w.key())
			if fails(w) {
				failed[w.key()] = true
				l.finish(w, errors.New("in vain"), l.clock)
				continue
			}
			done[w.key()] = true
			l.finish(w, nil, l.clock)
		}
	}
	return order
}

func never(*restingWindow) bool { return false }

// TestWorkIsLinearInWindows checks that twice as many windows need about twice the memory, so that no step for a single
// window iterates over all windows.
func TestWorkIsLinearInWindows(t *testing.T) {
	allocated := func(days int) uint64 {
		var before, after runtime.MemStats
		l := newListing(t, maxListed)
		runtime.ReadMemStats(&before)
		require.Len(t, l.workOff(overDays(20, days), never), 20*days)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	allocated(50)
	few, many := allocated(100), allocated(200)
	t.Logf("2,000 windows: %d bytes, 4,000: %d", few, many)
	require.Less(t, float64(many)/float64(few), 3.0)
	require.Less(t, many/4_000, uint64(2000), "bytes per window")
}

// TestWindowsAreListedInParts checks that a bounded number of windows is kept in memory, the oldest first, and that all
// waiting windows are counted.
func TestWindowsAreListedInParts(t *testing.T) {
	l := newListing(t, 10)
	l.list1(overDays(5, 20))
	require.Len(t, l.list, 10)
	require.Equal(t, 100, l.count())
	require.Equal(t, 100, l.status().Windows)
	for i, w := range l.list {
		require.Equal(t, windowKey{fmt.Sprintf("tenant-%03d", i%5), int64(i / 5)}, w.key())
	}
	order := l.workOff(overDays(5, 20), never)
	require.Len(t, order, 100)
	for i := 1; i < len(order); i++ {
		require.LessOrEqual(t, order[i-1].window, order[i].window+4, "about the oldest first")
	}
	require.Zero(t, l.count())
	require.Equal(t, 100, l.status().Done)
	require.Less(t, l.lists, 25)
}

// TestFailingWindowsKeepNoOthersOut checks that windows are processed even if as many older windows fail as are kept in
// memory.
func TestFailingWindowsKeepNoOthersOut(t *testing.T) {
	l := newListing(t, 10)
	order := l.workOff(overDays(1, 60), func(w *restingWindow) bool { return w.Window < 10 })
	seen := map[windowKey]bool{}
	for _, k := range order {
		seen[k] = true
	}
	require.Len(t, seen, 60)
}

// TestListsThatFailChangeNothing checks that a failed listing keeps the previous list.
func TestListsThatFailChangeNothing(t *testing.T) {
	l := newListing(t, 10)
	l.list1(overDays(1, 5))
	err := l.set(func(yield func(ended.OverWindow, error) bool) { yield(ended.OverWindow{}, errors.New("no")) }, l.now)
	require.ErrorContains(t, err, "no")
	require.Equal(t, 5, l.count())
	require.Len(t, l.list, 5)
}

// TestListsAreDue checks when windows are listed again: after an interval, later if listings are slow and empty, and
// immediately if the list is almost empty and more windows are waiting.
func TestListsAreDue(t *testing.T) {
	l := newListing(t, 10)
	require.True(t, l.due(l.clock, time.Hour))
	slowly := func(n int) iter.Seq2[ended.OverWindow, error] {
		return func(yield func(ended.OverWindow, error) bool) {
			l.clock = l.clock.Add(time.Minute)
			for w, err := range overDays(1, n) {
				if !yield(w, err) {
					return
				}
			}
		}
	}
	began := l.clock
	l.list1(slowly(0))
	require.False(t, l.due(began.Add(listingShare*time.Minute-1), time.Hour))
	require.True(t, l.due(began.Add(listingShare*time.Minute), time.Hour))
	require.True(t, l.due(began.Add(-time.Second), time.Hour), "the clock was set back")
	began = l.clock
	l.list1(slowly(5))
	require.False(t, l.due(began.Add(time.Hour-1), time.Hour))
	require.True(t, l.due(began.Add(time.Hour), time.Hour))
	l.list1(slowly(20))
	require.False(t, l.due(l.clock, time.Hour), "it has ten of them to do")
	for range 5 {
		l.finish(l.list[0], nil, l.clock)
	}
	require.True(t, l.due(l.clock, time.Hour))
	l.restingWindows.clear()
	require.True(t, l.due(l.clock, time.Hour))
	require.Zero(t, l.count())
}
