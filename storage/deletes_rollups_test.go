package storage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// importJob imports samples of a job, and returns what became of them.
func (ts *testStore) importJob(job string, list ...sample) ImportStats {
	ts.t.Helper()
	var samples chunk.Samples
	for _, s := range list {
		samples.AppendFloat(s.t, 0, s.v)
	}
	stats, err := ts.Import(ts.t.Context(), "default", []ImportedSeries{{jobLabels(job), &samples}})
	require.NoError(ts.t, err)
	return stats
}

// TestRollupsOnlyAfterADelete has history that gets only rollups come into the range of a delete that isn't cleaned:
// imported, or sealed when its raw window was gone. It is new, and stays when the delete is cleaned, while what the
// delete is about doesn't come back.
func TestRollupsOnlyAfterADelete(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("written=", written), func(t *testing.T) {
			t.Parallel()
			ts := openTestStore(t, func(o *Options) { o.Retention, o.seams.still = 2*day, true })
			at := ts.now.Add(-40 * day).Truncate(day).Add(time.Hour)
			bring := func(job string, start time.Time) {
				list := every(start, time.Minute, 60)
				if written {
					ts.write("default", jobLabels(job), list...)
				} else {
					require.Equal(t, 60, ts.importJob(job, list...).RollupsOnly)
				}
			}
			if written {
				at = ts.now.Add(-12 * time.Hour).Truncate(day).Add(time.Hour)
			}
			bring("api", at)                    // It stays deleted,
			bring("api", at.Add(4*time.Hour))   // in another slot of the same day, too.
			bring("batch", at.Add(8*time.Hour)) // It isn't deleted.
			require.NoError(t, ts.SealAll(t.Context()))
			check := func(when string, jobs map[string]int) {
				t.Helper()
				for _, res := range rollup.Resolutions {
					require.Equal(t, jobs, ts.bucketsOf("default", res), "%s, %s", res, when)
				}
			}
			check("before", map[string]int{"api": 120, "batch": 60})
			require.NoError(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "api")))
			check("deleted", map[string]int{"batch": 60})
			bring("api", at.Add(2*time.Hour))
			if written {
				ts.passes(at.Add(11 * day))
				require.NoError(t, ts.SealAll(t.Context()))
			}
			left := map[string]int{"api": 60, "batch": 60}
			check("brought", left)
			ts.reopen()
			check("after a restart", left)
			require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
			check("worked off", left)
			require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
			check("cleaned", left)
			ts.reopen()
			check("started anew", left)
		})
	}
}

// TestDeleteOfRollupsBesideSamplesOfOthers deletes samples imported as rollups only into a slot without samples, of a
// window in which other series have samples.
func TestDeleteOfRollupsBesideSamplesOfOthers(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) {
		o.Retention, o.AddClasses, o.seams.still = 90*day, true, true
		o.Classes = []retention.Class{classOfJob("ci", "ci", retention.Durations{Raw: 2 * day, FiveMinutes: 60 * day, OneHour: 0})}
	})
	at := ts.now.Add(-30 * day).Truncate(day)
	require.Equal(t, 30, ts.importJob("ci", every(at.Add(10*time.Hour), time.Minute, 30)...).RollupsOnly)
	require.Zero(t, ts.importJob("api", every(at.Add(time.Hour), time.Minute, 30)...).RollupsOnly)
	check := func(when string, jobs map[string]int) {
		t.Helper()
		for _, res := range rollup.Resolutions {
			require.Equal(t, jobs, ts.bucketsOf("default", res), "%s, %s", res, when)
		}
	}
	check("before", map[string]int{"api": 30, "ci": 30})
	require.NoError(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "ci")))
	left := map[string]int{"api": 30}
	check("deleted", left)
	require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	check("cleaned", left)
	ts.reopen()
	check("started anew", left)
}

