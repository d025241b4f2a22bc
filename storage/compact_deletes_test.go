package storage

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// overAgo is so long ago that all windows of rollups of that time are over.
const overAgo = 70 * day

// deletedRows names the rows of the engine, by the table, that have deleted values: of sealed samples and of rollups,
// in long chunks, too.
func (ts *testStore) deletedRows(tenant string) (names []string) {
	ts.t.Helper()
	for _, p := range ts.pagedPartitions(tenant) {
		chunks := engine.Key{engine.Int(format.KindChunk)}
		table := format.TableOf(p.res)
		for row, err := range ts.eng.Scan(context.Background(), engine.Range{Table: table, Partition: p.key, From: chunks, To: chunks}) {
			require.NoError(ts.t, err)
			var most float64
			if p.res == rollup.Raw {
				var samples chunk.Samples
				_, err := format.DecodeRawChunk(row.Value, nil, &samples)
				require.NoError(ts.t, err)
				most = slices.Max(append(samples.V, 0))
			} else {
				var b rollup.Buckets
				require.NoError(ts.t, rollup.DecodeStored(row.Value, rollup.AllColumns, &b))
				most = slices.Max(append(b.Max, 0))
			}
			if most >= deletedValue {
				names = append(names, fmt.Sprint(table, " ", row.Clustering))
			}
		}
	}
	for res, has := range ts.hasDeleted(tenant) {
		if has {
			names = append(names, format.PagesOf(rollup.Resolution(res)).Name)
		}
	}
	return names
}

// longChunks counts the long chunks of a tenant by resolution.
func (ts *testStore) longChunks(tenant string) (n [resolutions]int) {
	ts.t.Helper()
	for _, p := range ts.pagedPartitions(tenant) {
		chunks := engine.Key{engine.Int(format.KindChunk)}
		for row, err := range ts.eng.Scan(context.Background(), engine.Range{Table: format.TableOf(p.res), Partition: p.key, From: chunks, To: chunks}) {
			require.NoError(ts.t, err)
			if p.res != rollup.Raw && rollup.IsLong(row.Value) {
				n[p.res]++
			}
		}
	}
	return n
}

// compactable fills a model with samples of several days of windows that are over, some of group 1 with the value of
// deleted ones.
func newCompactModel(t *testing.T, series int, change func(*Options)) *deleteModel {
	m := newPagedModel(t, series, func(o *Options) {
		o.Retention = 0
		if change != nil {
			change(o)
		}
	})
	m.some("0123", 3, overAgo-30*time.Hour, overAgo-20*time.Hour, overAgo, overAgo+5*time.Hour, overAgo+24*time.Hour, overAgo+50*time.Hour)
	m.some("1", deletedValue, overAgo+9*time.Hour, overAgo+9*time.Hour+15*time.Second)
	require.NoError(t, m.SealAll(t.Context()))
	return m
}

func (m *deleteModel) deleteOver() {
	m.delete(overAgo+10*time.Hour, overAgo+8*time.Hour, equal("group", "1"))
}

// compacts compacts all that is over, and holds that nothing else is answered than before.
func (m *deleteModel) compacts(when string) paged.Compacted {
	m.t.Helper()
	var before [resolutions]map[string]string
	for res := range rollup.Resolution(resolutions) {
		var err error
		before[res], err = answerTo(m.t.Context(), m.Store, wholeQuery("default", res))
		require.NoError(m.t, err)
	}
	stats, err := m.compactAll(m.t.Context(), func() {})
	require.NoError(m.t, err)
	for res := range rollup.Resolution(resolutions) {
		after, err := answerTo(m.t.Context(), m.Store, wholeQuery("default", res))
		require.NoError(m.t, err)
		require.Empty(m.t, changed(before[res], after), when)
	}
	return stats
}

// TestCompactedDeletesLeaveNothing cleans deletes of samples whose rollups are in long chunks, or were.
func TestCompactedDeletesLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]func(m *deleteModel){
		"compacted":                 func(m *deleteModel) { m.compacts("first"); m.deleteOver() },
		"compacted, started again":  func(m *deleteModel) { m.compacts("first"); m.reopen(); m.deleteOver() },
		"compacted once deleted":    func(m *deleteModel) { m.deleteOver(); m.compacts("deleted") },
		"compacted before and then": func(m *deleteModel) { m.compacts("first"); m.deleteOver(); m.compacts("deleted") },
		"compacted, rolled up, and compacted": func(m *deleteModel) {
			m.compacts("first")
			m.deleteOver()
			require.NoError(m.t, m.WorkOffDeletes(m.t.Context(), "default"))
			m.compacts("rolled up")
		},
		"compacted, late samples": func(m *deleteModel) {
			m.compacts("first")
			m.some("0123", 5, overAgo+9*time.Hour+time.Second)
			require.NoError(m.t, m.SealAll(m.t.Context()))
			m.deleteOver()
			m.some("01", 6, overAgo+9*time.Hour+2*time.Second)
			require.NoError(m.t, m.SealAll(m.t.Context()))
		},
		"late samples between compactions": func(m *deleteModel) {
			m.compacts("first")
			m.some("12", 5, overAgo+9*time.Hour+time.Second, overAgo-10*time.Hour)
			require.NoError(m.t, m.SealAll(m.t.Context()))
			m.compacts("late")
			m.reopen()
			m.deleteOver()
			m.some("13", 5, overAgo+9*time.Hour+time.Second, overAgo-9*time.Hour)
			require.NoError(m.t, m.SealAll(m.t.Context()))
			m.compacts("later")
		},
		"all of the series": func(m *deleteModel) {
			m.compacts("first")
			m.delete(overAgo+100*time.Hour, 0, equal("group", "1"))
		},
		"all of a metric": func(m *deleteModel) {
			m.compacts("first")
			m.delete(overAgo+100*time.Hour, 0, equal("__name__", "up"))
			m.delete(overAgo+100*time.Hour, 0, equal("__name__", "load"))
		},
	} {
		for rows, change := range map[string]func(*Options){"pages": nil, "rows": rowsOnly} {
			t.Run(name+" "+rows, func(t *testing.T) {
				t.Parallel()
				m := newCompactModel(t, 12, change)
				require.NotEmpty(t, m.deletedRows("default"))
				steps(m)
				m.compare("before it is cleaned")
				require.NoError(t, m.CleanTombstones(t.Context(), "default"))
				require.Zero(t, m.openDeletes())
				require.Empty(t, m.deletedRows("default"))
				m.compare("clean")
				m.compacts("clean")
				m.reopen()
				m.compare("clean, after a start")
				require.Empty(t, m.deletedRows("default"))
				list, err := oldestFirst(m.Compactable(t.Context(), func() {}))
				require.NoError(t, err)
				require.Empty(t, list)
			})
		}
	}
}

