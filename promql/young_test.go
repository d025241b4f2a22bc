package promql

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestSeriesYoungerThanABucket checks that a series that is younger than a bucket has values in windows that are read
// from buckets. At every resolution, the newest samples of a window are read from the head. If the window were moved to
// the last full hour, it would end before the first sample.
func TestSeriesYoungerThanABucket(t *testing.T) {
	for _, c := range []struct {
		about string
		old   time.Duration // age of another series
		seal  bool
	}{
		{"nothing is older", 0, false},
		{"past raw retention", 25 * 24 * time.Hour, false},
		{"within raw retention", 5 * 24 * time.Hour, false},
		{"sealed", 25 * 24 * time.Hour, true},
	} {
		t.Run(c.about, func(t *testing.T) {
			now := time.UnixMilli(someDay + 30*day + 10*hour + 47*minute)
			clock := now.Add(-c.old)
			store := storagetest.Open(
				t, memory.New(), storagetest.Clock(func() time.Time { return clock }), func(o *storage.Options) {
					o.Partitions, o.Retention = 2, 10*24*time.Hour
				},
			)
			for n := 0; clock.Before(now); n += 120 {
				from := clock.UnixMilli()
				clock = clock.Add(2 * time.Hour)
				storagetest.Write(t, store, "default", labels.FromStrings(labels.MetricName, "c", "age", "old"),
					storagetest.Samples(from, minute, 120, func(i int) float64 { return float64(n + i) })...)
			}
			clock = now
			require.NoError(t, store.SealAll(t.Context()))
			storagetest.Write(t, store, "default", labels.FromStrings(labels.MetricName, "c", "age", "young"),
				storagetest.Samples(now.UnixMilli()-44*minute, 15*second, 4*44+1, func(i int) float64 {
					return float64(i)
				})...)
			if c.seal {
				require.NoError(t, store.SealAll(t.Context()))
			}
			r := newRivals(t, NewQueryable(store), nil)
			for _, text := range []string{
				"sum(increase(%s[30d]))", "sum(count_over_time(%s[30d]))", "sum(rate(%s[30d]))",
				"sum(sum_over_time(%s[30d]))",
				"max(max_over_time(%s[30d]))", "avg(avg_over_time(%s[30d]))", "sum(increase(%s[8d]))",
			} {
				for _, selector := range []string{`c{age="young"}`, `c`} {
					a := asked{text: fmt.Sprintf(text, selector), start: now.UnixMilli() - 10*minute,
						end: now.UnixMilli(), step: 15 * time.Second}
					r.ctx = newRollupContext(t, "exact")
					want, _ := r.answerOf(a)
					require.Len(t, want.rows, 1, a.text)
					require.Len(t, want.rows[0].Floats, 41, a.text)
					r.ctx = newRollupContext(t, "auto")
					got, stats := r.answerOf(a)
					want.notes, got.notes = nil, nil
					require.Empty(t, want.differs(got, 0.011), "%s: %+v", a.text, stats)
				}
			}
		})
	}
}
