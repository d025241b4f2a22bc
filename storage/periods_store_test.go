package storage

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestPeriodsOfAStore writes, seals, restarts, queries and expires while the period changes twice. All samples must be
// found, and all windows must be dropped after their retention.
func TestPeriodsOfAStore(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Partitions, o.AnySettings = 20*24*time.Hour, 4, true })
	series := make([]labels.Labels, soak.Fewer(30))
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
		found, err := ts.Select(
			t.Context(),
			query.Query{Tenant: "default", MinT: begin.Add(-30 * time.Hour).UnixMilli(), MaxT: ts.now.UnixMilli()},
		)
		require.NoError(t, err)
		require.Len(t, found, len(series), when)
		for _, s := range found {
			var samples chunk.Samples
			require.NoError(t, s.Samples(&samples))
			require.Len(t, samples.T, len(written), when)
		}
	}
	_, err := ts.SetPeriod(t.Context(), format.Period{SlotMS: format.HourMS, Partitions: 8}, time.Time{})
	require.NoError(t, err)
	_, err = ts.SetPeriod(
		t.Context(), format.Period{SlotMS: 6 * format.HourMS, RawWindowMS: 2 * format.DayMS, Partitions: 16},
		begin.Add(5*24*time.Hour),
	)
	require.NoError(t, err)
	for day := range 10 {
		for range 8 {
			ts.now = ts.now.Add(3 * time.Hour)
			write(ts.now)
			write(ts.now.Add(-25 * time.Hour)) // late; some are in the previous period
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
			require.NoError(t, ts.UnlistSlots(t.Context(), p))
		}
	}
	require.NoError(t, ts.SealAll(t.Context()))
	check("all sealed")
	require.Empty(t, ts.problems())
	windows, err := ts.windowsOf(t.Context(), "default", format.FirstWindow(rollup.Raw), format.LastWindow(rollup.Raw))
	require.NoError(t, err)
	require.Less(t, len(windows), 12, "windows have grown")
	require.Equal(t, len(windows), ts.passes(begin.Add(45*24*time.Hour)))
}

// TestSealsOfOneSeriesInTwoPeriods seals slots of two periods concurrently, and checks that all samples are found. A
// series has a different partition in each period, so no lock serializes its seals. Run it with -race.
func TestSealsOfOneSeriesInTwoPeriods(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Partitions, o.AnySettings = 1, true })
	next, err := ts.SetPeriod(t.Context(), format.Period{Partitions: 2}, time.Time{})
	require.NoError(t, err)
	series := make([]labels.Labels, 40)
	for i := range series {
		series[i] = labels.FromStrings(labels.MetricName, "up", "instance", fmt.Sprint(i))
	}
	ts.now = time.UnixMilli(next.FromMS).Add(time.Hour)
	for _, ls := range series {
		ts.write("default", ls, sample{next.FromMS - 1, 1}, sample{next.FromMS + 1, 2})
	}
	var seals sync.WaitGroup
	for partition := range ts.Partitions() {
		for _, slot := range []int64{next.FirstSlot - 1, next.FirstSlot} {
			if partition >= ts.period.OfSlot(slot).Partitions {
				continue
			}
			seals.Go(func() {
				_, err := ts.Seal(t.Context(), Work{Partition: partition, Slot: slot})
				assert.NoError(t, err)
			})
		}
	}
	seals.Wait()
	for _, samples := range ts.all("default") {
		require.Equal(t, []sample{{next.FromMS - 1, 1}, {next.FromMS + 1, 2}}, samples)
	}
	require.Len(t, ts.all("default"), len(series))
}