// TestCompactedDeletesOfRolledUp deletes where only rollups are left, and these are compacted: whole buckets go.
func TestCompactedDeletesOfRolledUp(t *testing.T) {
	t.Parallel()
	for _, keep := range []retention.Durations{{Raw: 10 * day}, {Raw: 10 * day, FiveMinutes: 30 * day}} {
		m := newCompactModel(t, 12, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 0, 0, 0 })
		m.compacts("first")
		require.NotZero(t, m.longChunks("default")[rollup.FiveMinutes])
		m.opts.Retention, m.opts.Retention5m = keep.Raw, keep.FiveMinutes
		m.reopen()
		m.passes(m.now.Add(20 * day))
		require.NoError(t, m.Delete(t.Context(), "default", m.now.Add(-20*day-overAgo-10*time.Hour).UnixMilli(), m.now.Add(-20*day-overAgo-8*time.Hour).UnixMilli(), equal("group", "1")))
		before := [2]map[string]string{}
		for i, res := range []rollup.Resolution{rollup.FiveMinutes, rollup.OneHour} {
			var err error
			before[i], err = answerTo(t.Context(), m.Store, wholeQuery("default", res))
			require.NoError(t, err)
		}
		require.NotEmpty(t, before[1])
		require.NoError(t, m.CleanTombstones(t.Context(), "default"))
		require.Zero(t, m.openDeletes())
		require.Empty(t, m.deletedRows("default"))
		for range 2 {
			for i, res := range []rollup.Resolution{rollup.FiveMinutes, rollup.OneHour} {
				after, err := answerTo(t.Context(), m.Store, wholeQuery("default", res))
				require.NoError(t, err)
				require.Empty(t, changed(before[i], after), res)
			}
			m.compacts("clean")
			m.reopen()
		}
	}
}

// steppingEngine calls a function at one step of its scans, in a goroutine of its own: it waits a while for it.
type steppingEngine struct {
	engine.Engine
	left atomic.Int64
	do   func()
	done chan struct{}
}

func (e *steppingEngine) step() {
	if e.left.Add(-1) != 0 {
		return
	}
	go func() {
		defer close(e.done)
		e.do()
	}()
	select {
	case <-e.done:
	case <-time.After(2 * time.Millisecond): // It waits for a lock, most likely.
	}
}

func (e *steppingEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		e.step()
		for row, err := range e.Engine.Scan(ctx, r) {
			if !yield(row, err) {
				return
			}
		}
	}
}

func (e *steppingEngine) Write(ctx context.Context, batches []engine.Batch) error {
	e.step()
	return e.Engine.Write(ctx, batches)
}

// Version implements engine.Versioned.
func (e *steppingEngine) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	return e.Engine.(engine.Versioned).Version(t, partition)
}

// TakesClear implements engine.Clearing, where the engine does.
func (e *steppingEngine) TakesClear() bool { return takesClear(e.Engine) }

// TestCleaningBesideCompact compacts at some step of cleaning: nothing that was deleted is left, and the answers are
// right.
func TestCleaningBesideCompact(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 6))
	for range soak.Times(t, 6) {
		m := newCompactModel(t, 12, nil)
		if rng.IntN(2) == 0 {
			m.compacts("first")
		}
		if rng.IntN(2) == 0 {
			m.some("0123", 5, overAgo+9*time.Hour+time.Second, overAgo+9*time.Hour+2*time.Second)
			require.NoError(t, m.SealAll(t.Context()))
		}
		m.deleteOver()
		eng := &steppingEngine{Engine: m.testStore.eng, done: make(chan struct{})}
		eng.do = func() {
			_, row, err := m.readCompacted(context.Background(), "default")
			assert.NoError(t, err)
			m.compacting.mu.Lock()
			m.compacting.set("default", compactedTenant{compactedWindows{}, row}) // All windows are listed again.
			m.compacting.mu.Unlock()
			_, err = m.compactAll(context.Background(), func() {})
			assert.NoError(t, err)
		}
		step := 1 + rng.Int64N(400)
		m.onEngine(eng)
		eng.left.Store(step)
		require.NoError(t, m.CleanTombstones(t.Context(), "default"))
		if eng.left.Load() <= 0 {
			<-eng.done
		}
		eng.left.Store(0)
		require.Empty(t, m.deletedRows("default"), "compacted at step %d", step)
		m.compare(fmt.Sprint("compacted at step ", step))
	}
}

// onEngine opens the store anew on another engine over its own, which stays open.
func (ts *testStore) onEngine(eng engine.Engine) {
	ts.t.Helper()
	require.NoError(ts.t, ts.Store.Close())
	ts.Store = openReady(ts.t, eng, ts.opts)
}
