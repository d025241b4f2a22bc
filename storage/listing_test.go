package storage

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// openExpiring opens a store on an engine that expires rows, as Cassandra does.
func openExpiring(t testing.TB, change func(*Options)) *testStore {
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.memory = unclosed{memory.NewExpiring(ts.opts.Now)}
	change(&ts.opts)
	ts.open()
	t.Cleanup(ts.close)
	return ts
}

// keeping opens the store again with other retentions.
func (ts *testStore) keeping(raw, fiveMinutes, oneHour time.Duration) {
	ts.t.Helper()
	ts.opts.Retention, ts.opts.Retention5m, ts.opts.Retention1h = raw, fiveMinutes, oneHour
	ts.reopen()
}

// expire advances the time in steps of 12 hours. It calls Expire before each step and at the end.
func (ts *testStore) expire(passed time.Duration) {
	ts.t.Helper()
	for until := ts.now.Add(passed); ; ts.now = ts.now.Add(12 * time.Hour) {
		_, err := ts.Expire(ts.t.Context())
		require.NoError(ts.t, err)
		if !ts.now.Before(until) {
			return
		}
	}
}

// brings imports samples of one series.
func (ts *testStore) brings(ls labels.Labels, samples ...sample) ImportStats {
	ts.t.Helper()
	return importInto(ts.t, ts.Store, ls, samples...)
}

func importInto(t testing.TB, s *Store, ls labels.Labels, samples ...sample) ImportStats {
	t.Helper()
	var list chunk.Samples
	for _, x := range samples {
		list.AppendFloat(x.t, 0, x.v)
	}
	stats, err := s.Import(t.Context(), "default", []ImportedSeries{{ls, &list}})
	require.NoError(t, err)
	return stats
}

// every returns n samples at intervals of step. The first sample is at begin.
func every(begin time.Time, step time.Duration, n int) (list []sample) {
	for i := range n {
		list = append(list, sample{begin.Add(time.Duration(i) * step).UnixMilli(), float64(i)})
	}
	return list
}

// TestOneStartWithAShortRetentionHidesNothingForEver lowers the retention for one start, and raises it again. Samples
// that were stored before, and samples that are written later, must be found.
func TestOneStartWithAShortRetentionHidesNothingForEver(t *testing.T) {
	ts := openExpiring(t, func(o *Options) { o.Retention = 365 * day })
	ls := jobLabels("old")
	want := every(ts.now.Add(-60*day), time.Minute, 200)
	ts.brings(ls, want...)
	ts.keeping(30*day, 30*day, 0)
	ts.expire(0)
	ts.keeping(365*day, 365*day, 0)
	ts.expire(0)
	require.Equal(t, want, ts.all("default")[ls.String()], "raised again")
	require.Equal(t, len(want), ts.brings(ls, want...).Known)
	require.Equal(t, want, ts.all("default")[ls.String()], "imported again")
	ts.write("default", jobLabels("new"), want...)
	require.NoError(t, ts.SealAll(t.Context()))
	require.Equal(t, want, ts.all("default")[jobLabels("new").String()], "written and sealed")
}

// TestWindowsThatLostTheirListing opens a store without the rows that list windows. Check must report the windows, and
// an import or a seal must list them again.
func TestWindowsThatLostTheirListing(t *testing.T) {
	old := sample{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli(), 1}
	open := func(t *testing.T) *testStore {
		ts := openExpiring(t, func(o *Options) { o.Retention = 365 * day })
		ts.brings(jobLabels("old"), old)
		eng := memory.NewExpiring(ts.opts.Now)
		copyUnlisted(t, ts.eng, eng)
		require.NoError(t, ts.Store.Close())
		ts.memory = unclosed{eng}
		ts.open()
		require.Empty(t, ts.all("default"))
		return ts
	}
	t.Run("check names it", func(t *testing.T) {
		ts := open(t)
		var problems []string
		_, err := ts.Check(t.Context(), func(p string) { problems = append(problems, p) })
		require.NoError(t, err)
		require.Len(t, problems, 3, "one of each resolution")
		for _, p := range problems {
			require.Contains(t, p, "isn't listed")
		}
		ts.damaged = true
	})
	t.Run("an import lists it", func(t *testing.T) {
		ts := open(t)
		require.Equal(t, 1, ts.brings(jobLabels("old"), old).Known)
		require.Equal(t, map[string][]sample{jobLabels("old").String(): {old}}, ts.all("default"))
	})
	t.Run("a seal lists it", func(t *testing.T) {
		ts := open(t)
		ts.write("default", jobLabels("new"), old)
		require.NoError(t, ts.SealAll(t.Context()))
		require.Len(t, ts.all("default"), 2)
	})
}

