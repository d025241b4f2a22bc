package head

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
)

// TestRowSet compares the set with a map, and the number of runs with the expected one.
func TestRowSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var set rowSet
		want := map[format.StageRow]bool{}
		require.True(t, set.isEmpty())
		for range rng.IntN(200) {
			r := format.StageRow{Writer: fmt.Sprint(rng.IntN(3)), Seq: 1 + rng.Int64N(100)}
			set.add(r)
			want[r] = true
		}
		require.Equal(t, len(want) == 0, set.isEmpty())
		require.Equal(t, len(want), set.len())
		require.Equal(t, want, maps.Collect(func(yield func(format.StageRow, bool) bool) {
			for r := range set.all() {
				if !yield(r, true) {
					return
				}
			}
		}))
		runs, wantRuns := 0, 0
		for _, w := range set.writers {
			runs += len(w.runs)
			require.True(t, slices.IsSortedFunc(w.runs, func(a, b format.SeqRun) int { return int(a.Last - b.First) }),
				"round %d: %v", round, w.runs)
		}
		for r := range want {
			if !want[format.StageRow{Writer: r.Writer, Seq: r.Seq + 1}] {
				wantRuns++
			}
		}
		require.Equal(t, wantRuns, runs)
		for writer := range 4 {
			for seq := range int64(102) {
				r := format.StageRow{Writer: fmt.Sprint(writer), Seq: seq}
				require.Equal(t, want[r], set.has(r))
			}
		}
	}
}
