package storage

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// opensAgain starts a store anew on an engine that stays, and gives up the one before.
func (ts *testStore) opensAgain() {
	require.NoError(ts.t, ts.Store.Close())
	ts.Store = openReady(ts.t, still{ts.eng}, ts.opts)
}

type still struct{ engine.Engine }

func (still) Close() error { return nil }

// TestDeleteOfUnknownOutcomeHidesNothingLater has deletes of which nobody learns whether they were written, and that
// can't be taken back either. They may take effect at any time, on samples that there were; never on those acknowledged
// later.
func TestDeleteOfUnknownOutcomeHidesNothingLater(t *testing.T) {
	for name, fate := range map[string]func(error) faultengine.Action{
		"written": faultengine.Lose, "written later": faultengine.Withhold, "not written": faultengine.Fail,
	} {
		t.Run(name, func(t *testing.T) {
			bad := false
			ts, eng := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
				if !bad || op.Kind != faultengine.Write || op.Table != engine.Deletes {
					return faultengine.Pass()
				}
				if op.Batch.Mutations[0].Op == engine.Delete {
					return faultengine.Fail(nil)
				}
				if format.IsAnnounced(op.Batch.Mutations[0].Value) {
					return faultengine.Pass()
				}
				return fate(nil)
			}, func(o *Options) { o.seams.still = true })
			at := ts.now.UnixMilli() - format.HourMS
			ts.write("ann", upLabels, sample{at, 1})
			bad = true
			require.ErrorIs(t, ts.Delete(t.Context(), "ann", at-10, at+10, equal("host", "a")), engine.ErrUnavailable)
			bad = false
			imported := labels.FromStrings(labels.MetricName, "imported", "host", "a")
			var later []sample
			requireImported := func(when string) {
				t.Helper()
				require.Equal(t, []sample{{at, 4}}, ts.all("ann")[imported.String()], when)
			}
			writeLater := func(x sample) {
				ts.write("ann", upLabels, x)
				later = append(later, x)
			}
			requireLater := func(when string) {
				t.Helper()
				got := ts.all("ann")[upLabels.String()]
				for _, x := range later {
					require.Contains(t, got, x, when)
				}
			}
			writeLater(sample{at + 1, 2})
			require.NoError(t, ts.SealAll(t.Context()))
			requireLater("sealed")
			writeLater(sample{at + 2, 3})
			_, err := ts.Import(t.Context(), "ann", []ImportedSeries{{Labels: imported, Samples: &chunk.Samples{T: []int64{at}, V: []float64{4}}}})
			require.NoError(t, err)
			require.NoError(t, eng.ApplyWithheld(t.Context()))
			requireLater("the delete may have come")
			requireImported("the delete may have come")
			ts.opensAgain()
			requireLater("after a restart")
			require.NoError(t, ts.SealAll(t.Context()))
			requireLater("sealed after a restart")
			ts.now = ts.now.Add(2 * deleteRests)
			require.NoError(t, ts.CleanTombstones(t.Context(), "ann"))
			requireLater("clean")
			ts.opensAgain()
			requireLater("clean, after a restart")
			requireImported("clean, after a restart")
			for _, err := range ts.eng.Scan(t.Context(), engine.Range{Table: engine.Deletes, Partition: deletePartition("ann")}) {
				require.Fail(t, "a delete is left", "%v", err)
			}
		})
	}
}

// TestDeleteIsCarriedOutThoughWhoAskedLeaves cancels the request when everything is sealed.
func TestDeleteIsCarriedOutThoughWhoAskedLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Tenants && op.Partition[0].Int == deletersList {
			cancel()
		}
		return faultengine.Pass()
	}, func(o *Options) { o.seams.still = true })
	at := ts.now.UnixMilli() - format.HourMS
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.Delete(ctx, "ann", at, at, equal("host", "a")))
	require.Empty(t, ts.all("ann"))
	require.ErrorIs(t, ts.Delete(ctx, "ann", at, at, equal("host", "a")), context.Canceled)
	ts.opensAgain()
	require.Empty(t, ts.all("ann"))
}

// TestDeleteIsUndoneLate has a delete of which neither the last write nor the removal returns an answer, and the
// removal is applied while rollups are recomputed. Samples that are written after the delete has failed stay in
// rollups.
func TestDeleteIsUndoneLate(t *testing.T) {
	var bad, late bool
	var eng *faultengine.Engine
	ts, eng := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		switch {
		case op.Kind != faultengine.Write:
		case bad && op.Table == engine.Deletes && op.Batch.Mutations[0].Op == engine.Delete:
			return faultengine.Withhold(nil)
		case bad && op.Table == engine.Deletes && !format.IsAnnounced(op.Batch.Mutations[0].Value):
			return faultengine.Lose(nil)
		case late && op.Table == engine.R5m:
			late = false
			undone := make(chan struct{})
			go func() {
				defer close(undone)
				assert.NoError(t, eng.ApplyWithheld(t.Context()))
			}()
			return faultengine.Pass().After(undone)
		}
		return faultengine.Pass()
	}, func(o *Options) { o.seams.still = true })
	start := ts.now.Add(-12 * time.Hour).Truncate(day).Add(time.Hour)
	write := func() {
		ts.write("default", jobLabels("api"), every(start, time.Minute, 60)...)
		require.NoError(t, ts.SealAll(t.Context()))
	}
	write()
	bad = true
	require.ErrorIs(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "api")), engine.ErrUnavailable)
	bad, late = false, true
	require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
	require.NoError(t, eng.ApplyWithheld(t.Context()))
	write()
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"api": 60}, ts.bucketsOf("default", res), res)
	}
	require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	ts.opensAgain()
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"api": 60}, ts.bucketsOf("default", res), res)
	}
}

// TestFailedDeleteIsRemoved has a delete whose row is in force although it failed, because neither its last write
// returned an answer nor its removal succeeded. It is removed before deletes are cleaned and before raw rows are
// hidden. So it doesn't apply after a restart, when rollups of later samples can't be recomputed.
func TestFailedDeleteIsRemoved(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]func(*testStore){
		"cleaned": func(ts *testStore) { require.NoError(t, ts.CleanTombstones(t.Context(), "default")) },
		"hidden":  func(ts *testStore) { ts.passes(ts.now.Add(4 * day)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := true
			ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
				switch {
				case !bad || op.Kind != faultengine.Write || op.Table != engine.Deletes:
				case op.Batch.Mutations[0].Op == engine.Delete:
					return faultengine.Fail(nil)
				case !format.IsAnnounced(op.Batch.Mutations[0].Value):
					return faultengine.Lose(nil)
				}
				return faultengine.Pass()
			}, func(o *Options) { o.Retention, o.seams.still = 2*day, true })
			stored := func() (n int) {
				for _, err := range ts.eng.Scan(t.Context(), engine.Range{Table: engine.Deletes, Partition: deletePartition("default")}) {
					require.NoError(t, err)
					n++
				}
				return n
			}
			require.ErrorIs(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "api")), engine.ErrUnavailable)
			bad = false
			start := ts.now.Add(-12 * time.Hour).Truncate(day).Add(time.Hour)
			ts.write("default", jobLabels("api"), every(start, time.Minute, 60)...)
			require.NoError(t, ts.SealAll(t.Context()))
			require.Equal(t, 1, stored())
			until(ts)
			require.Zero(t, stored())
			ts.opensAgain()
			for _, res := range rollup.Resolutions {
				require.Equal(t, map[string]int{"api": 60}, ts.bucketsOf("default", res), res)
			}
		})
	}
}
