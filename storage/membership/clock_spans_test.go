package membership

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
)

// Whatever is added to spans is in them, they are in order and apart, and there are few of them.
func TestTimeSpansHoldWhatWasAdded(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var spans TimeSpans
		var added []TimeSpan
		for range 30 {
			from := rng.Int64N(400*format.DayMS) - 200*format.DayMS
			span := TimeSpan{from, from + rng.Int64N(format.DayMS)}
			before := slices.Clone(spans)
			next := spans.with(span)
			require.Equal(t, before, spans, "those that were given stay as they are: they may be being written")
			spans, added = next, append(added, span)
			require.LessOrEqual(t, len(spans), maxStagedSpans)
			for i := range spans {
				require.LessOrEqual(t, spans[i].From, spans[i].To)
				require.True(t, i == 0 || spans[i].From-spans[i-1].To > MaxLeap.Milliseconds())
			}
			for _, a := range added {
				require.True(t, spans.cover(a))
				require.Equal(t, spans, spans.with(a))
			}
		}
	}
}

func TestStepsOfTimeSpans(t *testing.T) {
	hour := func(ms int64) int64 { return format.FloorDiv(ms, format.HourMS) }
	spans := TimeSpans{{-2 * format.HourMS, -format.HourMS}, {5 * format.HourMS, 7*format.HourMS - 1}, {6 * format.HourMS, 7 * format.HourMS}, {100 * format.HourMS, 100 * format.HourMS}}
	require.Equal(t, []int64{-2, -1, 5, 6, 7, 100}, slices.Collect(spans.Steps(-2, hour)))
	require.Equal(t, []int64{1, 5, 6, 7, 100}, slices.Collect(spans.Steps(1, hour)))
	require.Equal(t, []int64{6, 7, 100}, slices.Collect(spans.Steps(6, hour)))
	require.Equal(t, []int64{200}, slices.Collect(spans.Steps(200, hour)), "the mark's own is always among them")
	for n := range spans.Steps(-2, hour) {
		require.Equal(t, int64(-2), n)
		break
	}
}
