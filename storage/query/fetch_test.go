package query

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLargeGroupsAreReadTogether checks that the series of a large group are read together even if some gaps between
// them are large, and that a small group is split at a large gap.
func TestLargeGroupsAreReadTogether(t *testing.T) {
	sel := &selection{
		r:       &request{rowReader: &rowReader{Querier: New(Env{SeekRows: 20})}},
		sources: []source{{places: 1}, {places: 4}},
	}
	random := rand.New(rand.NewPCG(1, 0))
	var wants []wantedSeries
	for at := uint32(0); len(wants) < 4096; at += 1 + random.Uint32N(2*sortedGroups) {
		wants = append(wants, wantedSeries{at: at})
	}
	require.Len(t, sel.tasks(wants, true), 1)
	require.Greater(t, len(sel.tasks(wants, false)), len(wants)/4)
	far := append(wants[:2:2], wantedSeries{at: wants[1].at + largeGap + 1}, wantedSeries{source: 1})
	require.Len(t, sel.tasks(far, true), 3, "it is cut at a gap, and at another source")

	for i := range wants {
		wants[i].source, wants[i].at = 1, 4*wants[i].at
	}
	require.Len(t, sel.tasks(wants, true), 1, "most of the series between two are in other places")
}
