package rollup

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestCorrectionsOfSumsThatAreValues requires that corrections aren't predicted from sums that are stored as values,
// which are shorter for some gauges.
func TestCorrectionsOfSumsThatAreValues(t *testing.T) {
	asValues := 0
	for seed := range soak.Seeds(t, 100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s chunk.Samples
		for at := int64(0); at < 24*oneHour; at += 45_000 {
			if r.IntN(400) == 0 {
				at += int64(r.IntN(5 * oneHour))
			}
			s.AppendFloat(startMS+at, 0, decimals(r.NormFloat64()*1e4, 2))
		}
		var fine, coarse, got Buckets
		AppendEvery(&fine, &s, fiveMinutes)
		Coarsen(&coarse, &fine, oneHour)
		for width, b := range map[int64]*Buckets{fiveMinutes: fine.slice(0, min(24, fine.Len())), oneHour: &coarse} {
			value := AppendChunk(nil, b, width, 1)
			var e envelope
			require.NoError(t, e.parse(value))
			if c := e.column(columnSum); len(c) > 0 && c[0] == byValues {
				asValues++
			}
			got.Reset()
			require.NoError(t, Decode(value, AllColumns, &got), "seed %d, width %d", seed, width)
			requireSame(t, b, &got, fmt.Sprint("seed ", seed))
			got.Reset()
			require.NoError(t, Decode(value, ColumnCorrection|ColumnFirst|ColumnLast, &got),
				"seed %d, width %d", seed, width)
		}
	}
	require.NotZero(t, asValues)
}
