package format

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	noon  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	first = Period{SlotMS: 2 * HourMS, RawWindowMS: DayMS, Partitions: 4}
)

// newTestPeriods returns periods that were added one after the other, each at noon.
func newTestPeriods(t *testing.T, more ...Period) *Periods {
	list := []Period{first}
	for i, want := range more {
		next, err := NewPeriods(list...).NextPeriod(want, noon.Add(time.Duration(i)*10*24*time.Hour), noon)
		require.NoError(t, err)
		list = append(list, next)
	}
	return NewPeriods(list...)
}

// TestPeriodsCutTimeWithoutGaps checks that the slots and windows of many periods follow each other without gaps.
func TestPeriodsCutTimeWithoutGaps(t *testing.T) {
	p := newTestPeriods(t, Period{SlotMS: HourMS}, Period{SlotMS: 12 * HourMS, RawWindowMS: 3 * DayMS, Partitions: 8},
		Period{SlotMS: 4 * HourMS, RawWindowMS: DayMS}, Period{Partitions: 32})
	slot := p.SlotOf(noon.Add(-40 * 24 * time.Hour).UnixMilli())
	window := p.RawWindowOfSlot(slot)
	for p.SlotStart(slot) < noon.Add(80*24*time.Hour).UnixMilli() {
		start, end := p.SlotStart(slot), p.SlotEnd(slot)
		require.Greater(t, end, start)
		require.Equal(t, end, p.SlotStart(slot+1))
		for _, at := range []int64{start + 1, (start + end) / 2, end} {
			require.Equal(t, slot, p.SlotOf(at))
			require.Equal(t, p.RawWindowOfSlot(slot), p.RawWindowAt(at))
		}
		require.LessOrEqual(t, end, p.RawWindowEnd(p.RawWindowOfSlot(slot)))
		require.Contains(t, []int64{window, window + 1}, p.RawWindowOfSlot(slot))
		window = p.RawWindowOfSlot(slot)
		slot++
	}
	require.EqualValues(t, 0, p.SlotStart(0))
	require.EqualValues(t, -1, p.SlotOf(0))
	for range 1000 {
		at := rand.Int64N(2*MaxTime) - MaxTime
		s := p.SlotOf(at)
		require.True(t, p.SlotStart(s) < at && at <= p.SlotEnd(s), "%d", at)
	}
}

func TestNextPeriod(t *testing.T) {
	p := NewPeriods(first)
	next, err := p.NextPeriod(Period{SlotMS: HourMS}, time.Time{}, noon)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 5, 3, 0, 0, 0, 0, time.UTC).UnixMilli(), next.FromMS,
		"the first midnight that is 25 h away")
	require.Equal(t, p.SlotOf(next.FromMS)+1, next.FirstSlot)
	later, err := p.NextPeriod(Period{SlotMS: HourMS}, noon.Add(9*24*time.Hour), noon)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 5, 11, 0, 0, 0, 0, time.UTC).UnixMilli(), later.FromMS)
	for name, wrong := range map[string]Period{
		"nothing changes":     {SlotMS: 2 * HourMS},
		"fewer partitions":    {Partitions: 2},
		"no multiple":         {Partitions: 6},
		"too many":            {Partitions: 8192},
		"a slot of minutes":   {SlotMS: HourMS / 2},
		"a slot of two days":  {SlotMS: 2 * DayMS, RawWindowMS: 4 * DayMS},
		"a window of a slot":  {RawWindowMS: 2 * HourMS},
		"slots in no windows": {SlotMS: 7 * HourMS},
		"a window of years":   {RawWindowMS: 106_751 * DayMS},
	} {
		_, err := p.NextPeriod(wrong, time.Time{}, noon)
		require.ErrorIs(t, err, ErrBadPeriod, name)
	}
	_, err = p.NextPeriod(Period{SlotMS: HourMS}, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), noon)
	require.ErrorIs(t, err, ErrBadPeriod)
	require.ErrorContains(t, err, "because it can't be undone, it must start before 2027-05-02T12:00:00Z")
}

// TestPeriodsOfPartitions checks that a series is in partitions of the same part of the head in every period.
func TestPeriodsOfPartitions(t *testing.T) {
	p := newTestPeriods(t, Period{Partitions: 8}, Period{Partitions: 24})
	count := make([]int, 24)
	for range 24_000 {
		hash := rand.Uint64()
		home, of := PartitionOf(hash, first.Partitions), func() uint64 { return hash }
		require.Equal(t, home, p.PartitionOf(p.SlotOf(noon.UnixMilli()), home, of))
		last := p.SlotOf(noon.Add(90 * 24 * time.Hour).UnixMilli())
		at := p.PartitionOf(last, home, of)
		require.Equal(t, home, at%first.Partitions)
		count[at]++
	}
	for _, n := range count {
		require.InDelta(t, 1000, n, 200)
	}
}