// TestDeleteOfHoursBesideBucketsOfOthers deletes a class of which only buckets of an hour are left, where another's
// buckets of 5 minutes stand and nobody's samples do.
func TestDeleteOfHoursBesideBucketsOfOthers(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) {
		o.Retention, o.Retention5m, o.AddClasses, o.seams.still = 2*day, 90*day, true, true
		o.Classes = []retention.Class{classOfJob("ci", "ci", retention.Durations{Raw: 2 * day, FiveMinutes: 4 * day, OneHour: 0})}
	})
	at := ts.now.Add(-8 * time.Hour).Truncate(2 * time.Hour)
	for _, job := range []string{"ci", "api"} {
		ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 120)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.passes(at.Add(25 * day))
	require.NotContains(t, ts.bucketsOf("default", rollup.FiveMinutes), "ci")
	for _, clean := range []bool{false, true} {
		if clean {
			require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
		} else {
			require.NoError(t, ts.Delete(t.Context(), "default", at.Add(time.Hour).UnixMilli()+1, at.Add(2*time.Hour).UnixMilli(), equal("job", "ci")))
		}
		require.Equal(t, map[string]int{"api": 120, "ci": 60}, ts.bucketsOf("default", rollup.OneHour), "cleaned: %v", clean)
	}
	ts.reopen()
	require.Equal(t, map[string]int{"api": 120, "ci": 60}, ts.bucketsOf("default", rollup.OneHour))
}

// TestBucketsBesideADeleteOfOthers has samples of a series vanish by themselves in a slot with a delete that isn't
// cleaned: it is about another series, and marks don't tell that rows are missing. Buckets that no delete is about are
// read from rollups.
func TestBucketsBesideADeleteOfOthers(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.seams.still = true; rowsOnly(o) })
	at := ts.now.Add(-8 * time.Hour).Truncate(2 * time.Hour)
	for _, job := range []string{"api", "batch", "ci"} {
		ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 120)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	slot := ts.period.SlotOf(at.Add(time.Minute).UnixMilli())
	cut := at.Add(32 * time.Minute).UnixMilli() // In a bucket.
	require.NoError(t, ts.Delete(t.Context(), "default", cut, format.MaxTime, equal("job", "api")))
	ts.vanish(slot, "batch")
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"api": 31, "batch": 120, "ci": 120}, ts.bucketsOf("default", res), res)
	}
	// Those of the series that is deleted in part are left as they are, where the delete cuts them: nothing
	// distinguishes them.
	ts.vanish(slot, "api")
	require.Equal(t, map[string]int{"api": 35, "batch": 120, "ci": 120}, ts.bucketsOf("default", rollup.FiveMinutes))
}

// TestBucketsBesideADeleteAndASealCutShort has rollups with a mark that raw rows don't have: of a seal that is under
// way, or whose mark of raw rows has vanished. Rollups know all that was sealed, so buckets that no delete is about are
// still read from them.
func TestBucketsBesideADeleteAndASealCutShort(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.seams.still = true; rowsOnly(o) })
	at := ts.now.Add(-8 * time.Hour).Truncate(2 * time.Hour)
	for _, job := range []string{"api", "batch"} {
		ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 120)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	slot := ts.period.SlotOf(at.Add(time.Minute).UnixMilli())
	into := ts.destinationsOf(slot)
	id := newID()
	for _, res := range rollup.Resolutions {
		require.NoError(t, ts.eng.Write(t.Context(), []engine.Batch{{
			Table: engine.Sealed, Partition: format.SealedPartition(into[res].window, "default"), Mutations: []engine.Mutation{commitRecordRow(into[res], format.CommitKey{Slot: slot, ID: id}, format.CommitSeal)},
		}}))
	}
	require.NoError(t, ts.Delete(t.Context(), "default", at.Add(time.Hour).UnixMilli()+1, format.MaxTime, equal("job", "api")))
	ts.vanish(slot, "batch")
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"api": 60, "batch": 120}, ts.bucketsOf("default", res), res)
	}
}

// vanish removes a job's raw chunks of a slot from the engine, as their time to live would.
func (ts *testStore) vanish(slot int64, job string) {
	ts.t.Helper()
	batch := engine.Batch{Table: engine.Raw, Partition: format.SeriesPartition(ts.period.RawWindowOfSlot(slot), "default", "up", 0)}
	of := engine.Key{engine.Int(format.KindChunk), engine.Int(ts.period.SlotStart(slot)), engine.Text(format.SeriesIDOf(jobLabels(job)).String())}
	for row, err := range ts.eng.Scan(ts.t.Context(), engine.Range{Table: batch.Table, Partition: batch.Partition, From: of, To: of}) {
		require.NoError(ts.t, err)
		batch.Mutations = append(batch.Mutations, engine.Mutation{Op: engine.Delete, Clustering: row.Clustering.Clone(), Timestamp: format.MaxTime})
	}
	require.NotEmpty(ts.t, batch.Mutations)
	require.NoError(ts.t, ts.eng.Write(ts.t.Context(), []engine.Batch{batch}))
}

