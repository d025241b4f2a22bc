package storage

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// failingImport is a store in which an import fails at its nth write to the engine. The write may be applied, applied
// later, or not applied.
type failingImport struct {
	*testStore
	faulty *faultengine.Engine
	fails  func(error) faultengine.Action
	left   countdown
}

// countdown selects the write that fails. It also counts writes that deletes make in the background.
type countdown struct{ atomic.Int64 }

// hit counts down, and reports whether the current write is the selected one.
func (c *countdown) hit() bool { return c.Load() > 0 && c.Add(-1) == 0 }

func openFailingImport(t *testing.T, fails func(error) faultengine.Action, at int) (f *failingImport, failed bool) {
	f = &failingImport{fails: fails}
	f.testStore, f.faulty = openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && f.left.hit() {
			return f.fails(nil)
		}
		return faultengine.Pass()
	}, nil)
	f.write("t", hostLabels(0), sample{f.now.Add(-50 * time.Hour).UnixMilli(), 1}) // Other windows are listed.
	f.write("t", hostLabels(9), sample{f.now.Add(-26 * time.Hour).UnixMilli(), 1}) // One slot gets rollups.
	require.NoError(t, f.SealAll(t.Context()))
	f.left.Store(int64(at))
	_, err := f.Import(t.Context(), "t", f.list())
	f.left.Store(0)
	return f, err != nil
}

func hostLabels(i int) labels.Labels {
	return labels.FromStrings(labels.MetricName, fmt.Sprintf("m%d", i%2), "host", fmt.Sprint(i))
}

// list returns the series to import: some series of two metrics, with samples in two slots of a day.
func (f *failingImport) list() (list []ImportedSeries) {
	for i := range 4 {
		var samples chunk.Samples
		for j := range 20 {
			samples.AppendFloat(f.now.Add(-26*time.Hour+time.Duration(j)*10*time.Minute).UnixMilli(), 0, float64(j))
		}
		list = append(list, ImportedSeries{hostLabels(i), &samples})
	}
	return list
}

// counts returns the number of visible samples of each series at a resolution.
func (f *failingImport) counts(res rollup.Resolution) map[string]int {
	f.t.Helper()
	found, err := f.Select(f.t.Context(), query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "m.")},
	})
	require.NoError(f.t, err)
	n := map[string]int{}
	for _, s := range found {
		var samples chunk.Samples
		var b rollup.Buckets
		if res == rollup.Raw {
			require.NoError(f.t, s.Samples(&samples))
		} else {
			require.NoError(f.t, s.Buckets(&b, &query.BucketBuffers{}))
		}
		count := samples.Len()
		for _, c := range b.Count {
			count += int(c)
		}
		if count > 0 {
			n[s.Labels.String()] = count
		}
	}
	return n
}

// TestImportThatFailsAnywhere fails each write of an import in turn. Samples and buckets must then agree, also after a
// delete, after the rollups are computed, and after the import is repeated. A repeated import must also repair the
// effects of a write that is applied after the rollups were computed.
func TestImportThatFailsAnywhere(t *testing.T) {
	for name, fails := range map[string]func(error) faultengine.Action{
		"fails": faultengine.Fail, "applied": faultengine.Lose, "applied later": faultengine.Withhold,
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				require.Less(t, at, 100)
				f, failed := openFailingImport(t, fails, at)
				agree := func(when string) {
					t.Helper()
					raw := f.counts(rollup.Raw)
					for _, res := range rollup.Resolutions {
						require.Equal(t, raw, f.counts(res), "%s, write %d failed, %s", res, at, when)
					}
				}
				agree("at once")
				require.NoError(t, f.Delete(
					t.Context(), "t", -format.MaxTime, format.MaxTime,
					labels.MustNewMatcher(labels.MatchEqual, "host", "1"),
				))
				agree("after a delete")
				require.Zero(t, f.counts(rollup.Raw)[hostLabels(1).String()])
				windows, err := listed(f.Unrolled(t.Context(), -format.MaxTime, format.MaxTime, func() {}))
				require.NoError(t, err)
				for _, w := range windows {
					_, err := f.RollUp(t.Context(), w, func() {})
					require.NoError(t, err)
				}
				agree("after rollups were made")
				f.left.Store(0)
				require.NoError(t, f.faulty.ApplyWithheld(t.Context()))
				_, err = f.Import(t.Context(), "t", f.list())
				require.NoError(t, err)
				agree("after it was repeated")
				require.Equal(t, 20, f.counts(rollup.FiveMinutes)[hostLabels(2).String()])
				require.Empty(t, f.problems())
				if !failed {
					require.Greater(t, at, 5, "it writes more often")
					return
				}
			}
		})
	}
}

// TestDeleteOfAnImportAheadThatFailed deletes samples of an import that failed before it computed rollups. The clock is
// trusted and slow, so that the samples are ahead of it. No sample may be found when the clock is right again.
func TestDeleteOfAnImportAheadThatFailed(t *testing.T) {
	for at, failed := 1, true; failed; at++ {
		require.Less(t, at, 100)
		var left countdown
		r := &clockRig{t: t, eng: faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && left.hit() {
				return faultengine.Fail(nil)
			}
			return faultengine.Pass()
		})}
		m := r.start(0)
		var samples chunk.Samples
		samples.AppendFloat(r.now().UnixMilli(), 0, 1)
		left.Store(int64(at))
		_, err := m.Import(t.Context(), "t", []ImportedSeries{{labels.FromStrings(labels.MetricName, "m"), &samples}})
		left.Store(0)
		failed = err != nil
		m.set(-60 * 24 * time.Hour)
		r.pass(time.Minute)
		require.ErrorIs(t, m.clock.MayRemove(), membership.ErrClock)
		r.pass(3 * 24 * time.Hour)
		require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
		m.set(0)
		require.Zero(t, m.visible(), "write %d failed", at)
	}
}
