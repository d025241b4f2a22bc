package importer

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Sums of large values overflow in one order of addition and not in another. Verify doesn't report such sums as a
// difference, but reports a missing sample.
func TestVerifyOfSumsThatOverflow(t *testing.T) {
	var s chunk.Samples
	for i, sign := range []float64{1, 1, 1, -1, -1, -1, 1, -1, 1} {
		s.AppendFloat(int64(i+1)*100_000, 0, sign*math.MaxFloat64)
	}
	var fine, have rollup.Buckets
	rollup.AppendEvery(&fine, &s, rollup.FiveMinutes.Width())
	rollup.Coarsen(&have, &fine, rollup.OneHour.Width())
	differences := 0
	v := verifier{within: query.Span{MinT: math.MinInt64, MaxT: math.MaxInt64},
		report: func(Difference) { differences++ }}
	v.compareRollups(labels.EmptyLabels(), 0, &s, rollup.OneHour, &have)
	require.Zero(t, differences)
	have.Count[0]--
	v.compareRollups(labels.EmptyLabels(), 0, &s, rollup.OneHour, &have)
	require.Equal(t, 1, differences)
}