// TestLateSamplesBesideADamagedRollup brings samples of history that is rollups only into a slot whose rollup of the
// series can't be read: it is named, and what comes is there. Before, the slot's samples could never be sealed.
func TestLateSamplesBesideADamagedRollup(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.seams.still = 2*day, true; rowsOnly(o) })
	at := ts.now.Add(-40 * day).Truncate(day).Add(time.Hour)
	require.Equal(t, 30, ts.importJob("api", every(at, time.Minute, 30)...).RollupsOnly)
	require.Equal(t, 30, ts.importJob("batch", every(at, time.Minute, 30)...).RollupsOnly)
	ts.corruptRollup(ts.period.SlotOf(at.Add(time.Minute).UnixMilli()), "api")
	require.Equal(t, 10, ts.importJob("api", every(at.Add(40*time.Minute), time.Minute, 10)...).RollupsOnly)
	require.Equal(t, map[string]int{"api": 10, "batch": 30}, ts.bucketsOf("default", rollup.FiveMinutes))
	require.Positive(t, testutil.ToFloat64(ts.metrics.corrupt.WithLabelValues(engine.R5m.Name)))
}

// corruptRollup damages a job's 5m chunk of a slot.
func (ts *testStore) corruptRollup(slot int64, job string) {
	ts.t.Helper()
	batch := engine.Batch{Table: engine.R5m, Partition: format.SeriesPartition(ts.period.WindowOfSlot(rollup.FiveMinutes, slot), "default", "up", 0)}
	of := format.RollupKey(format.SeriesIDOf(jobLabels(job)).String(), ts.period.SlotStart(slot))
	for row, err := range ts.eng.Scan(ts.t.Context(), engine.Range{Table: batch.Table, Partition: batch.Partition, From: of, To: of}) {
		require.NoError(ts.t, err)
		info, err := rollup.Header(row.Value)
		require.NoError(ts.t, err)
		value := slices.Clone(row.Value)
		i := slices.IndexFunc(value[20:], func(b byte) bool { return b < 0xff }) + 20
		value[i] = 0xff // Of two values of one time the greater stays.
		require.Error(ts.t, rollup.Decode(value, rollup.AllColumns, &rollup.Buckets{}))
		batch.Mutations = append(batch.Mutations, engine.Mutation{Clustering: row.Clustering.Clone(), Timestamp: rollupTimestamp(ts.period.SlotEnd(slot), info.Version), Value: value})
	}
	require.NotEmpty(ts.t, batch.Mutations)
	require.NoError(ts.t, ts.eng.Write(ts.t.Context(), []engine.Batch{batch}))
}

// TestDeleteInADayOfVanishedBuckets raises a retention of buckets of 5 minutes within a day: all of the day's expire as
// fixed with the first. It deletes an hour of a later slot. The hours of the first slot stay.
func TestDeleteInADayOfVanishedBuckets(t *testing.T) {
	t.Parallel()
	ts := openExpiring(t, func(o *Options) { o.Retention, o.Retention5m, o.seams.still = day, 2*day, true })
	at := ts.now.Truncate(day).Add(2 * time.Hour)
	ts.write("default", jobLabels("api"), every(at.Add(time.Minute), time.Minute, 120)...)
	require.NoError(t, ts.SealAll(t.Context()))
	ts.expire(0)
	ts.keeping(day, 90*day, 0)
	ts.expire(0)
	late := at.Add(4 * time.Hour)
	ts.write("default", jobLabels("api"), every(late.Add(time.Minute), time.Minute, 120)...)
	require.NoError(t, ts.SealAll(t.Context()))
	ts.expire(25 * day)
	require.Equal(t, map[string]int{"api": 240}, ts.bucketsOf("default", rollup.OneHour))
	require.Zero(t, ts.chunksAt(rollup.FiveMinutes, at.UnixMilli(), retention.DefaultClass, "default"))
	require.NoError(t, ts.Delete(t.Context(), "default", late.UnixMilli()+1, late.Add(time.Hour).UnixMilli(), equal("job", "api")))
	for _, when := range []string{"asked for", "worked off", "cleaned", "started anew"} {
		switch when {
		case "worked off":
			require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
		case "cleaned":
			require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
		case "started anew":
			ts.reopen()
		}
		require.Equal(t, map[string]int{"api": 180}, ts.bucketsOf("default", rollup.OneHour), when)
	}
}
