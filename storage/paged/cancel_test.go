package paged

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// endingEngine calls end at a step of its scans. The start of a scan and each row are steps.
type endingEngine struct {
	engine.Engine
	steps int // number of steps since end was set
	at    int
	end   func()
}

func (e *endingEngine) step() {
	if e.steps++; e.steps == e.at {
		e.end()
	}
}

func (e *endingEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		e.step()
		for row, err := range e.Engine.Scan(ctx, r) {
			if err == nil {
				e.step()
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// cancelRig has two levels of pages, rows that supersede entries of both levels, and rows with other starts.
type cancelRig struct {
	t      *testing.T
	table  *engine.Table
	eng    *endingEngine
	limits limits
	series []testSeries
}

func newCancelRig(t *testing.T, table *engine.Table, eng engine.Engine) *cancelRig {
	x := &cancelRig{
		t: t, table: table, eng: &endingEngine{Engine: eng}, limits: defaultLimits(), series: seriesOf("up", 90),
	}
	x.limits.bucket, x.limits.entries, x.limits.gatherBytes = 8, 10, 600
	w := x.rows(Options{Least: 2})
	require.NoError(t, w.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series[:70], 1, 3)}))
	w.limits.bucket = 30
	require.NoError(t, w.Write(t.Context(), []engine.Batch{newSeriesBatch(table, x.series[20:], 1, 2)}))
	rest := engine.Batch{Table: table, Partition: partitionOf("up")}
	for i := 0; i < len(x.series); i += 7 {
		rest.Mutations = append(rest.Mutations, x.series[i].better(table, 1, 1), x.series[i].chunk(table, 4))
	}
	require.NoError(t, eng.Write(t.Context(), []engine.Batch{rest}))
	bits := map[int]bool{}
	for _, p := range pagesIn(t, eng, table, partitionOf("up")) {
		bits[p.bits] = true
	}
	require.Greater(t, len(bits), 1, "levels")
	return x
}

// rows returns Rows with empty caches.
func (x *cancelRig) rows(o Options) *Rows {
	r := New(x.eng, o)
	r.limits = x.limits
	return r
}

// reads returns read operations as functions of the Rows that they use.
func (x *cancelRig) reads(rng *rand.Rand) (all []func(*Rows, context.Context) seq) {
	p := partitionOf("up")
	for _, rg := range []engine.Range{
		{}, {KeysOnly: true}, {Limit: 1 + rng.IntN(200)}, {From: engine.Key{engine.Int(format.KindChunk)}},
	} {
		rg.Table, rg.Partition = x.table, p
		all = append(all, func(r *Rows, ctx context.Context) seq { return r.Scan(ctx, rg) })
	}
	for _, n := range []int{1, 3, 30, len(x.series)} {
		w := Wanted{
			Table: x.table, Partition: p, First: startOf(1), Last: startOf(1 + rng.IntN(4)), PassOver: rng.IntN(20),
		}
		for _, i := range rng.Perm(len(x.series))[:n] {
			w.IDs = append(w.IDs, x.series[i].id)
		}
		if slices.Sort(w.IDs); rng.IntN(2) == 0 {
			w.Columns = rollup.ColumnMax
		}
		all = append(all, func(r *Rows, ctx context.Context) seq { return r.Chunks(ctx, w) })
	}
	return all
}

// cancelled reads until its context is canceled at a step of the engine. It returns the rows read, and whether the read
// was complete.
func (x *cancelRig) cancelled(read func(context.Context) seq, at int) (rows []testRow, whole bool) {
	ctx, cancel := context.WithCancel(x.t.Context())
	defer cancel()
	x.eng.steps, x.eng.at, x.eng.end = 0, at, cancel
	failed := false
	for row, err := range read(ctx) {
		require.False(x.t, failed, "a row after the error")
		if err != nil {
			require.ErrorIs(x.t, err, context.Canceled)
			require.NotErrorIs(x.t, err, engine.ErrCorrupt)
			failed = true
			continue
		}
		rows = append(rows, testRow{row.Clustering.Clone(), string(row.Value), row.Value == nil})
	}
	x.eng.at = 0
	return rows, !failed
}

// TestCancelledReadsLeaveWholeCaches cancels reads at random steps, with caches filled by earlier canceled reads. The
// rows read must be a prefix of the answer, caches must match the stored pages, and the same read must succeed
// afterwards.
func TestCancelledReadsLeaveWholeCaches(t *testing.T) {
	seed := soak.Seed(t)
	for name, open := range engines {
		for _, table := range rowTables {
			rng := rand.New(rand.NewPCG(seed, uint64(table.ID)))
			eng := open(t)
			x := newCancelRig(t, table, eng)
			for i, read := range x.reads(rng) {
				x.eng.steps = 0
				want, err := readAll(
					func(ctx context.Context, _ engine.Range) seq { return read(x.rows(Options{}), ctx) },
					engine.Range{},
				)
				require.NoError(t, err)
				require.NotEmpty(t, want)
				steps := x.eng.steps
				for range soak.Times(t, 5) {
					r := x.rows(Options{
						IDsBytes:    pick(rng, []int64{1, 3000, 1 << 20}),
						OpenedBytes: pick(rng, []int64{1, 9000, 1 << 20}),
					})
					for range 3 {
						at := 1 + rng.IntN(steps)
						got, whole := x.cancelled(func(ctx context.Context) seq { return read(r, ctx) }, at)
						require.LessOrEqual(t, len(got), len(want))
						requireRows(t, want[:len(got)], got, "%s, %s, read %d, ended at %d, seed %d",
							name, table, i, at, seed)
						require.True(t, !whole || len(got) == len(want),
							"%s, %s, read %d ended at %d without an error, seed %d", name, table, i, at, seed)
					}
					x.requireCaches(r)
					again := mustRead(
						t, func(ctx context.Context, _ engine.Range) seq { return read(r, ctx) }, engine.Range{},
					)
					requireRows(t, want, again, "%s, %s, read %d, afterwards, seed %d", name, table, i, seed)
				}
			}
			require.NoError(t, eng.Close())
		}
	}
}

