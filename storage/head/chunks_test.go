package head

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChunksAreInOrder adds and removes head chunks of random slots, and compares the list and copies of it with plain
// lists.
func TestChunksAreInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l Chunks
		var want []*Chunk
		type copied struct {
			l    Chunks
			want []*Chunk
		}
		var copies []copied
		for range 1 + rng.IntN(60) {
			if len(want) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(want)) * rng.IntN(2)
				l, want = l.WithoutChunk(want[i]), slices.Delete(slices.Clone(want), i, i+1)
			} else {
				st := newChunk(&Generation{start: rng.Int64N(20)}, nil)
				if rng.IntN(2) == 0 && len(want) > 0 { // the next slot, as when samples arrive in order
					st.gen.start = want[len(want)-1].gen.start + 1
				}
				l, want = l.WithChunk(st), append(slices.Clone(want), st)
				slices.SortStableFunc(want, func(a, b *Chunk) int { return int(a.gen.start - b.gen.start) })
			}
			copies = append(copies, copied{l, want})
			require.Equal(t, len(want) == 0, l.IsEmpty())
			for _, st := range want {
				require.Same(t, st, l.chunkOf(st.gen))
			}
			require.Nil(t, l.chunkOf(&Generation{start: rng.Int64N(20)}))
		}
		for _, c := range copies {
			got := slices.Collect(c.l.All())
			require.Len(t, got, len(c.want))
			for i := range got {
				require.Same(t, c.want[i], got[i])
			}
		}
	}
}
