package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
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

// TestPeriodsOfAStore writes, seals, restarts, queries and expires across two changes.
func TestPeriodsOfAStore(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Partitions, o.AnySettings = 20*24*time.Hour, 4, true })
	series := make([]labels.Labels, 30)
	for i := range series {
		series[i] = labels.FromStrings(labels.MetricName, "up", "instance", fmt.Sprint(i))
	}
	begin := ts.now
	written := map[int64]bool{}
	write := func(at time.Time) {
		written[at.UnixMilli()] = true
		for _, ls := range series {
			ts.write("default", ls, sample{at.UnixMilli(), float64(at.Unix() % 1000)})
		}
	}
	check := func(when string) {
		found, err := ts.Select(t.Context(), Query{Tenant: "default", MinT: begin.Add(-30 * time.Hour).UnixMilli(), MaxT: ts.now.UnixMilli()})
		require.NoError(t, err)
		require.Len(t, found, len(series), when)
		for _, s := range found {
			var samples chunk.Samples
			require.NoError(t, s.Samples(&samples))
			require.Len(t, samples.T, len(written), when)
		}
	}
	_, err := ts.SetPeriod(t.Context(), Period{SlotMS: hourMS, Partitions: 8}, time.Time{})
	require.NoError(t, err)
	_, err = ts.SetPeriod(t.Context(), Period{SlotMS: 6 * hourMS, RawWindowMS: 2 * dayMS, Partitions: 16}, begin.Add(5*24*time.Hour))
	require.NoError(t, err)
	for day := range 10 {
		for range 8 {
			ts.now = ts.now.Add(3 * time.Hour)
			write(ts.now)
			write(ts.now.Add(-25 * time.Hour)) // late, some across the change
		}
		check(fmt.Sprint("day ", day))
		switch day % 3 {
		case 0:
			require.NoError(t, ts.SealAll(t.Context()))
		case 1:
			ts.reopen()
		}
		check(fmt.Sprint("day ", day, " once more"))
		for p := range ts.Partitions() {
			require.NoError(t, ts.Advance(t.Context(), p))
		}
	}
	require.NoError(t, ts.SealAll(t.Context()))
	check("all sealed")
	require.Empty(t, ts.problems())
	windows, err := ts.windowsOf(t.Context(), "default", firstWindowOf(rollup.Raw), lastWindowOf(rollup.Raw))
	require.NoError(t, err)
	require.Less(t, len(windows), 12, "windows have grown")
	require.Equal(t, len(windows), ts.passes(begin.Add(45*24*time.Hour)))
}
