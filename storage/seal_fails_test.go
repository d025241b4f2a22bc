package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestSealThatFailsAnywhere fails each write of a seal in turn, and doesn't repeat the seal in that process. Samples
// that were sealed before must not be hidden: the next process must find all of them, at every resolution, and seal the
// remaining ones.
func TestSealThatFailsAnywhere(t *testing.T) {
	for at, failed := 1, true; failed; at++ {
		require.Less(t, at, 100)
		var left countdown
		ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && left.hit() {
				return faultengine.Fail(nil)
			}
			return faultengine.Pass()
		}, func(o *Options) { o.seams.still = true })
		day := func(ago int) time.Time {
			return ts.now.Add(-time.Duration(ago) * 24 * time.Hour).Truncate(2 * time.Hour)
		}
		ts.write("default", jobLabels("web"), every(day(20), time.Minute, 30)...)
		require.NoError(t, ts.SealAll(t.Context()))
		// These samples are in another window at all resolutions except 1h.
		ts.write("default", jobLabels("web"), every(day(3), time.Minute, 30)...)
		left.Store(int64(at))
		failed = ts.SealAll(t.Context()) != nil
		left.Store(0)
		require.NoError(t, ts.Store.Close())
		ts.Store = openReady(t, ts.eng, ts.opts)
		for _, sealed := range []bool{false, true} {
			if sealed {
				require.NoError(t, ts.SealAll(t.Context()))
			}
			require.Len(t, ts.all("default")[jobLabels("web").String()], 60, "write %d failed, sealed %v", at, sealed)
			for _, res := range rollup.Resolutions {
				require.Equal(
					t, map[string]int{"web": 60}, ts.bucketsOf("default", res), "write %d failed, %s, sealed %v", at,
					res, sealed,
				)
			}
		}
	}
}

// TestWhatGoesHasItsRollups checks that samples are hidden only once they have rollups, and dropped only then,
// including samples of an import that failed before it computed rollups.
func TestWhatGoesHasItsRollups(t *testing.T) {
	for at, failed := 1, true; failed; at++ {
		require.Less(t, at, 100)
		var f *failingImport
		f, failed = openFailingImport(t, faultengine.Fail, at)
		before := f.counts(rollup.Raw)
		f.passes(f.now.Add(DefaultOptions().Retention + 9*24*time.Hour))
		require.Empty(t, f.counts(rollup.Raw))
		for _, res := range rollup.Resolutions {
			require.Equal(t, before, f.counts(res), "write %d failed, %s", at, res)
		}
	}
}
