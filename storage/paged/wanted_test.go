package paged

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestChunksReadFewRanges requires that reading the chunks of half of all series with one start takes about as many
// scans of the engine as there are buckets, for any number of series and starts.
func TestChunksReadFewRanges(t *testing.T) {
	for _, table := range rowTables {
		eng, scans := countingScans(memory.New())
		series := seriesOf("up", 2000)
		for _, slots := range [][]int{{0, 1, 2}, {3, 4}} {
			require.NoError(t, rowsOf(eng).Write(t.Context(), []engine.Batch{newSeriesBatch(table, series, slots...)}))
		}
		w := Wanted{Table: table, Partition: partitionOf("up"), First: startOf(3), Last: startOf(3), PassOver: 20}
		for i := 0; i < len(series); i += 2 {
			w.IDs = append(w.IDs, series[i].id)
		}
		buckets := map[string]bool{}
		for _, p := range pagesIn(t, eng, table, w.Partition) {
			buckets[fmt.Sprint(p.bits, p.first)] = true
		}
		r := New(eng, Options{})
		for _, cold := range []bool{true, false} { // Each labels page is read once.
			*scans = 0
			rows := mustRead(
				t, func(ctx context.Context, _ engine.Range) seq { return r.Chunks(ctx, w) }, engine.Range{},
			)
			require.Len(t, rows, 1000)
			most := 2*len(buckets) + 10
			if cold {
				most += len(buckets)
			}
			require.LessOrEqual(t, *scans, most, "%s, %d buckets", table, len(buckets))
		}
	}
}

// TestChunksWithoutPages requires that a scan skips a few rows of other series, and restarts after many.
func TestChunksWithoutPages(t *testing.T) {
	for _, table := range rowTables {
		eng, scans := countingScans(memory.New(), table)
		series := seriesOf("up", 300)
		none := New(eng, Options{Least: math.MaxInt})
		require.NoError(t, none.Write(t.Context(), []engine.Batch{newSeriesBatch(table, series, 0, 1)}))
		w := Wanted{
			Table: table, Partition: partitionOf("up"), First: startOf(1), Last: startOf(1),
			IDs: []string{series[3].id, series[4].id, series[299].id},
		}
		for passOver, most := range map[int]int{0: 7, 1000: 1} {
			*scans, w.PassOver = 0, passOver
			require.Len(t, mustRead(
				t, func(ctx context.Context, _ engine.Range) seq { return none.Chunks(ctx, w) }, engine.Range{},
			), 3)
			require.LessOrEqual(t, *scans, most, table.String())
		}
	}
}

// gappyEngine omits rows of some series, and reports them as engines do.
type gappyEngine struct {
	engine.Engine
	lost map[string]bool
}

func (g gappyEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if r.Table != engine.Raw || r.Damaged == nil {
		return g.Engine.Scan(ctx, r)
	}
	return func(yield func(engine.Row, error) bool) {
		var last engine.Key
		gap := false
		for row, err := range g.Engine.Scan(ctx, r) {
			if err == nil && g.lost[row.Clustering[2].Text] {
				gap = true
				continue
			}
			if gap {
				r.Damaged(engine.Damage{After: last, Before: row.Clustering.Clone(), Err: engine.ErrCorrupt})
				gap = false
			}
			last = row.Clustering.Clone()
			if !yield(row, err) {
				return
			}
		}
		if gap {
			r.Damaged(engine.Damage{After: last, Err: engine.ErrCorrupt})
		}
	}
}

// TestGapsBeforeRowsThatAreNotWanted has a gap at the end of the rows before a page, and another one after a row that
// is skipped after the page. Each missing chunk must be in a reported gap.
func TestGapsBeforeRowsThatAreNotWanted(t *testing.T) {
	mem := memory.New()
	series := seriesOf("up", 400)
	p := partitionOf("up")
	// Starts 1 and 3 are rows, 0 and 2 pages.
	require.NoError(t, rowsOf(mem).Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series, 0)}))
	require.NoError(t, rowsOf(mem).Write(t.Context(), []engine.Batch{newSeriesBatch(engine.Raw, series[10:300], 2)}))
	none := New(mem, Options{Least: math.MaxInt})
	require.NoError(t, none.Write(t.Context(), []engine.Batch{
		newSeriesBatch(engine.Raw, series, 1), newSeriesBatch(engine.Raw, series, 3),
	}))
	n := len(series)
	eng := gappyEngine{mem, map[string]bool{series[n-1].id: true, series[2].id: true}}
	for _, passOver := range []int{0, 5, 1000} {
		var gaps []engine.Damage
		w := Wanted{Table: engine.Raw, Partition: p, First: startOf(1), Last: startOf(3), PassOver: passOver,
			IDs: []string{series[2].id, series[n-1].id}, Damaged: func(d engine.Damage) { gaps = append(gaps, d) }}
		got := map[string]bool{}
		for row, err := range New(eng, Options{}).Chunks(t.Context(), w) {
			require.NoError(t, err)
			got[fmt.Sprint(row.Clustering[1].Int, row.Clustering[2].Text)] = true
		}
		for _, start := range []int64{startOf(1), startOf(3)} {
			for _, id := range w.IDs {
				if got[fmt.Sprint(start, id)] {
					continue
				}
				key := engine.Key{engine.Int(format.KindChunk), engine.Int(start), engine.Text(id), engine.Text(lastID)}
				in := slices.ContainsFunc(gaps, func(d engine.Damage) bool {
					return (d.After == nil || engine.Compare(d.After, key) < 0) &&
						(d.Before == nil || engine.Compare(key, d.Before) < 0)
				})
				require.True(t, in,
					"pass over %d: the chunk of series %x and start %d isn't there, and in none of the gaps %v",
					passOver, id, start, gaps)
			}
		}
	}
}

// TestChunksOfSomeColumns requires that only the needed columns of rollups in pages are assembled, and that raw chunks
// are assembled completely.
func TestChunksOfSomeColumns(t *testing.T) {
	series := seriesOf("up", 300)
	for _, table := range rowTables {
		eng := memory.New()
		require.NoError(t, rowsOf(eng).Write(t.Context(), []engine.Batch{newSeriesBatch(table, series, 0)}))
		r := New(eng, Options{})
		read := func(want rollup.Columns) (values [][]byte, size int) {
			w := Wanted{Table: table, Partition: partitionOf("up"), First: startOf(0), Last: startOf(0), Columns: want}
			for i := range series {
				w.IDs = append(w.IDs, series[i].id)
			}
			slices.Sort(w.IDs)
			for _, row := range mustRead(
				t, func(ctx context.Context, _ engine.Range) seq { return r.Chunks(ctx, w) }, engine.Range{},
			) {
				values, size = append(values, []byte(row.value)), size+len(row.value)
			}
			return values, size
		}
		all, size := read(0)
		require.Len(t, all, len(series))
		for _, want := range []rollup.Columns{
			rollup.ColumnMax, rollup.ColumnSum | rollup.ColumnCount, rollup.AllColumns,
		} {
			some, less := read(want)
			if table == engine.Raw || want == rollup.AllColumns {
				require.Equal(t, all, some)
				continue
			}
			require.Less(t, less, size)
			for i := range all {
				var expected, got rollup.Buckets
				require.NoError(t, rollup.Decode(all[i], want, &expected))
				require.NoError(t, rollup.Decode(some[i], want, &got))
				require.Equal(t, expected, got)
			}
		}
	}
}
