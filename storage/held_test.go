package storage

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// TestHeldReach has rows say how far they reach: not by what is ahead, unless all is.
func TestHeldReach(t *testing.T) {
	const now, limit = 1_000_000, 1_030_000
	series := head.MetricOf("t", "").Series(format.SeriesID{}, labels.FromStrings("__name__", "m"))
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
		b := &heldBuilder{fresh: reach{now: now, limit: limit, t: math.MinInt64}}
		for _, at := range c.times {
			b.add(&head.Sample{Series: series, T: at})
		}
		b.addExemplar(&head.EncodedExemplar{Series: series, T: 980_000, Data: []byte{0}})
		b.cut()
		v, err := format.ParseHeld(b.values[0])
		require.NoError(t, err, name)
		require.Equal(t, c.want, v.Reach, name)
		require.Equal(t, int64(980_000), v.MinT, name)
	}
}
