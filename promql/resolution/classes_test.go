package resolution

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/rollup"
)

// TestClassesKeepNothingAlike checks queries of classes with different retention: one class keeps raw samples longest,
// another one 1h buckets. The boundaries of raw samples move by days, and not while the clock is untrusted or rollups
// can't be computed. The boundaries of buckets move independently of them.
func TestClassesKeepNothingAlike(t *testing.T) {
	for _, c := range []struct {
		mode     Mode
		coarsest rollup.Resolution
		fn       string
		other    [3]int64
		want     string
	}{
		{fn: "rate", want: "0-720 1h exact 1h0m0s"},
		{fn: "rate", other: keptFor(9*day+hour, 9*day+hour, 20*day), want: "0-720 1h exact 1h0m0s"},
		{fn: "rate", other: keptFor(5*day, 6*day, 9*day+hour), want: "0-720 1h exact 1h0m0s"},
		{fn: "rate", mode: ModeOneHour, want: "0-720 1h exact 1h0m0s"},
		{fn: "rate", mode: modeFiveMinutes, want: "0-505 raw exact 1h0m0s; 505-720 5m exact 1h0m0s"},
		{fn: "rate", coarsest: rollup.FiveMinutes, other: keptFor(2*day, 20*day, 40*day), want: "0-720 5m exact 1h0m0s"},
		{fn: "rate", mode: ModeRaw, want: "0-720 raw exact 1h0m0s"},
		{fn: "quantile_over_time", want: "0-673 1h exact 1h0m0s approximate; 673-720 raw exact 1h0m0s"},
	} {
		r := Request{
			Func: c.fn, Range: hour, Mode: c.mode, Coarsest: c.coarsest, Oldest: math.MinInt64, Slot: 2 * hour,
			From: someDay - 30*day, To: someDay - hour, Step: hour,
			Classes: [][3]int64{keptFor(10*day, 9*day, 9*day), keptFor(2*day, 2*day+hour, 40*day)},
		}
		if c.other != [3]int64{} {
			r.Classes[1] = c.other
		}
		for i := range r.Boundary {
			r.Boundary[i] = max(r.Classes[0][i], r.Classes[1][i])
		}
		segments, _, err := Choose(r)
		require.NoError(t, err)
		require.Equal(t, c.want, written(segments), "%+v", c)
	}
}
