package paged

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestChunksReadFewRanges counts the engine's scans for the chunks that half of all series have of one start: as many as there are
// buckets, and some, however many series and starts there are.
func TestChunksReadFewRanges(t *testing.T) {
	for _, table := range rowTables {
		scans := 0
		eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Scan {
				scans++
			}
			return faultengine.Pass()
		})
		series := seriesOf("up", 2000)
		require.NoError(t, writing(eng).Write(t.Context(), []engine.Batch{written(table, series, 0, 1, 2, 3, 4)}))
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
			scans = 0
			rows := mustRead(t, func(ctx context.Context, _ engine.Range) seq { return r.Chunks(ctx, w) }, engine.Range{})
			require.Len(t, rows, 1000)
			most := 2*len(buckets) + 10
			if cold {
				most += len(buckets)
			}
			require.LessOrEqual(t, scans, most, "%s, %d buckets", table, len(buckets))
		}
	}
}

// TestChunksWithoutPages passes over what others have, and begins anew where there is much of it.
func TestChunksWithoutPages(t *testing.T) {
	for _, table := range rowTables {
		scans := 0
		eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Scan {
				scans++
			}
			return faultengine.Pass()
		})
		series := seriesOf("up", 300)
		none := New(eng, Options{None: true})
		require.False(t, none.HavePages())
		require.NoError(t, none.Write(t.Context(), []engine.Batch{written(table, series, 0, 1)}))
		w := Wanted{Table: table, Partition: partitionOf("up"), First: startOf(1), Last: startOf(1), IDs: []string{series[3].id, series[4].id, series[299].id}}
		for passOver, most := range map[int]int{0: 7, 1000: 1} {
			scans, w.PassOver = 0, passOver
			require.Len(t, mustRead(t, func(ctx context.Context, _ engine.Range) seq { return none.Chunks(ctx, w) }, engine.Range{}), 3)
			require.LessOrEqual(t, scans, most, table.String())
		}
	}
}
