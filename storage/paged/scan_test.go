package paged

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// counting counts the rows that are read from the tables of pages.
type counting struct {
	engine.Engine
	pages int
}

func (c *counting) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		for row, err := range c.Engine.Scan(ctx, r) {
			if tablesOf(r.Table) == nil {
				c.pages++
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// TestPagesInUnits requires that a scan holds the pages of a few buckets at a time, and reads each page about once.
func TestPagesInUnits(t *testing.T) {
	series := seriesOf("up", 3000)
	for _, table := range rowTables {
		eng := &counting{Engine: memory.New()}
		r := rowsOf(eng)
		r.limits.bucket, r.limits.entries, r.limits.gatherBytes = 20, 10, 1000
		for _, step := range []int{1, 3} { // Write two levels, the second one with fewer bits.
			var some []testSeries
			for i := 0; i < len(series); i += step {
				some = append(some, series[i])
			}
			for from := 0; from < len(some); from += 500 {
				require.NoError(t, r.Write(t.Context(), []engine.Batch{
					newSeriesBatch(table, some[from:min(from+500, len(some))], 1),
				}))
			}
		}
		all := 0
		for _, p := range pagesIn(t, eng, table, partitionOf("up")) {
			if p.kind == format.KindChunk {
				all++
			}
		}
		require.Greater(t, all, 300)
		chunks := engine.Range{
			Table: table, Partition: partitionOf("up"), From: engine.Key{engine.Int(format.KindChunk)},
		}
		eng.pages = 0
		require.Len(t, mustRead(t, r.Scan, chunks), len(series))
		read := eng.pages
		require.Less(t, read, all*3/2)
		eng.pages = 0
		rows, ahead := 0, 0
		for _, err := range r.Scan(t.Context(), chunks) {
			require.NoError(t, err)
			rows++
			ahead = max(ahead, eng.pages-read*rows/len(series))
		}
		require.Less(t, ahead, read/8, "%s: pages of %d that were read before their rows were needed", table, read)
	}
}

// TestScansWithoutPages requires that scanning a partition without pages takes one additional scan.
func TestScansWithoutPages(t *testing.T) {
	for _, table := range rowTables {
		eng, scans := countingScans(memory.New())
		require.NoError(t, eng.Write(t.Context(), []engine.Batch{newSeriesBatch(table, seriesOf("up", 50), 1, 2)}))
		r := New(eng, Options{})
		for _, rg := range []engine.Range{
			{}, {From: engine.Key{engine.Int(format.KindChunk)}}, {To: engine.Key{engine.Int(format.KindChunk)}},
			{Limit: 3},
		} {
			*scans = 0
			rg.Table, rg.Partition = table, partitionOf("up")
			require.NotEmpty(t, mustRead(t, r.Scan, rg))
			require.Equal(t, 2, *scans)
		}
		*scans = 0
		mustRead(t, r.Scan, engine.Range{
			Table: table, Partition: partitionOf("up"), From: engine.Key{engine.Int(format.KindExemplars)},
		})
		require.Equal(t, 1, *scans, "exemplars are never in pages")
	}
}

// TestExpiringRows requires that rows in pages expire at the same time as other rows.
func TestExpiringRows(t *testing.T) {
	const began = 1_777_636_800
	for _, table := range rowTables {
		at := time.Unix(began, 0)
		now := func() time.Time { return at }
		plain, eng := memory.NewExpiring(now), memory.NewExpiring(now)
		r := rowsOf(eng)
		for i := range 3 {
			b := newSeriesBatch(table, seriesOf(fmt.Sprint("m", i), 40), 1, 2)
			b.Partition = partitionOf("up") // The ids are of other metrics: these rows stay rows.
			if i > 0 {
				b = newSeriesBatch(table, seriesOf("up", 120)[i*40:i*40+40], 1, 2)
			}
			b.Expires = began + 10*int64(i+1)
			require.NoError(t, plain.Write(t.Context(), []engine.Batch{b}))
			require.NoError(t, r.Write(t.Context(), []engine.Batch{b}))
		}
		require.NotEmpty(t, pagesIn(t, eng, table, partitionOf("up")))
		for _, want := range []int{360, 240, 120, 0} {
			all := engine.Range{Table: table, Partition: partitionOf("up")}
			rows := mustRead(t, plain.Scan, all)
			require.Len(t, rows, want)
			requireRows(t, rows, mustRead(t, r.Scan, all), "at %v", at)
			at = at.Add(10 * time.Second)
		}
	}
}

// TestCancelledScan requires that a scan of pages ends with its context, and can be iterated again.
func TestCancelledScan(t *testing.T) {
	series := seriesOf("up", 250)
	for _, table := range rowTables {
		r := rowsOf(memory.New())
		require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(table, series, 1)}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all := r.Scan(ctx, engine.Range{Table: table, Partition: partitionOf("up")})
		for range 2 {
			rows := 0
			for _, err := range all {
				require.NoError(t, err)
				if rows++; rows == 300 {
					break
				}
			}
			require.Equal(t, 300, rows)
		}
		rows, failures := 0, 0
		for row, err := range all {
			if rows++; err != nil {
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, row)
				failures++
			}
			cancel()
		}
		require.Equal(t, 1, failures)
		require.Less(t, rows, 250)
	}
}

