package query

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
)

// TestWantsAreSorted checks that sortWants sorts by source and index for any number of sources, whether the series of
// each source are already in order or not.
func TestWantsAreSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(soak.Seed(t), 1))
	for range 2000 {
		wants := make([]wantedSeries, r.IntN(40))
		sources, ordered := 1+r.IntN(2*fewSources), r.IntN(3) > 0
		for i := range wants {
			wants[i] = wantedSeries{source: uint32(r.IntN(sources)), at: uint32(i), series: uint32(i)}
			if !ordered {
				wants[i].at = r.Uint32N(50)
			}
		}
		sorted := slices.Clone(wants)
		slices.SortStableFunc(sorted, func(a, b wantedSeries) int {
			return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.at, b.at))
		})
		sortWants(wants)
		require.ElementsMatch(t, sorted, wants)
		for i := range wants {
			require.Equal(t, []uint32{sorted[i].source, sorted[i].at}, []uint32{wants[i].source, wants[i].at})
		}
	}
}
