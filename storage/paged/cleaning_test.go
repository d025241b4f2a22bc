package paged

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// cleaned is a partition whose series have chunks in some slots. All chunks are in pages at first, and are cleaned
// repeatedly.
type cleaned struct {
	table  *engine.Table
	eng    engine.Engine
	series []testSeries
	slots  []int
	// ranks are the lowest ranks that readers may find, by series and slot.
	ranks [][]atomic.Int64
	// levels is shared by all Rows, as in a process.
	levels *levelMemory
}

func newCleaned(t testing.TB, table *engine.Table, eng engine.Engine) *cleaned {
	c := &cleaned{
		table: table, eng: eng, series: seriesOf("up", 90), slots: []int{1, 2, 3}, levels: New(eng, Options{}).levels,
	}
	r := c.rows()
	first, rest, apart := c.series[:20], slices.Clone(c.series[20:30]), []testSeries{}
	for i, s := range c.series[30:] {
		if i%4 == 0 {
			apart = append(apart, s)
		} else {
			rest = append(rest, s)
		}
	}
	for _, some := range [][]testSeries{first, rest, apart} {
		require.NoError(t, r.Write(context.Background(), []engine.Batch{newSeriesBatch(table, some, c.slots...)}))
	}
	levels := map[int]bool{}
	for _, p := range pagesIn(t, eng, table, partitionOf("up")) {
		levels[p.bits] = true
	}
	require.GreaterOrEqual(t, len(levels), 2)
	c.ranks = make([][]atomic.Int64, len(c.series))
	for i := range c.ranks {
		c.ranks[i] = make([]atomic.Int64, len(c.slots))
	}
	return c
}

func (c *cleaned) rows() *Rows { return c.rowsOn(c.eng) }

func (c *cleaned) rowsOn(eng engine.Engine) *Rows {
	r := New(eng, Options{Least: 2})
	r.limits.entries, r.limits.bucket, r.limits.gatherBytes = 7, 12, 500
	r.levels = c.levels
	return r
}

// clean rewrites the chunks of some series with a higher rank, and removes the superseded entries. Rollups are written
// to pages if their labels are written with them.
func (c *cleaned) clean(eng engine.Engine, rng *rand.Rand, rank int) error {
	b := engine.Batch{Table: c.table, Partition: partitionOf("up")}
	ids := map[string]bool{}
	var done [][2]int
	write := eng.Write
	labels := c.table != engine.Raw && rng.IntN(2) == 0
	if labels {
		write = c.rowsOn(eng).Write
	}
	for i := range c.series {
		if rng.IntN(4) > 0 {
			continue
		}
		ids[c.series[i].id] = true
		if labels {
			b.Mutations = append(b.Mutations, c.series[i].labelsRow(c.table))
		}
		for j, slot := range c.slots {
			b.Mutations = append(b.Mutations, c.series[i].better(c.table, slot, rank))
			done = append(done, [2]int{i, j})
		}
	}
	if err := write(context.Background(), []engine.Batch{b}); err != nil {
		return err
	}
	for _, d := range done {
		c.ranks[d[0]][d[1]].Store(int64(rank))
	}
	rows, pages, err := New(eng, Options{}).Outdone(context.Background(), c.table, b.Partition, ids)
	if err != nil {
		return err
	}
	stampCopies(rows)
	if err := eng.Write(context.Background(), rows); err != nil {
		return err
	}
	return eng.Write(context.Background(), pages)
}

// floor returns the lowest ranks that a read starting now may find.
func (c *cleaned) floor() (ranks [][]int64) {
	ranks = make([][]int64, len(c.series))
	for i := range c.ranks {
		for j := range c.ranks[i] {
			ranks[i] = append(ranks[i], c.ranks[i][j].Load())
		}
	}
	return ranks
}

// read scans the chunks of series first to last. It returns an error if one is missing or has a lower rank than floor.
func (c *cleaned) read(r *Rows, first, last int) error {
	floor := c.floor()
	rg := engine.Range{
		Table: c.table, Partition: partitionOf("up"), From: engine.Key{engine.Int(format.KindChunk)},
		To: engine.Key{engine.Int(format.KindChunk)},
	}
	narrow := c.table != engine.Raw
	if narrow {
		rg.From, rg.To = append(rg.From, engine.Text(c.series[first].id)), append(rg.To, engine.Text(c.series[last].id))
	} else {
		first, last = 0, len(c.series)-1
	}
	rows, err := readAll(r.Scan, rg)
	if err != nil {
		return err
	}
	of := tablesOf(c.table)
	found := map[string]int64{}
	for i, row := range rows {
		if i > 0 && engine.Compare(rows[i-1].key, row.key) >= 0 {
			return fmt.Errorf("%v follows %v", row, rows[i-1])
		}
		rank := (&outdone{tables: of}).rank([]byte(row.value))
		if c.table != engine.Raw {
			rank-- // Version 1 is the first.
		}
		found[fmt.Sprint(row.key[of.series].Text, row.key[of.start].Int)] = int64(rank)
	}
	if want := (last - first + 1) * len(c.slots); len(rows) != want {
		return fmt.Errorf("%d rows, want %d", len(rows), want)
	}
	for i := first; i <= last; i++ {
		for j, slot := range c.slots {
			if rank, ok := found[fmt.Sprint(c.series[i].id, startOf(slot))]; !ok || rank < floor[i][j] {
				return fmt.Errorf("series %d, slot %d: rank %d (found: %v) after %d was written",
					i, slot, rank, ok, floor[i][j])
			}
		}
	}
	return nil
}

