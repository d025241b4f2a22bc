package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestBucketsBesideDeletesAreWhatSamplesMake reads buckets while deletes are announced, in force, processed in some of
// the windows, or cleaned, with late and unsealed samples and interrupted seals. It compares them with buckets computed
// from the samples of the same query.
func TestBucketsBesideDeletesAreWhatSamplesMake(t *testing.T) {
	t.Parallel()
	for _, shards := range []int64{1, 4} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(soak.Seed(t), 1))
			ts := openTestStore(t, func(o *Options) { o.seams.still = true })
			m := newReadModel(t, ts, shards, r)
			writeHistograms(t, ts, m, r)
			require.NoError(t, ts.SealAll(t.Context()))
			rollUpAll(t, ts, r, false)
			for round := range 4 {
				for range 1 + r.IntN(3) {
					deleteAtRandom(t, ts, m, r)
				}
				ask := func(when string) {
					for range soak.Fewer(8) {
						compareBuckets(t, ts, r, fmt.Sprintf("round %d, %s", round, when))
					}
				}
				ask("deleted")
				newest := ts.period.SlotOf(ts.now.UnixMilli())
				for range 20 {
					slot := newest - r.Int64N(40)
					start := ts.period.SlotStart(slot)
					ts.write(
						"default", m.labels[r.IntN(len(m.labels))],
						sample{start + 1 + r.Int64N(ts.period.SlotEnd(slot)-start), r.Float64()},
					)
				}
				ask("late samples")
				require.NoError(t, ts.SealAll(t.Context()))
				ask("late samples, sealed")
				rollUpAll(t, ts, r, true)
				ask("worked off in part")
				// The records of rollups are written as by a seal that was interrupted before it wrote the commit
				// record of raw rows.
				w := newRowFixture(t, ts.Store, "default")
				slot := newest - 3 - r.Int64N(30)
				into := ts.destinationsOf(slot)
				for _, at := range into[1:] {
					require.NoError(t, ts.listWindow(t.Context(), "default", at.window))
					w.batches = append(w.batches, engine.Batch{
						Table: engine.Sealed, Partition: format.SealedPartition(at.window, "default"),
						Mutations: []engine.Mutation{
							commitRecordRow(at, format.CommitKey{Slot: slot, ID: newID()}, format.CommitSeal),
						},
					})
				}
				w.flush()
				ask("a seal cut short")
				if r.IntN(2) == 0 {
					ts.reopen()
					ask("after a restart")
				}
				if r.IntN(2) == 0 {
					require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
					ask("cleaned")
				}
			}
		})
	}
}

// rollUpAll computes the missing rollups of all windows, or of some windows if some is true.
func rollUpAll(t *testing.T, ts *testStore, r *rand.Rand, some bool) {
	list, err := listed(ts.Unrolled(t.Context(), -format.MaxTime/2, format.MaxTime/2, func() {}))
	require.NoError(t, err)
	for _, u := range list {
		if some && r.IntN(2) == 0 {
			continue
		}
		_, err := ts.RollUp(t.Context(), u, func() {})
		require.NoError(t, err)
	}
}

// writeHistograms adds histogram chunks to some series in some slots.
func writeHistograms(t *testing.T, ts *testStore, m *readModel, r *rand.Rand) {
	w := newRowFixture(t, ts.Store, "default")
	newest := ts.period.SlotOf(ts.now.UnixMilli())
	for slot := newest - 30; slot <= newest-5; slot += 1 + r.Int64N(3) {
		for i := 0; i < len(m.labels); i += 7 {
			var samples chunk.Samples
			h := protocolHistograms[r.IntN(3)]
			for at := ts.period.SlotStart(slot) +
				1; at <= ts.period.SlotEnd(slot); at += 300_000 + r.Int64N(2_000_000) {
				c, err := chunk.CanonicalHistogram(chunk.Histogram{T: at, Int: h.Int, Float: h.Float})
				require.NoError(t, err)
				samples.AppendHistogram(c)
			}
			w.chunk(slot, m.labels[i], &samples)
		}
		w.mark(slot)
	}
	w.flush()
}

// deleteAtRandom deletes samples of random series in a random range, or only announces the delete.
func deleteAtRandom(t *testing.T, ts *testStore, m *readModel, r *rand.Rand) {
	p := ts.period
	now := ts.now.UnixMilli()
	start := now - r.Int64N(4*format.DayMS)
	end := start + r.Int64N(format.DayMS)
	switch r.IntN(4) {
	case 0: // a part of a bucket, or slightly more than a bucket
		end = start + r.Int64N(600_000)
	case 1: // whole slots
		start, end = p.SlotStart(p.SlotOf(start))+1, p.SlotEnd(p.SlotOf(end))
	case 2: // whole hours
		start = format.FloorDiv(start, format.HourMS)*format.HourMS + 1
		end = format.FloorDiv(end, format.HourMS)*format.HourMS + format.HourMS
	}
	of := [][]*labels.Matcher{
		{equal(labels.MetricName, fmt.Sprint("metric_", r.IntN(4)))},
		{equal("job", "api"), labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "metric_[12]")},
		{equal("job", ""), labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, "metric_0")},
		{labels.MustNewMatcher(labels.MatchRegexp, "instance", "host-.*[37]"), labels.MustNewMatcher(labels.MatchNotEqual, "job", "web")},
		{equal("instance", fmt.Sprint("host-", r.IntN(len(m.labels))))},
	}[r.IntN(5)]
	if r.IntN(5) == 0 {
		d, err := ts.newDeletion(t.Context(), "default", start, end, of)
		require.NoError(t, err)
		d.Announced = true
		require.NoError(t, ts.putDelete(t.Context(), "default", d))
		return
	}
	require.NoError(t, ts.Delete(t.Context(), "default", start, end, of...))
}

// TestDeletesOfOthersDontConcernAQuery checks that a query reads only rollups if the uncleaned deletes are of series
// that it can't match.
func TestDeletesOfOthersDontConcernAQuery(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.seams.still = true })
	at := ts.now.Add(-8 * time.Hour).Truncate(2 * time.Hour)
	for _, job := range []string{"api", "batch"} {
		ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 120)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	matcher := labels.MustNewMatcher
	for _, of := range [][]*labels.Matcher{
		{equal(labels.MetricName, "down")},
		{matcher(labels.MatchRegexp, labels.MetricName, "do.*"), equal("job", "api")},
		{equal("job", "batch"), equal(labels.MetricName, "up")},
		{equal("instance", "a"), matcher(labels.MatchNotEqual, "job", "api")},
	} {
		require.NoError(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, of...))
	}
	read := func(ms ...*labels.Matcher) (raw, rolled int) {
		found, err := ts.Select(t.Context(), query.Query{
			Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: rollup.OneHour,
			Columns: rollup.AllColumns, Matchers: ms,
		})
		require.NoError(t, err)
		require.NotEmpty(t, found)
		windows := map[int64]bool{}
		for _, s := range found {
			for _, window := range s.Windows() {
				windows[window] = true
			}
		}
		for window := range windows {
			if format.ResolutionOf(window) == rollup.Raw {
				raw++
			} else {
				rolled++
			}
		}
		return raw, rolled
	}
	raw, rolled := read(equal(labels.MetricName, "up"), equal("job", "api"))
	require.Equal(t, []int{0, 1}, []int{raw, rolled})
	raw, rolled = read(equal(labels.MetricName, "up"))
	require.Equal(t, []int{1, 1}, []int{raw, rolled})
	require.Equal(t, map[string]int{"api": 120}, ts.bucketsOf("default", rollup.OneHour))
}
