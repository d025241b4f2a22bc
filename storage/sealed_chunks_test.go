package storage

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestLateSamplesOfManySeries seals a slot of many series two more times, each time with a late sample of every second
// series. Their chunks are read for many series at once. Some samples are sent twice. Samples and rollups must include
// the samples of all seals.
func TestLateSamplesOfManySeries(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			t.Parallel()
			const series = 3 * maxReadSeries
			var scans atomic.Int64
			eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
				if op.Kind == faultengine.Scan && op.Table == engine.Raw {
					scans.Add(1)
				}
				return faultengine.Pass()
			})
			ts := &testStore{
				t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: eng,
			}
			ts.opts.Now = func() time.Time { return ts.now }
			ts.opts.Shared, ts.opts.seams.still, ts.opts.Partitions = shared, shared, 2
			ts.open()
			defer ts.close()
			at := ts.now.Add(-4*time.Hour - 10*time.Minute).UnixMilli()
			want, counts := map[string][]sample{}, map[string]int{}
			seal := func(each int, samples ...sample) {
				b := ts.NewBatch("ann")
				for i := 0; i < series; i += each {
					job := fmt.Sprint(i)
					ls := labels.FromStrings(labels.MetricName, "up", "job", job)
					x, err := b.Define(nil, ls)
					require.NoError(t, err)
					for _, s := range samples {
						require.NoError(t, b.Float(x, s.t, 0, s.v))
						if list := want[ls.String()]; !slices.Contains(list, s) {
							want[ls.String()] = append(list, s)
							counts[job]++
						}
					}
				}
				require.NoError(t, b.Commit(t.Context()))
				require.NoError(t, ts.SealAll(t.Context()))
			}
			seal(1, sample{at, 1})
			scans.Store(0)
			seal(2, sample{at, 1}, sample{at + 1, 2})
			seal(2, sample{at + 1, 2}, sample{at + 2, 3})
			if !invariants { // Invariant checks read each series separately.
				require.LessOrEqual(
					t, scans.Load(), int64(12), "of %d series, once before and twice after each of two seals", series/2,
				)
			}
			require.Equal(t, want, ts.all("ann"))
			require.Equal(t, counts, ts.bucketsOf("ann", rollup.FiveMinutes))
			require.Equal(t, counts, ts.bucketsOf("ann", rollup.OneHour))
		})
	}
}