// TestKeysAround requires that there are no keys before the min or after the max integers.
func TestKeysAround(t *testing.T) {
	key := func(values ...int64) (k engine.Key) {
		for _, v := range values {
			k = append(k, engine.Int(v))
		}
		return k
	}
	require.Equal(t, key(1, 6), keyBefore(key(1, 7)))
	require.Equal(t, key(1, 8), keyAfter(key(1, 7)))
	require.Equal(t, key(0), keyBefore(key(1, math.MinInt64)))
	require.Equal(t, key(2), keyAfter(key(1, math.MaxInt64)))
	require.Nil(t, keyBefore(key(math.MinInt64, math.MinInt64)))
	require.Nil(t, keyAfter(key(math.MaxInt64, math.MaxInt64)))
}

// levelsRig counts an engine's scans, and calls a function before each operation.
type levelsRig struct {
	inner, eng engine.Engine
	scans      int
	before     func(op faultengine.Op) faultengine.Action
	series     []testSeries
	chunks     engine.Range // of one segment
}

func newLevelsRig(table *engine.Table) *levelsRig {
	x := &levelsRig{inner: memory.New(), series: seriesOf("up", 60)}
	key := engine.Key{engine.Int(format.KindChunk)}
	if table == engine.Raw {
		key = append(key, engine.Int(startOf(1)))
	}
	x.chunks = engine.Range{Table: table, Partition: partitionOf("up"), From: key, To: key}
	x.eng = faultengine.Wrap(x.inner, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan {
			x.scans++
		}
		if x.before != nil {
			return x.before(op)
		}
		return faultengine.Pass()
	})
	return x
}

func (x *levelsRig) read(t *testing.T, r *Rows) int {
	x.scans = 0
	return len(mustRead(t, r.Scan, x.chunks))
}

// within returns a copy of r whose operations don't call before, so that before can use it.
func (x *levelsRig) within(r *Rows) *Rows {
	inner := *r
	inner.eng = x.inner
	return &inner
}

// TestLevelsAreRemembered requires that the levels of a segment are read once. After that, reading a segment without
// pages takes one scan of the engine, and reading a segment with pages of one level takes two.
func TestLevelsAreRemembered(t *testing.T) {
	for _, table := range rowTables {
		x := newLevelsRig(table)
		r := rowsOf(x.eng)
		require.NoError(t, x.inner.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series[:10], 1)}))
		require.Equal(t, 10, x.read(t, r))
		require.Equal(t, 2, x.scans)
		require.Equal(t, 10, x.read(t, r))
		require.Equal(t, 1, x.scans)
		require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series[10:], 1)}))
		require.Equal(t, 60, x.read(t, r))
		require.Equal(t, 4, x.scans)
		require.Equal(t, 60, x.read(t, r))
		require.Equal(t, 2, x.scans)
	}
}

