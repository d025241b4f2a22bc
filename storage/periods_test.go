package storage

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	noon  = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	first = Period{SlotMS: 2 * hourMS, RawWindowMS: dayMS, Partitions: 4}
)

// changed returns periods that were added at noon, one after the other.
func changed(t *testing.T, more ...Period) *periods {
	list := []Period{first}
	for i, want := range more {
		next, err := newPeriods(list...).next(want, noon.Add(time.Duration(i)*10*24*time.Hour), noon)
		require.NoError(t, err)
		list = append(list, next)
	}
	return newPeriods(list...)
}

// TestPeriodsCutTimeWithoutGaps walks over the ends of slots and windows of many periods.
func TestPeriodsCutTimeWithoutGaps(t *testing.T) {
	p := changed(t, Period{SlotMS: hourMS}, Period{SlotMS: 12 * hourMS, RawWindowMS: 3 * dayMS, Partitions: 8},
		Period{SlotMS: 4 * hourMS, RawWindowMS: dayMS}, Period{Partitions: 32})
	slot := p.slotOf(noon.Add(-40 * 24 * time.Hour).UnixMilli())
	window := p.windowOf(slot)
	for p.slotStart(slot) < noon.Add(80*24*time.Hour).UnixMilli() {
		start, end := p.slotStart(slot), p.slotEnd(slot)
		require.Greater(t, end, start)
		require.Equal(t, end, p.slotStart(slot+1))
		for _, at := range []int64{start + 1, (start + end) / 2, end} {
			require.Equal(t, slot, p.slotOf(at))
			require.Equal(t, p.windowOf(slot), p.windowOfTime(at))
		}
		require.LessOrEqual(t, end, p.windowEnd(p.windowOf(slot)))
		require.Contains(t, []int64{window, window + 1}, p.windowOf(slot))
		window = p.windowOf(slot)
		slot++
	}
	require.EqualValues(t, 0, p.slotStart(0))
	require.EqualValues(t, -1, p.slotOf(0))
	for range 1000 {
		at := rand.Int64N(2*maxTime) - maxTime
		s := p.slotOf(at)
		require.True(t, p.slotStart(s) < at && at <= p.slotEnd(s), "%d", at)
	}
}

func TestNextPeriod(t *testing.T) {
	p := newPeriods(first)
	next, err := p.next(Period{SlotMS: hourMS}, time.Time{}, noon)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 5, 3, 0, 0, 0, 0, time.UTC).UnixMilli(), next.FromMS, "the first midnight that is 25 h away")
	require.Equal(t, p.slotOf(next.FromMS)+1, next.FirstSlot)
	later, err := p.next(Period{SlotMS: hourMS}, noon.Add(9*24*time.Hour), noon)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 5, 11, 0, 0, 0, 0, time.UTC).UnixMilli(), later.FromMS)
	for name, wrong := range map[string]Period{
		"nothing changes":     {SlotMS: 2 * hourMS},
		"fewer partitions":    {Partitions: 2},
		"no multiple":         {Partitions: 6},
		"too many":            {Partitions: 8192},
		"a slot of minutes":   {SlotMS: hourMS / 2},
		"a window of a slot":  {RawWindowMS: 2 * hourMS},
		"slots in no windows": {SlotMS: 7 * hourMS},
		"a window of years":   {RawWindowMS: 106_751 * dayMS},
	} {
		_, err := p.next(wrong, time.Time{}, noon)
		require.ErrorIs(t, err, ErrBadPeriod, name)
	}
	_, err = p.next(Period{SlotMS: hourMS}, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), noon)
	require.ErrorIs(t, err, ErrBadPeriod)
	require.ErrorContains(t, err, "it can't be taken back, so it must begin before 2027-05-02T12:00:00Z")
}

// TestPeriodsOfPartitions holds the law that lets a part of the head guard a series in every period.
func TestPeriodsOfPartitions(t *testing.T) {
	p := changed(t, Period{Partitions: 8}, Period{Partitions: 24})
	count := make([]int, 24)
	for range 24_000 {
		hash := rand.Uint64()
		home := partitionOf(hash, first.Partitions)
		require.Equal(t, home, p.partitionOf(p.slotOf(noon.UnixMilli()), hash, home))
		last := p.slotOf(noon.Add(90 * 24 * time.Hour).UnixMilli())
		at := p.partitionOf(last, hash, home)
		require.Equal(t, home, at%first.Partitions)
		count[at]++
	}
	for _, n := range count {
		require.InDelta(t, 1000, n, 200)
	}
}
