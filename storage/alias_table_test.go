package storage

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAliasTable compares the table with a map, hashes that collide in their first half included, while
// readers look up what never goes.
func TestAliasTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var table aliasTable
	want := map[aliasHash]*Series{}
	forever := aliasHash{7, 7}
	table.add(forever, &Series{})
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
			hash := aliasHash{uint64(rng.IntN(50)), rng.Uint64()}
			s := &Series{dead: rng.IntN(2) == 0}
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
		require.Equal(t, len(want)+1, table.used)
	}
	close(stop)
	readers.Wait()
}
