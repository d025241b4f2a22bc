package query

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

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