// TestCleaningBetweenScans requires that a scan misses no row and yields no row of lower rank than at its start, if
// cleaning happens between any two of its scans of the engine.
func TestCleaningBetweenScans(t *testing.T) {
	for _, table := range rowTables {
		for seed := range uint64(12) {
			rng := rand.New(rand.NewPCG(seed, 1))
			inner := memory.New()
			c := newCleaned(t, table, inner)
			rank, cleanings, within := 0, 0, false
			eng := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
				if within && op.Kind == faultengine.Scan && rng.IntN(6) == 0 {
					rank++
					cleanings++
					require.NoError(t, c.clean(inner, rng, rank))
				}
				return faultengine.Pass()
			})
			c.eng = eng
			r := c.rows()
			for range 6 {
				within = true
				first := rng.IntN(len(c.series))
				require.NoError(t, c.read(r, first, first+rng.IntN(len(c.series)-first)), "%s, seed %d", table, seed)
				within = false
			}
			require.Positive(t, cleanings)
			require.NoError(t, inner.Close())
		}
	}
}

// TestCleaningWhileReading requires the same as TestCleaningBetweenScans while cleaning and multiple readers run
// concurrently.
func TestCleaningWhileReading(t *testing.T) {
	for name, open := range engines {
		for _, table := range rowTables {
			t.Run(name+"/"+table.Name, func(t *testing.T) {
				eng := open(t)
				c := newCleaned(t, table, eng)
				var over atomic.Bool
				var g errgroup.Group
				for reader := range uint64(3) {
					g.Go(func() error {
						rng := rand.New(rand.NewPCG(reader, 9))
						r := c.rows()
						for n := 0; n < 5 || !over.Load(); n++ {
							first := rng.IntN(len(c.series))
							if err := c.read(r, first, first+rng.IntN(len(c.series)-first)); err != nil {
								return err
							}
						}
						return nil
					})
				}
				g.Go(func() error {
					defer over.Store(true)
					rng := rand.New(rand.NewPCG(9, 9))
					for rank := 1; rank <= 12; rank++ {
						if err := c.clean(eng, rng, rank); err != nil {
							return err
						}
					}
					return nil
				})
				require.NoError(t, g.Wait())
				ids := map[string]bool{}
				for _, s := range c.series {
					ids[s.id] = true
				}
				requireNothingOutdone(t, eng, table, partitionOf("up"), ids)
				require.NoError(t, eng.Close())
			})
		}
	}
}

// TestOutdonePages requires that data pages with only superseded entries are removed, and that their labels pages are
// kept.
func TestOutdonePages(t *testing.T) {
	for _, table := range rowTables {
		eng := memory.New()
		c := newCleaned(t, table, eng)
		partition := partitionOf("up")
		b, ids := engine.Batch{Table: table, Partition: partition}, map[string]bool{}
		count := func() map[int64]int {
			n := map[int64]int{}
			for _, p := range pagesIn(t, eng, table, partition) {
				n[p.kind]++
			}
			return n
		}
		before := count()
		for i := range c.series {
			ids[c.series[i].id] = true
			// The second mutation has the same rank as the entry.
			b.Mutations = append(b.Mutations, c.series[i].better(table, 2, 1), c.series[i].chunk(table, 3))
		}
		require.NoError(t, eng.Write(t.Context(), []engine.Batch{b}))
		r := New(eng, Options{})
		_, none, err := r.Outdone(t.Context(), table, partition, map[string]bool{noID: true})
		require.NoError(t, err)
		require.Empty(t, none)
		_, batches, err := r.Outdone(t.Context(), table, partition, ids)
		require.NoError(t, err)
		for _, b := range batches {
			require.Len(t, b.Mutations, 1)
			require.Equal(t, engine.Delete, b.Mutations[0].Op)
		}
		require.NoError(t, eng.Write(t.Context(), batches))
		after := count()
		require.Equal(t, before[format.KindLabels], after[format.KindLabels])
		require.Equal(t, before[format.KindChunk]*2/3, after[format.KindChunk])
		require.Len(t, batches, before[format.KindChunk]/3)
	}
}

// TestDroppedWhileReading requires that reading a partition that is dropped concurrently ends early without damage.
func TestDroppedWhileReading(t *testing.T) {
	series := seriesOf("up", 30)
	for _, table := range rowTables {
		inner := memory.New()
		require.NoError(t, rowsOf(inner).Write(t.Context(), []engine.Batch{newSeriesBatch(table, series, 1, 2)}))
		pages := tablesOf(table).pages
		dropped := false
		eng := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Scan && op.Table == pages && len(op.Range.From) == len(pages.Clustering) &&
				!dropped {
				dropped = true
				require.NoError(t, inner.Drop(context.Background(), table, partitionOf("up")[:1]))
				require.NoError(t, inner.Drop(context.Background(), pages, partitionOf("up")[:1]))
			}
			return faultengine.Pass()
		})
		rows := mustRead(t, New(eng, Options{}).Scan, engine.Range{
			Table: table, Partition: partitionOf("up"), From: engine.Key{engine.Int(format.KindChunk)},
		})
		require.True(t, dropped)
		require.Less(t, len(rows), 60)
	}
}
