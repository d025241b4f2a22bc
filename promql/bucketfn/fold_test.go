package bucketfn

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
)

// TestFoldJoinsInOrder checks that each window joins exactly its leaves, in order, with few joins. The leaves are text,
// so that missing, repeated and misplaced leaves are detected.
func TestFoldJoinsInOrder(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 4))
	var f Fold[string]
	for range 200 { // one after the other, reusing the memory
		leaves := make([]string, 1+r.IntN(60))
		for i := range leaves {
			leaves[i] = string(rune('!' + i))
		}
		joins := 0
		f.Start(func(earlier, later string) string {
			joins++
			return earlier + later
		})
		lo, hi, moves := 0, 0, 0
		for hi < len(leaves) || r.IntN(3) > 0 {
			hi = min(hi+r.IntN(4), len(leaves))
			lo = min(lo+r.IntN(4)*r.IntN(2), hi)
			if lo == hi {
				continue
			}
			moves++
			require.Equal(t, strings.Join(leaves[lo:hi], ""), f.Join(leaves, lo, hi), "seed %d", seed)
		}
		require.LessOrEqual(t, joins, 2*len(leaves)+moves, "however wide the windows are")
	}
}

func TestRunningSums(t *testing.T) {
	column, other := []uint32{1, 2, 3, 4, 1 << 31, 1 << 31, 1 << 31}, []uint32{0, 10, 0, 0, 0, 0, 0}
	n := runningSum{columns: [][]uint32{column, other}}
	require.EqualValues(t, 13, n.sumOver(0, 2))
	require.EqualValues(t, 19, n.sumOver(1, 4))
	require.EqualValues(t, 0, n.sumOver(4, 4))
	require.EqualValues(t, 3<<31, n.sumOver(4, 7))
	require.EqualValues(t, 1<<31, n.sumOver(6, 7))
	past := runningSum{columns: [][]uint32{column}}
	require.EqualValues(t, 3<<31, past.sumOver(4, 7), "what lies before the first window doesn't count")
}