// requireCaches compares all cache entries with the pages of the engine.
func (x *cancelRig) requireCaches(r *Rows) {
	t := x.t
	stored, ofLabels, levelsOf := map[labelsKey]*heldPage{}, map[labelsKey]ids{}, map[string][]int{}
	tables := tablesOf(x.table)
	for _, p := range pagesIn(t, x.eng.Engine, x.table, partitionOf("up")) {
		key := labelsKey{"up", p.version}
		stored[key] = p
		segment := tables.pageKey(p.kind, p.start, p.bits, p.first, p.version)[:tables.segment]
		name := segmentName(tables.pages, partitionOf("up"), segment)
		if bits := levelsOf[name]; len(bits) == 0 || bits[len(bits)-1] != p.bits {
			levelsOf[name] = append(bits, p.bits)
		}
		if p.kind == format.KindLabels {
			parsed, err := page.Parse(p.value)
			require.NoError(t, err)
			ofLabels[key], err = idsOf(parsed, "up")
			require.NoError(t, err)
		}
	}
	for key, e := range r.ids.entries {
		require.Equal(t, ofLabels[key], e.Value.(*lruEntry[labelsKey, ids]).value)
	}
	for _, cache := range []*lru[labelsKey, *openPage]{r.opened, r.written} {
		for key, e := range cache.entries {
			requireOpen(t, stored[key], ofLabels, e.Value.(*lruEntry[labelsKey, *openPage]).value)
		}
	}
	for name, e := range r.levels.of.entries {
		require.Equal(t, levelsOf[name], e.Value.(*lruEntry[string, *levels]).value.bits)
	}
}

// requireOpen compares a cached page with the stored one.
func requireOpen(t *testing.T, p *heldPage, ofLabels map[labelsKey]ids, got *openPage) {
	require.NotNil(t, p, "a page that isn't stored")
	parsed, err := page.Parse(p.value)
	require.NoError(t, err)
	of := ofLabels[labelsKey{"up", parsed.Head().Labels}]
	require.Equal(t, of, got.ids)
	require.Equal(t, parsed.Head().At, got.at)
	require.Equal(t, of.orderEntries(parsed.Head().At, parsed.Len()), got.order)
	require.Equal(t, parsed.Head().Kind, got.kind)
	for i := range parsed.Len() {
		want, err := parsed.AppendValue(nil, i)
		require.NoError(t, err)
		value, err := got.appendPart(nil, i, nil)
		require.NoError(t, err)
		require.Equal(t, want, value)
		if got.kind == page.Chunks {
			require.Equal(t, versionOf(want), string(got.appendVersion(nil, i, value)))
		}
	}
}

// TestCancelledWritesLeaveWholeCaches cancels writes before, during and after they are applied, between canceled reads.
// Afterwards, caches must match the stored pages.
func TestCancelledWritesLeaveWholeCaches(t *testing.T) {
	seed := soak.Seed(t)
	for _, table := range rowTables {
		for round := range uint64(soak.Times(t, 4)) {
			rng := rand.New(rand.NewPCG(seed, round))
			inner := memory.New()
			leaving := &leavingEngine{Engine: inner}
			x := &cancelRig{
				t: t, table: table, eng: &endingEngine{Engine: leaving}, limits: defaultLimits(),
				series: seriesOf("up", 120),
			}
			x.limits.entries = 10
			r := x.rows(Options{Least: 2})
			plain := memory.New()
			for step := range 12 {
				x.limits.bucket = pick(rng, []int{8, 40, 1000})
				r.limits = x.limits
				from := rng.IntN(len(x.series) - 20)
				batch := []engine.Batch{newSeriesBatch(table, x.series[from:from+2+rng.IntN(18)], 1+rng.IntN(2))}
				require.NoError(t, plain.Write(t.Context(), batch))
				x.writeCutShort(r, leaving, rng.IntN(4), batch)
				for _, read := range x.reads(rng) {
					x.cancelled(func(ctx context.Context) seq { return read(r, ctx) }, 1+rng.IntN(60))
				}
				x.requireCaches(r)
				all := engine.Range{Table: table, Partition: partitionOf("up")}
				requireRows(t, mustRead(t, plain.Scan, all), mustRead(t, r.Scan, all), "%s, round %d, step %d, seed %d",
					table, round, step, seed)
			}
		}
	}
}

// writeCutShort writes in one of 4 ways: 0 completely; 1 the caller returns before the write is applied; 2 with a
// canceled context; 3 like 1, with a read before the write is applied.
func (x *cancelRig) writeCutShort(r *Rows, leaving *leavingEngine, way int, batches []engine.Batch) {
	t := x.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch way {
	case 0:
		require.NoError(t, r.Write(ctx, batches))
		return
	case 2:
		cancel()
		require.ErrorIs(t, r.Write(ctx, batches), context.Canceled)
		require.NoError(t, r.Write(t.Context(), batches))
		return
	}
	leaving.leaves = true
	require.ErrorIs(t, r.Write(ctx, batches), context.Canceled)
	leaving.leaves = false
	if way == 3 {
		mustRead(t, r.Scan, engine.Range{Table: x.table, Partition: partitionOf("up")})
	}
	x.requireCaches(r)
	require.NoError(t, leaving.lands())
}
