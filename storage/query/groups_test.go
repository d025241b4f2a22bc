package query

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestGroupsAreReleased checks that a group is released once all its series are read, and that at most maxHeldGroups
// groups are held. It reads the series of a result first in order, and then concurrently in random order.
func TestGroupsAreReleased(t *testing.T) {
	sel := &selection{
		ctx: t.Context(), r: &request{rowReader: &rowReader{Querier: New(Env{SeekRows: 20})}},
		sources: []source{{window: &sealedWindow{}, places: 1}},
	}
	for i := range 30*GroupSeries + 5 {
		sel.series = append(sel.series, &SelectedSeries{sel: sel, at: uint32(i)})
	}
	g := &sel.groups
	g.init(sel, false)
	require.Empty(t, g.held, "nothing is read before it is asked for")
	read := func(order []int) error {
		for _, i := range order {
			if _, err := g.chunks(sel.series[i]); err != nil {
				return err
			}
		}
		return nil
	}
	inOrder := make([]int, len(sel.series))
	for i := range inOrder {
		inOrder[i] = i
	}
	for range 2 {
		require.NoError(t, read(inOrder))
		require.Empty(t, g.held, "what was read is released")
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		order := rand.New(rand.NewPCG(1, uint64(i))).Perm(len(sel.series))[:200]
		wg.Go(func() { errs[i] = read(order) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.LessOrEqual(t, len(g.held), maxHeldGroups)
}

// TestGroupsOfLargeSortedResults checks that the groups of a sorted result grow with the number of its series, and that
// two groups never take more memory than the list of a large result.
func TestGroupsOfLargeSortedResults(t *testing.T) {
	const listed = int(unsafe.Sizeof(SelectedSeries{}) + unsafe.Sizeof(&SelectedSeries{}) + unsafe.Sizeof(part{}))
	for series, want := range map[int]int{
		1: 4 << 20, 16_000: 4 << 20, 200_000: 6_400_000, 480_000: 15_360_000, 10_000_000: 16 << 20,
	} {
		require.Equal(t, want, sortedBytes(series), series)
		if want > minSortedBytes {
			require.LessOrEqual(t, 2*want, series*listed)
		}
	}
}
