package retention

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestBoundarySteps checks that the windows of each step may be dropped only a week after the step hid them, even if
// windows are hidden, shown again, and hidden again.
func TestBoundarySteps(t *testing.T) {
	const week = int64(7 * format.DayMS)
	h := Boundary{HiddenMS: Never, LackingMS: Never, DroppedMS: Never}
	h.setTarget(10*format.DayMS, 0, nil)
	h.setTarget(11*format.DayMS, format.DayMS, nil)
	require.Equal(t, int64(11*format.DayMS), h.HiddenMS)
	require.Equal(t, int64(Never), h.dueUntil(week-1))
	require.Equal(t, int64(10*format.DayMS), h.dueUntil(week))
	// The boundary moves back into the first step, and forward again. The week restarts for the windows that were shown
	// in between.
	h.setTarget(5*format.DayMS, 2*format.DayMS, nil)
	require.Equal(t, int64(5*format.DayMS), h.HiddenMS)
	h.setTarget(11*format.DayMS, 3*format.DayMS, nil)
	require.Equal(t, int64(5*format.DayMS), h.dueUntil(week), "what stayed hidden")
	require.Equal(t, int64(11*format.DayMS), h.dueUntil(week+3*format.DayMS))
	// Dropped windows are never shown again.
	h.recordDropped(5*format.DayMS, false)
	h.setTarget(Never, 4*format.DayMS, nil)
	require.Equal(t, int64(5*format.DayMS), h.HiddenMS)
	require.Empty(t, h.Steps)
	// The number of steps is bounded. Windows of merged steps are dropped later, never before they were hidden for a
	// week.
	for i := int64(6); i < 6+2*maxSteps; i++ {
		h.setTarget(i*format.DayMS, i, nil)
	}
	require.Len(t, h.Steps, maxSteps)
	require.Greater(t, h.Steps[0].ToMS, int64(6*format.DayMS))
}

// TestKeptBefore checks longestRetention after a retention was lowered once or in steps, and after it was raised.
func TestKeptBefore(t *testing.T) {
	const day = int64(format.DayMS)
	h := Boundary{KeptMS: 60 * day}
	h.setRetention(30*day, 50*day)
	h.setRetention(10*day, 53*day)
	require.Equal(t, 60*day, h.longestRetention(day, 59*day), "within a week of the last step")
	require.Equal(t, 10*day, h.longestRetention(day, 60*day))
	require.Equal(t, 90*day, h.longestRetention(90*day, 54*day), "another process keeps more")
	h.setRetention(45*day, 54*day)
	require.Equal(t, 60*day, h.longestRetention(45*day, 55*day), "taken back in part")
	h.setRetention(0, 55*day)
	require.Zero(t, h.longestRetention(day, 100*day))
	h.setRetention(day, 200*day)
	require.Zero(t, h.longestRetention(day, 206*day), "forever, for a week")
	require.Equal(t, day, h.longestRetention(day, 207*day))
	h.setRetention(365*day, 300*day)
	require.Zero(t, h.SinceMS)
	require.Equal(t, 365*day, h.longestRetention(day, 300*day))
}

// TestRestoredWindows checks that the rows between and after restored windows stay missing until the boundary passes
// these rows. It restores windows that were dropped.
func TestRestoredWindows(t *testing.T) {
	const day = int64(format.DayMS)
	h := Boundary{HiddenMS: Never, LackingMS: Never, DroppedMS: Never}
	h.setTarget(100*day, 0, nil)
	h.recordDropped(100*day, false)
	require.True(t, h.restoreWindow(10*day, 11*day))
	require.Equal(t, []int64{10 * day, 10 * day, 10 * day}, []int64{h.HiddenMS, h.LackingMS, h.DroppedMS})
	require.Equal(t, []hole{{11 * day, 100 * day}}, h.Holes)
	require.True(t, h.restoreWindow(11*day, 12*day))
	require.True(t, h.restoreWindow(20*day, 21*day))
	require.True(t, h.restoreWindow(99*day, 100*day))
	require.True(t, h.restoreWindow(5*day, 6*day))
	require.Equal(t, []hole{{6 * day, 10 * day}, {12 * day, 20 * day}, {21 * day, 99 * day}}, h.Holes)
	for end, lacks := range map[int64]bool{
		5: true, 6: false, 7: true, 10: true, 11: false, 12: false, 13: true, 20: true, 21: false, 99: true, 100: false,
		101: false,
	} {
		require.Equal(t, lacks, h.mayMiss(end*day), end)
	}
	h.recordDropped(15*day, false)
	require.Equal(t, 20*day, h.LackingMS)
	require.Equal(t, []hole{{21 * day, 99 * day}}, h.Holes)
	many := Boundary{HiddenMS: 1000 * day, LackingMS: 1000 * day, DroppedMS: 1000 * day}
	restored := 0
	for i := int64(999); i > 0 && many.restoreWindow(i*day, i*day+day/2); i-- {
		restored++
	}
	require.Equal(t, maxHoles, restored, "the number of holes is bounded")
}

// boundariesGolden is the row that FORMAT.md shows.
const boundariesGolden = `{"horizons":[{"class":0,"resolution":0,"hidden_ms":1777593600000,"next_rolled":true,"lacking_ms":1776988800000,"dropped_ms":1776988800000,"holes":[{"from_ms":1777075200000,"to_ms":1777161600000}],"kept_ms":2592000000,"before_ms":86400000,"since_ms":31532400000,"steps":[{"to_ms":1777507200000,"seen_ms":31532400000,"lowered":{"kept_ms":0,"hidden_ms":1776988800000}},{"to_ms":1777593600000,"seen_ms":31618800000}]},{"class":0,"resolution":1,"hidden_ms":-9007199254740992,"lacking_ms":-9007199254740992,"dropped_ms":-9007199254740992,"kept_ms":0}]}`

func TestBoundaryRows(t *testing.T) {
	r, err := parseBoundaries([]byte(boundariesGolden))
	require.NoError(t, err)
	require.Equal(t, boundaryRow{List: []Boundary{
		{
			HiddenMS: 1777593600000, LackingMS: 1776988800000, DroppedMS: 1776988800000, KeptMS: 2592000000,
			BeforeMS: 86400000, SinceMS: 31532400000, NextRolled: true,
			Holes: []hole{{1777075200000, 1777161600000}},
			Steps: []hidingStep{
				{1777507200000, 31532400000, &loweredFrom{0, 1776988800000}}, {1777593600000, 31618800000, nil},
			},
		},
		{Resolution: rollup.FiveMinutes, HiddenMS: Never, LackingMS: Never, DroppedMS: Never},
	}}, r)
	value, err := json.Marshal(r)
	require.NoError(t, err)
	require.Equal(t, boundariesGolden, string(value))
	for _, bad := range []string{
		"", "{", `{"horizons":[{"resolution":3}]}`, `{"horizons":[{"class":-1}]}`,
		`{"horizons":[{"hidden_ms":1,"lacking_ms":2}]}`, `{"horizons":[{"lacking_ms":1,"hidden_ms":1,"dropped_ms":2}]}`,
		`{"horizons":[{"resolution":1},{"resolution":0}]}`,
	} {
		_, err := parseBoundaries([]byte(bad))
		require.Error(t, err, bad)
	}
}
