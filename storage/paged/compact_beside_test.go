package paged

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/soak"
)

// besideRig has series with rollups of two days, in pages, in rows, in long chunks, or in several of them.
type besideRig struct {
	t      *testing.T
	table  *engine.Table
	eng    *endingEngine
	rows   *Rows
	series []testSeries
}

// besideStates are what a series' chunks are in when a compaction begins beside a reader.
var besideStates = map[string]func(x *besideRig){
	"rows":  func(x *besideRig) { x.write(0, 20, 1, false) },
	"pages": func(x *besideRig) { x.write(0, 20, 1, true) },
	"rows over pages": func(x *besideRig) {
		x.write(0, 20, 1, true)
		x.write(6, 9, 2, false)
	},
	"late rows over long chunks": func(x *besideRig) {
		x.write(0, 20, 1, false)
		x.compact()
		x.write(6, 14, 2, false)
	},
	"rows of a day besides a long chunk": func(x *besideRig) {
		x.write(12, 20, 1, false)
		x.compact()
		x.write(0, 12, 1, false)
	},
}

func newBesideRig(t *testing.T, table *engine.Table, state string) *besideRig {
	x := &besideRig{t: t, table: table, eng: &endingEngine{Engine: memory.New()}, series: seriesOf("up", 6)}
	t.Cleanup(func() { require.NoError(t, x.eng.Close()) })
	x.rows = New(x.eng, Options{Least: 2})
	x.rows.limits.compactBytes = 1 // A series a piece.
	require.NoError(t, x.rows.BeginLong(t.Context(), testWindow))
	besideStates[state](x)
	return x
}

// write writes rollups of some slots, in pages or in rows.
func (x *besideRig) write(from, to int, version uint64, pages bool) {
	b := engine.Batch{Table: x.table, Partition: partitionOf("up")}
	for _, s := range x.series {
		b.Mutations = append(b.Mutations, s.labelsRow(x.table))
		for slot := from; slot < to; slot++ {
			b.Mutations = append(b.Mutations, s.rollups(x.table, slot, version))
		}
	}
	write := x.rows.WriteRows
	if pages {
		write = x.rows.Write
	}
	require.NoError(x.t, write(x.t.Context(), []engine.Batch{b}))
}

func (x *besideRig) compact() {
	_, err := x.rows.Compact(x.t.Context(), compactionOf(x.table, "up"))
	require.NoError(x.t, err)
}

// besideRead is a way to read some of the rows.
type besideRead struct {
	name string
	read func(x *besideRig) []testRow
}

func besideReads(rng *rand.Rand) (reads []besideRead) {
	for range 2 {
		first, n := rng.IntN(20), rng.IntN(14)
		passOver, some := []int{0, 1, 3, 20}[rng.IntN(4)], rng.IntN(2) == 0
		for _, long := range []bool{false, true} {
			reads = append(reads, besideRead{fmt.Sprintf("chunks of slots %d to %d, passing over %d, of some: %t, long: %t", first, first+n, passOver, some, long), func(x *besideRig) []testRow {
				w := Wanted{Table: x.table, Partition: partitionOf("up"), First: startOf(first), Last: startOf(first + n), PassOver: passOver, Long: long}
				for i, s := range x.series {
					if !some || i%2 == 0 {
						w.IDs = append(w.IDs, s.id)
					}
				}
				got, err := readAll(func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return x.rows.Chunks(ctx, w) }, engine.Range{})
				require.NoError(x.t, err)
				if long {
					got = takeApart(x.t, got, w.First, w.Last)
				}
				return got
			}})
		}
	}
	for range 1 {
		from, to, slot, keys, limit := rng.IntN(6), rng.IntN(6), rng.IntN(20), rng.IntN(2) == 0, rng.IntN(30)
		reads = append(reads, besideRead{fmt.Sprintf("rows from %d to %d, from slot %d, keys only: %t, up to %d", from, to, slot, keys, limit), func(x *besideRig) []testRow {
			r := engine.Range{Table: x.table, Partition: partitionOf("up"), KeysOnly: keys, Limit: limit,
				From: format.RollupKey(x.series[from].id, startOf(slot)), To: format.RollupKey(x.series[max(from, to)].id, startOf(19))}
			got, err := readAll(x.rows.Scan, r)
			require.NoError(x.t, err)
			return got
		}})
	}
	return reads
}

// TestReadersBesideCompact compacts at each step of a reader: it reads what it would otherwise.
func TestReadersBesideCompact(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 5))
	for state := range besideStates {
		for _, table := range rowTables[1:] {
			for range soak.Times(t, 1) {
				for _, r := range besideReads(rng) {
					t.Run(fmt.Sprint(state, " of ", table, ", ", r.name), func(t *testing.T) { readBeside(t, table, state, r) })
				}
			}
		}
	}
}

func readBeside(t *testing.T, table *engine.Table, state string, r besideRead) {
	x := newBesideRig(t, table, state)
	x.eng.steps = 0
	want := r.read(x)
	steps := x.eng.steps
	for at := 1; at <= steps; at += 1 + steps/12 {
		x := newBesideRig(t, table, state)
		x.eng.steps, x.eng.at, x.eng.end = 0, at, x.compact
		got := r.read(x)
		require.Greater(t, x.eng.steps, at)
		requireRows(t, want, got, "compacted at step %d of %d", at, steps)
		requireRows(t, want, r.read(x), "afterwards")
	}
}
