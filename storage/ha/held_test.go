package ha

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
)

// TestHeldReach checks the reach of held rows: samples ahead of the clock don't raise it, unless all samples are ahead.
func TestHeldReach(t *testing.T) {
	const now, limit = 1_000_000, 1_030_000
	series := &namedSeries{"m"}
	for name, c := range map[string]struct {
		times []int64
		want  int64
	}{
		"behind":         {[]int64{990_000, 980_000}, 990_000},
		"a little ahead": {[]int64{990_000, 1_030_000}, 1_030_000},
		"one ahead":      {[]int64{990_000, 1_030_001}, 990_000},
		"all ahead":      {[]int64{1_030_001, 1_600_000}, now},
		"exemplars":      {nil, math.MinInt64},
	} {
		b := &HeldBuilder{tenant: "t", fresh: reach{now: now, limit: limit, t: math.MinInt64}}
		for _, at := range c.times {
			b.Float(series, at, 0, 0)
		}
		b.Exemplar(series, 980_000, []byte{0})
		b.finishValue()
		v, err := format.ParseHeld(b.values[0])
		require.NoError(t, err, name)
		require.Equal(t, c.want, v.Reach, name)
		require.Equal(t, int64(980_000), v.MinT, name)
	}
}
