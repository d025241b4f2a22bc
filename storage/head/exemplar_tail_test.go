package head

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
)

// TestExemplarTail adds exemplars in random orders. The exemplars that format.SelectExemplars selects from all of them
// stay in memory, and few other exemplars.
func TestExemplarTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []format.Exemplar
	for range 3 * format.MaxSlotExemplars {
		all = append(all, format.Exemplar{T: rng.Int64N(5000), Data: []byte{byte(rng.IntN(3))}})
	}
	want := format.SelectExemplars(slices.Clone(all))
	for range 20 {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var tail exemplarTail
		for _, e := range all {
			tail.add(e.T, e.Data)
			require.Less(t, len(tail.list), 2*format.MaxSlotExemplars)
		}
		require.Equal(t, want, format.SelectExemplars(tail.list))
	}
}