// TestLevelsWhileWriting requires that pages are found as soon as they are written, even if levels are read
// concurrently.
func TestLevelsWhileWriting(t *testing.T) {
	for _, table := range rowTables {
		// Read levels before the pages are durable.
		x := newLevelsRig(table)
		r := rowsOf(x.eng)
		x.before = func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write {
				require.Empty(t, mustRead(t, x.within(r).Scan, x.chunks))
			}
			return faultengine.Pass()
		}
		require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series, 1)}))
		require.Equal(t, 60, x.read(t, r))

		// Write pages of a lower level between the scans that read levels.
		x = newLevelsRig(table)
		r = rowsOf(x.eng)
		r.limits.bucket = 5
		require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series[:30], 1)}))
		r.limits.bucket = 1000
		x.before = func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Scan && x.scans == 2 {
				x.scans++
				require.NoError(
					t, x.within(r).Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series[30:], 1)}),
				)
			}
			return faultengine.Pass()
		}
		x.read(t, r)
		x.before = nil
		require.Equal(t, 60, x.read(t, r))

		// Write pages by a call that returns an error although it succeeds.
		x = newLevelsRig(table)
		r = rowsOf(x.eng)
		require.Zero(t, x.read(t, r))
		x.before = func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write {
				return faultengine.Lose(nil)
			}
			return faultengine.Pass()
		}
		require.Error(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series, 1)}))
		require.Equal(t, 60, x.read(t, r))
	}
}

// leavingEngine is an engine whose Write, while leaves is set, returns before the rows are written, as Pebble's does
// when the caller's context ends. lands then writes the rows.
type leavingEngine struct {
	engine.Engine
	leaves bool
	lands  func() error
}

func (e *leavingEngine) Write(ctx context.Context, batches []engine.Batch) error {
	if e.leaves {
		e.lands = func() error { return e.Engine.Write(context.WithoutCancel(ctx), batches) }
		return context.Canceled
	}
	return e.Engine.Write(ctx, batches)
}

// TestLevelsOfAbandonedWrites requires that pages of a write whose caller has left are found once they are written,
// even if levels were read before.
func TestLevelsOfAbandonedWrites(t *testing.T) {
	for _, table := range rowTables {
		x := newLevelsRig(table)
		e := &leavingEngine{Engine: x.inner, leaves: true}
		r := rowsOf(e)
		require.ErrorIs(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series, 1)}), context.Canceled)
		require.Zero(t, x.read(t, r))
		require.NoError(t, e.lands())
		require.Equal(t, 60, x.read(t, r), "%s", table)
	}
}

// TestTooManyUnsureLevels requires that levels aren't cached after very many failed writes.
func TestTooManyUnsureLevels(t *testing.T) {
	x := newLevelsRig(engine.Raw)
	r := rowsOf(x.eng)
	require.Zero(t, x.read(t, r))
	require.Zero(t, x.read(t, r))
	require.Equal(t, 1, x.scans)
	for i := range int64(maxUnsure + 1) {
		r.levels.wrote(
			[]engine.Batch{{Table: engine.RawPages, Partition: partitionOf("up"), Mutations: []engine.Mutation{{
				Clustering: rawTables.pageKey(format.KindChunk, 1000+i, 1, noID, noID),
			}}}}, true,
		)
	}
	require.LessOrEqual(t, len(r.levels.unsure), maxUnsure)
	other := x.chunks
	other.Partition = partitionOf("down")
	for range 2 {
		x.scans = 0
		require.Empty(t, mustRead(t, r.Scan, other))
		require.Equal(t, 2, x.scans)
	}
}

// TestRangeFromTheLastSegmentOn requires that a range that starts in the last segment with pages, and has no end,
// continues after it.
func TestRangeFromTheLastSegmentOn(t *testing.T) {
	r := rowsOf(memory.New())
	series := seriesOf("up", 60)
	require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(engine.R5m, series, 1)}))
	require.NoError(t, r.Write(t.Context(), []engine.Batch{
		{Table: engine.R5m, Partition: partitionOf("up"), Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Int(format.KindChunk + 1), engine.Text(series[0].id), engine.Int(7)},
			Timestamp:  1, Value: []byte("x"),
		}}},
	}))
	require.Len(t, mustRead(t, r.Scan, engine.Range{
		Table: engine.R5m, Partition: partitionOf("up"), From: engine.Key{engine.Int(format.KindChunk)},
	}), 61)
}
