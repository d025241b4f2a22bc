package resolution

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/rollup"
)

func TestShortfallsMerge(t *testing.T) {
	var all Shortfall
	require.NoError(t, all.Info())
	all.Merge(Shortfall{})
	require.NoError(t, all.Info())
	all.Merge(Shortfall{
		From: someDay, To: someDay + day, Raw: someDay + 2*day, Widest: rollup.FiveMinutes, Moved: true,
		MovedBy: minute, MovedOf: 6 * hour,
	})
	all.Merge(Shortfall{})
	all.Merge(Shortfall{
		From: someDay - day, To: someDay, Raw: someDay + 2*day, Widest: rollup.OneHour, Approximated: true,
	})
	require.EqualError(t, all.Info(), "PromQL info: raw samples before 2026-03-03T00:00:00Z have expired; "+
		"from 2026-02-28T00:00:00Z to 2026-03-02T00:00:00Z edges of 6h windows are moved by up to 1m (0.28 % of the "+
		"range) to the edges of buckets of up to 1h; functions that rollups don't support are computed from samples "+
		"reconstructed from buckets of up to 1h")
}

func TestBoundsAreRoundedUp(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 1.234: "1.24", 1.236: "1.24", 1.7912e308: "1.8e+308", math.MaxFloat64: "1.8e+308",
	} {
		require.Equal(t, want, formatRoundedUp(v))
	}
}
