package storage

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// scanCounter counts the scans of tables with a context from counted, which excludes the scans of the store's own
// goroutines.
type scanCounter struct {
	engine.Engine
	engine.Versioned
	mu    sync.Mutex
	scans map[*engine.Table]int
}

func countScans(of interface {
	engine.Engine
	engine.Versioned
}) *scanCounter {
	return &scanCounter{Engine: of, Versioned: of, scans: map[*engine.Table]int{}}
}

type countedKey struct{}

// counted returns a context whose scans are counted by scanCounter.
func counted(ctx context.Context) context.Context { return context.WithValue(ctx, countedKey{}, true) }

// Scan implements engine.Engine.
func (c *scanCounter) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if ctx.Value(countedKey{}) != nil {
		c.mu.Lock()
		c.scans[r.Table]++
		c.mu.Unlock()
	}
	return c.Engine.Scan(ctx, r)
}

// since returns the number of scans of a table since the last call.
func (c *scanCounter) since(t *engine.Table) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.scans[t]
	delete(c.scans, t)
	return n
}

// TestWindowsAndMarksAreRemembered checks that lists of windows and commit records are read once, and again only after
// a seal, late samples, a delete, or a drop of windows.
func TestWindowsAndMarksAreRemembered(t *testing.T) {
	counter := countScans(memory.New())
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: counter}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions, ts.opts.Retention, ts.opts.Retention5m = 1, 20*24*time.Hour, 30*24*time.Hour
	ts.open()
	t.Cleanup(ts.close)
	ls := labels.FromStrings(labels.MetricName, "m", "job", "j")
	hour := int64(time.Hour / time.Millisecond)
	noon := ts.now.UnixMilli()
	sealed := func(at int64, v float64) {
		ts.write("default", ls, sample{at, v})
		require.NoError(t, ts.SealAll(t.Context()))
	}
	count := func(res rollup.Resolution) (samples int) {
		q := query.Query{
			Tenant: "default", MinT: noon - 100*24*hour, MaxT: noon,
			Matchers:   []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m")},
			Resolution: res, Columns: rollup.ColumnCount,
		}
		list, err := ts.Select(counted(t.Context()), q)
		require.NoError(t, err)
		for _, s := range list {
			if res == rollup.Raw {
				var all chunk.Samples
				require.NoError(t, s.Samples(&all))
				samples += all.Len()
				continue
			}
			var b rollup.Buckets
			var buf query.BucketBuffers
			require.NoError(t, s.Buckets(&b, &buf))
			for _, n := range b.Count {
				samples += int(n)
			}
		}
		return samples
	}
	has := func(want int) {
		t.Helper()
		counter.since(engine.Sealed)
		for _, res := range []rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour} {
			require.Equal(t, want, count(res), res)
		}
		require.Positive(t, counter.since(engine.Sealed))
		require.Eventually(t, func() bool { // Background work may change a window again.
			counter.since(engine.Windows)
			counter.since(engine.Sealed)
			for _, res := range []rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour} {
				require.Equal(t, want, count(res), res)
			}
			return counter.since(engine.Sealed) == 0 && counter.since(engine.Windows) == 0
		}, time.Minute, time.Millisecond, "marks or windows are read again")
	}
	sealed(noon-5*hour, 1)
	has(1)
	counter.since(engine.Windows)
	sealed(noon-5*hour+60_000, 2) // Late.
	has(2)
	sealed(noon-60*hour, 3) // In windows that weren't listed.
	has(3)
	require.NoError(t, ts.Delete(
		t.Context(), "default", noon-61*hour, noon-59*hour, labels.MustNewMatcher(labels.MatchEqual, "job", "j"),
	))
	require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
	require.Equal(t, 2, count(rollup.Raw))
	require.Equal(t, 2, count(rollup.OneHour))
	require.Positive(t, counter.since(engine.Sealed), "a delete is in force")
	require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	has(2)
}

// TestOnlyQueriesRemember checks that only queries use cached rows. Check, and code that removes rows, must read the
// rows themselves, and report that they are unreadable.
func TestOnlyQueriesRemember(t *testing.T) {
	t.Parallel()
	ts, eng := openUnreadableStore(t, func(o *Options) { o.Retention = 24 * time.Hour })
	at := ts.now.UnixMilli() - format.HourMS
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	count := func() (told int) {
		list, err := ts.Select(t.Context(), query.Query{
			Tenant: "ann", MinT: at - format.HourMS, MaxT: at, Matchers: []*labels.Matcher{
				labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, upLabels.Get(labels.MetricName)),
			},
			Warn: func(error) { told++ },
		})
		require.NoError(t, err)
		require.Len(t, list, 1)
		return told
	}
	require.Zero(t, count())
	for _, table := range []*engine.Table{engine.Windows, engine.Sealed} {
		eng.table.Store(table)
		require.Zero(t, count(), "%s is remembered", table)
		stats, err := ts.Check(t.Context(), func(string) {})
		require.NoError(t, err)
		require.NotZero(t, stats.Problems, "Check reads %s", table)
		_, err = ts.readableWindows(t.Context(), "ann", -allWindows, allWindows)
		require.Equal(t, table == engine.Windows, err != nil, "%s: %v", table, err)
	}
	eng.table.Store(nil)
}

// underWay is an engine that can be set to report that a write is in progress.
type underWay struct {
	*memory.Engine
	busy atomic.Bool
}

// Version implements engine.Versioned.
func (u *underWay) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	version, ok := u.Engine.Version(t, partition)
	return version, ok && !u.busy.Load()
}

// TestNothingIsRememberedWhileWritesAreUnderWay checks that no cached rows are used during a write, because another
// reader may already have acted on the write. Rows that are read during a write must not be cached.
func TestNothingIsRememberedWhileWritesAreUnderWay(t *testing.T) {
	t.Parallel()
	eng := &underWay{Engine: memory.New()}
	counter := countScans(eng)
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: counter}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions = 1
	ts.open()
	t.Cleanup(ts.close)
	at := ts.now.UnixMilli() - 30*format.HourMS
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	scans := func() int {
		counter.since(engine.Windows)
		counter.since(engine.Sealed)
		list, err := ts.Select(counted(t.Context()), query.Query{
			Tenant: "ann", MinT: at - format.HourMS, MaxT: at,
			Matchers: []*labels.Matcher{
				labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, upLabels.Get(labels.MetricName)),
			},
		})
		require.NoError(t, err)
		require.Len(t, list, 1)
		return min(counter.since(engine.Windows), counter.since(engine.Sealed))
	}
	eng.busy.Store(true)
	require.Positive(t, scans())
	require.Positive(t, scans())
	eng.busy.Store(false)
	require.Positive(t, scans())
	require.Zero(t, scans())
	eng.busy.Store(true)
	require.Positive(t, scans())
}
