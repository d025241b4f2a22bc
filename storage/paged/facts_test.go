package paged

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// recallOf asks for the raw chunks of a series in a slot, as queries do.
func recallOf(s *testSeries, slot int) Wanted {
	return Wanted{
		Table: engine.Raw, Partition: partitionOf(s.metric), IDs: []string{s.id}, First: startOf(slot), Last: startOf(slot), PassOver: 20, NoVersions: true, Remember: true,
	}
}

func chunksOf(r *Rows, w Wanted) ([]testRow, error) {
	return readAll(func(ctx context.Context, _ engine.Range) seq { return r.Chunks(ctx, w) }, engine.Range{})
}

// TestFactsSpareScans reads chunks out of pages again without any scan of the engine, also those of the neighbours in a
// bucket, until something is written or dropped.
func TestFactsSpareScans(t *testing.T) {
	eng, scans := countingScans(memory.New())
	series := seriesOf("up", 300)
	r := rowsOf(eng)
	require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series, 0, 1)}))
	read := func(s *testSeries, slot, rows int) (took int) {
		t.Helper()
		*scans = 0
		got, err := chunksOf(r, recallOf(s, slot))
		require.NoError(t, err)
		require.Len(t, got, rows)
		return *scans
	}
	all := func(slot, rows int) (took int) {
		t.Helper()
		for i := range series {
			took += read(&series[i], slot, rows)
		}
		return took
	}
	require.Positive(t, all(0, 1))
	require.Zero(t, all(0, 1))
	require.Positive(t, all(1, 1), "another segment")
	require.Zero(t, all(1, 1))
	require.Positive(t, all(2, 0)) // Nothing is there: the scan for rows stays.

	late := series[7].rawChunk(0, 1, 0)
	require.NoError(t, eng.Write(t.Context(), []engine.Batch{{Table: engine.Raw, Partition: partitionOf("up"), Mutations: []engine.Mutation{late}}}))
	require.Positive(t, read(&series[7], 0, 2))
	require.Positive(t, read(&series[7], 0, 2), "there are rows")
	require.Positive(t, read(&series[8], 1, 1), "the segment may have rows by then")
	require.Zero(t, read(&series[8], 1, 1))

	w := recallOf(&series[8], 1)
	w.Remember = false
	*scans = 0
	got, err := chunksOf(r, w)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Positive(t, *scans, "only who asks for it goes by what is remembered")

	require.NoError(t, eng.Drop(t.Context(), engine.RawPages, partitionOf("up")[:1]))
	require.Empty(t, mustRead(t, eng.Scan, engine.Range{Table: engine.RawPages, Partition: partitionOf("up")}))
	read(&series[8], 1, 0)
	require.NoError(t, eng.Drop(t.Context(), engine.Raw, partitionOf("up")[:1]))
	read(&series[7], 0, 0)
}

// TestDamageIsNoFact reads a bucket of which a page can't be read, again and again.
func TestDamageIsNoFact(t *testing.T) {
	eng := memory.New()
	series := seriesOf("up", 30)
	require.NoError(t, rowsOf(eng).Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series, 0)}))
	broken := false
	faulty := faultengine.Wrap(eng, func(op faultengine.Op) faultengine.Action {
		if broken && op.Kind == faultengine.Scan && op.Table == engine.RawPages && op.Range.Damaged != nil {
			op.Range.Damaged(engine.Damage{Err: engine.ErrCorrupt})
		}
		return faultengine.Pass()
	})
	r := rowsOf(faulty)
	reports := 0
	read := func() {
		reports = 0
		w := recallOf(&series[3], 0)
		w.Damaged = func(engine.Damage) { reports++ }
		_, err := chunksOf(r, w)
		require.NoError(t, err)
	}
	broken = true
	for range 3 {
		read()
		require.NotZero(t, reports)
	}
	broken = false
	read()
	require.Zero(t, reports)
	broken = true
	read()
	require.Zero(t, reports, "all of it is remembered, and was whole")
}

// hookedVersions calls before whenever versions are asked for.
type hookedVersions struct {
	engine.Engine
	before func()
}

func (h *hookedVersions) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	h.before()
	return h.Engine.(engine.Versioned).Version(t, partition)
}

// paginated returns series of which all rows are in pages, unlike those of newCleaned.
func paginated(t *testing.T, eng engine.Engine) *cleaned {
	c := &cleaned{table: engine.Raw, eng: eng, series: seriesOf("up", 40), slots: []int{1, 2, 3}, levels: New(eng, Options{}).levels}
	r := New(eng, Options{})
	r.levels = c.levels
	require.NoError(t, r.Write(t.Context(), []engine.Batch{newSeriesBatch(c.table, c.series, c.slots...)}))
	require.Empty(t, mustRead(t, eng.Scan, engine.Range{Table: c.table, Partition: partitionOf("up")}))
	c.ranks = make([][]atomic.Int64, len(c.series))
	for i := range c.ranks {
		c.ranks[i] = make([]atomic.Int64, len(c.slots))
	}
	return c
}

// recall reads the chunk of a series in a slot, and returns an error if it is missing, or is worse than it was before.
func (c *cleaned) recall(r *Rows, i, j int) error {
	floor := c.ranks[i][j].Load()
	rows, err := chunksOf(r, recallOf(&c.series[i], c.slots[j]))
	switch {
	case err != nil:
		return err
	case len(rows) != 1:
		return fmt.Errorf("series %d, slot %d: %d rows", i, c.slots[j], len(rows))
	}
	if rank := (&outdone{tables: &rawTables}).rank([]byte(rows[0].value)); int64(rank) < floor {
		return fmt.Errorf("series %d, slot %d: rank %d after %d was written", i, c.slots[j], rank, floor)
	}
	return nil
}

// Whoever goes by facts misses no row, and finds none that is worse than before it began, wherever cleaning comes
// between two looks at the engine.
func TestCleaningBetweenFacts(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		inner := memory.New()
		c := paginated(t, inner)
		rank, within := 0, false
		clean := func() {
			if within && rank < 3 && rng.IntN(8) == 0 {
				rank++
				require.NoError(t, c.clean(inner, rng, rank))
			}
		}
		c.eng = &hookedVersions{faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Scan {
				clean()
			}
			return faultengine.Pass()
		}), clean}
		r := c.rows()
		for i := range c.series { // Facts from before the first row.
			for j := range c.slots {
				require.NoError(t, c.recall(r, i, j))
			}
		}
		within = true
		for range 30 {
			i, j := rng.IntN(len(c.series)), rng.IntN(len(c.slots))
			for range 1 + rng.IntN(3) {
				require.NoError(t, c.recall(r, i, j), "seed %d", seed)
			}
		}
		within = false
		require.Positive(t, rank)
		require.NoError(t, inner.Close())
	}
}

// The memory of facts is bounded, and keeps the last one about a thing.
func TestFactsAreBounded(t *testing.T) {
	m := &factMemory{of: newLRU[factKey, *fact](10_000)}
	key := func(i int) factKey { return factKey{segment: fmt.Sprint("segment ", i)} }
	for i := range 1000 {
		m.put(key(i), &fact{version: 1, pages: []string{lastID}})
		m.put(key(i), &fact{version: 2, rows: true})
		require.Equal(t, uint64(2), m.of.get(key(i)).version)
		require.LessOrEqual(t, m.of.bytes, int64(10_000))
	}
	require.Nil(t, m.of.get(key(1)))
}
