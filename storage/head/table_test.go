package head

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestAliasTable compares the table with a map, for first and other aliases and with colliding hashes, while readers
// look up entries that are never removed.
func TestAliasTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var table aliasTable
	want := map[AliasHash]*Series{}
	forever := AliasHash{7, 7}
	table.add(forever, &Series{hash: forever})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if table.find(forever) == nil {
						t.Error("lost")
						return
					}
				}
			}
		})
	}
	for range 20 {
		for range 200 {
			hash := AliasHash{rng.Uint64(), uint64(rng.IntN(50))<<32 | uint64(rng.Uint32())}
			s := &Series{dead: rng.IntN(2) == 0}
			if rng.IntN(2) == 0 {
				s.hash = hash
			}
			require.Nil(t, table.find(hash))
			table.add(hash, s)
			want[hash] = s
		}
		for hash, s := range want {
			require.Same(t, s, table.find(hash))
		}
		table.remove(func(s *Series) bool { return s.dead })
		for hash, s := range want {
			if s.dead {
				require.Nil(t, table.find(hash))
				delete(want, hash)
			}
		}
		require.Equal(t, len(want)+1, table.first.used+table.others.used)
	}
	close(stop)
	readers.Wait()
}

// TestSizesInTheHead checks the sizes of a table entry, a series and a head chunk, which determine the size of a head
// with millions of series.
func TestSizesInTheHead(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Series{}), uintptr(96))
	require.LessOrEqual(t, unsafe.Sizeof(Chunk{}), uintptr(80))
	var table table[Series]
	for i := range 100_000 {
		table.add(rand.Uint32(), &Series{})
		slots := len(table.slots.Load().hashes)
		require.LessOrEqual(t, 5*(i+1), 4*slots)
		require.LessOrEqual(t, slots, 16+2*i)
	}
	table.remove(func(*Series) bool { return true })
	require.Zero(t, table.used)
	require.Len(t, table.slots.Load().hashes, 16, "what is gone takes no room")
}

func TestStrandList(t *testing.T) {
	g := &Generation{}
	a, b, c := newChunk(g, nil), newChunk(g, nil), newChunk(g, nil)
	list := func(l Chunks) []*Chunk { return slices.Collect(l.All()) }
	none := Chunks{}
	require.True(t, none.IsEmpty())
	require.Empty(t, list(none))
	one := none.WithChunk(a)
	two, three := one.WithChunk(b), one.WithChunk(b).WithChunk(c)
	require.Equal(t, []*Chunk{a}, list(one))
	require.Equal(t, []*Chunk{a, b}, list(two))
	require.Equal(t, []*Chunk{a, b, c}, list(three))
	require.True(t, one.WithoutChunk(a).IsEmpty())
	require.Same(t, b, two.WithoutChunk(a).one)
	require.Equal(t, []*Chunk{a, c}, list(three.WithoutChunk(b)))
	require.Equal(t, one, one.WithoutChunk(c))
	require.Equal(t, []*Chunk{a, b}, list(two.WithoutChunk(c)))
	require.Equal(t, []*Chunk{a, b, c}, list(three), "it never changes")
}