// copyUnlisted copies the rows of an import, except those that list windows.
func copyUnlisted(t *testing.T, from engine.Engine, to *memory.Engine) {
	t.Helper()
	for _, b := range from.(unclosed).Engine.(*memory.Engine).All() {
		if b.Table.Conditional {
			for _, m := range b.Mutations {
				_, _, err := to.CompareAndSet(t.Context(), b.Table, b.Partition, m.Clustering, nil, m.Value)
				require.NoError(t, err)
			}
			continue
		}
		if b.Table == engine.Windows {
			continue
		}
		require.NoError(t, to.Write(t.Context(), []engine.Batch{b}))
	}
}

// hookEngine calls do before call number at of the engine.
type hookEngine struct {
	engine.Engine
	mu    sync.Mutex
	calls int
	at    int
	do    func()
}

func (e *hookEngine) call() {
	e.mu.Lock()
	do := e.do
	if e.calls++; do == nil || e.calls != e.at {
		do = nil
	} else {
		e.do = nil
	}
	e.mu.Unlock()
	if do != nil {
		do()
	}
}

func (e *hookEngine) Write(ctx context.Context, batches []engine.Batch) error {
	e.call()
	return e.Engine.Write(ctx, batches)
}

func (e *hookEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	e.call()
	return e.Engine.Scan(ctx, r)
}

// before runs f, and calls do before the nth call of the engine that f makes. It returns false if f makes fewer calls.
func (e *hookEngine) before(n int, do, f func()) bool {
	e.mu.Lock()
	e.calls, e.at, e.do = 0, n, do
	e.mu.Unlock()
	f()
	e.mu.Lock()
	defer e.mu.Unlock()
	reached := e.do == nil
	e.do = nil
	return reached
}

// TestListingRaces removes a window from the list of windows at every step of another process' import into it, and
// imports at every step of the removal. The imported samples must be found.
func TestListingRaces(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	x := sample{now.Add(-20 * day).UnixMilli(), 1}
	ls := jobLabels("web")
	open := func(e engine.Engine) (*Store, *hookEngine) {
		h := &hookEngine{Engine: e}
		o := DefaultOptions()
		o.Shared, o.Now, o.Partitions, o.seams.still = true, func() time.Time { return now }, 2, true
		s := openReady(t, h, o)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s, h
	}
	scene := func(t *testing.T, n int, importing bool) bool {
		shared := unclosed{memory.NewExpiring(func() time.Time { return now })}
		writer, atWriter := open(shared)
		remover, atRemover := open(shared)
		window := writer.period.RawWindowAt(x.t)
		// Both processes have cached that the window is listed. It has no rows.
		for _, s := range []*Store{writer, remover} {
			require.NoError(t, s.listWindow(t.Context(), "default", window))
		}
		put := func() { importInto(t, writer, ls, x) }
		unlist := func() {
			_, err := remover.unlistWindow(t.Context(), "default", window)
			require.NoError(t, err)
		}
		var reached bool
		if importing {
			reached = atWriter.before(n, unlist, put)
		} else if reached = atRemover.before(n, put, unlist); !reached {
			put()
		}
		found, err := remover.windowsOf(t.Context(), "default", window, window)
		require.NoError(t, err)
		require.Equal(t, []int64{window}, found, "call %d", n)
		return reached
	}
	for _, importing := range []bool{true, false} {
		n := 1
		for ; scene(t, n, importing); n++ {
		}
		require.Greater(t, n, 3)
	}
}

// TestUnlistedWindowsTakeNoTime checks that a window is listed only while it has rows.
func TestUnlistedWindowsTakeNoTime(t *testing.T) {
	ts := openExpiring(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 2*day, 2*day, 2*day })
	is := func(window int64) bool {
		found, err := ts.windowsOf(t.Context(), "default", window, window)
		require.NoError(t, err)
		return len(found) > 0
	}
	for range 3 {
		at := ts.now.Add(-time.Hour).UnixMilli()
		window := ts.period.RawWindowAt(at)
		ts.brings(jobLabels("web"), sample{at, 1})
		require.True(t, is(window))
		ts.expire(20 * day)
		require.False(t, is(window))
		// The window is listed again, to check that the earlier removal doesn't win.
		require.NoError(t, ts.listWindow(t.Context(), "default", window))
		require.True(t, is(window))
		done, err := ts.unlistWindow(t.Context(), "default", window)
		require.NoError(t, err)
		require.True(t, done)
		require.False(t, is(window))
	}
}
