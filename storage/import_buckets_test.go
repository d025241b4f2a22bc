package storage

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// floatsOf returns the float series without stale markers, and without samples that other systems may aggregate
// differently.
func floatsOf(list []ImportedSeries) (kept []ImportedSeries) {
	for _, x := range list {
		s := &chunk.Samples{}
		for i, t := range x.Samples.T {
			if v := x.Samples.V[i]; !value.IsStaleNaN(v) && !math.IsNaN(v) && !math.IsInf(v, 0) &&
				t%rollup.FiveMinutes.Width() != 0 {
				s.AppendFloat(t, 0, v)
			}
		}
		if s.Len() > 0 {
			kept = append(kept, ImportedSeries{x.Labels, s})
		}
	}
	return kept
}

// aggregatesOf aggregates series to buckets of a resolution.
func aggregatesOf(list []ImportedSeries, res rollup.Resolution) (all []ImportedBuckets) {
	for _, x := range list {
		var b, made rollup.Buckets
		rollup.AppendEvery(&b, x.Samples, res.Width())
		for i, end := range b.End {
			made.AppendAggregate(rollup.Aggregate{
				End: end, Count: b.Count[i], Sum: b.Sum[i], Min: b.Min[i], Max: b.Max[i], First: b.First[i],
				Last: b.Last[i], FirstT: b.FirstT[i], LastT: b.LastT[i], Correction: b.Correction[i],
			}, res.Width())
		}
		all = append(all, ImportedBuckets{x.Labels, res, &made})
	}
	return all
}

func importAggregates(t testing.TB, s *Store, list []ImportedBuckets) ImportStats {
	t.Helper()
	stats, err := s.ImportBuckets(t.Context(), "t", list)
	require.NoError(t, err)
	return stats
}

// requireAggregated requires the stored buckets of a resolution to equal buckets computed from the samples of list, and
// to have the flag of imported aggregates.
func requireAggregated(t testing.TB, s *Store, list []ImportedSeries, res rollup.Resolution) {
	t.Helper()
	found, err := s.Select(t.Context(), query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
	})
	require.NoError(t, err)
	got := map[string]*rollup.Buckets{}
	for _, x := range found {
		b := &rollup.Buckets{}
		require.NoError(t, x.Buckets(b, &query.BucketBuffers{}))
		got[x.Labels.String()] = b
	}
	require.Len(t, got, len(list))
	for _, x := range list {
		var want rollup.Buckets
		rollup.AppendEvery(&want, x.Samples, res.Width())
		b := got[x.Labels.String()]
		require.NotNil(t, b, x.Labels)
		require.Equal(t, want.End, b.End)
		require.Equal(t, want.Count, b.Count)
		require.Equal(t, want.Min, b.Min)
		require.Equal(t, want.Max, b.Max)
		for i := range want.End {
			require.InEpsilon(t, 1+math.Abs(want.Sum[i]), 1+math.Abs(b.Sum[i]+b.SumLow[i]), 1e-12)
			require.Equal(t, want.First[i], b.First[i])
			require.Equal(t, want.Last[i], b.Last[i])
			require.Equal(t, rollup.Aggregated, b.Flags[i]&rollup.Aggregated)
			if b.Moment[i] >= 0 { // The moment is known because all merged buckets have a single value each.
				require.InDelta(t, want.Moment[i], b.Moment[i], 1e-9*(1+want.Moment[i]))
			}
			require.True(t, b.Sketches == nil || b.Sketches[i] == nil)
		}
	}
}

// TestImportOfAggregates imports buckets of both resolutions. Where the store keeps only 1h rollups, the 1h rollups
// must be computed from the buckets, and samples of the same time must be skipped. Where it keeps finer rows than the
// buckets, the buckets must be skipped as too coarse. Deleted buckets can be imported again.
func TestImportOfAggregates(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, _ bool) {
		m := r.start(0, hoursOnly)
		list := floatsOf(historyOf(r.now()))
		samples := samplesOf(list)
		for _, res := range []rollup.Resolution{rollup.OneHour, rollup.FiveMinutes} {
			stats := importAggregates(t, m.Store, aggregatesOf(list, res))
			require.Equal(t, samples, stats.RollupsOnly)
			if res == rollup.OneHour {
				require.Equal(t, samples, stats.HoursOnly)
			} else { // All hours exist.
				require.Equal(t, samples, stats.LeftOut)
			}
			requireAggregated(t, m.Store, list, rollup.OneHour)
			require.Zero(t, bucketCount(t, m.Store, rollup.FiveMinutes))
			requireNoProblems(t, m.Store)
		}
		require.Equal(t, samples, importCopies(t, m.Store, list).LeftOut, "samples of the same time")
		requireAggregated(t, m.Store, list, rollup.OneHour)

		recent := floatsOf(pastOf(rand.New(rand.NewPCG(3, 1)), r.now().Add(-25*day), 2))
		require.Equal(t, samplesOf(recent),
			importAggregates(t, m.Store, aggregatesOf(recent, rollup.OneHour)).TooCoarse, "5m rollups are kept")
		newest := floatsOf(pastOf(rand.New(rand.NewPCG(4, 1)), r.now().Add(-day), 2))
		for _, res := range rollup.Resolutions {
			require.Equal(t, samplesOf(newest), importAggregates(t, m.Store, aggregatesOf(newest, res)).TooCoarse,
				"raw samples are kept")
		}
		require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, equal("instance", "h1")))
		require.Zero(t, bucketCount(t, m.Store, rollup.OneHour, equal("instance", "h1")))
		importAggregates(t, m.Store, aggregatesOf(list, rollup.OneHour))
		requireAggregated(t, m.Store, list, rollup.OneHour)
		require.NoError(t, m.WorkOffDeletes(t.Context(), "t"))
		r.passes(3*day, m)
		require.NoError(t, m.CleanTombstones(t.Context(), "t"))
		requireAggregated(t, m.Store, list, rollup.OneHour)
		requireNoProblems(t, m.Store)
	})
}

// TestImportOfFineAggregates imports 5m buckets at times with 5m rollups. The 1h rollups must be computed from them. A
// sample at the edge of a bucket that was imported before must not hide the rest of the bucket. Samples within a stored
// bucket must be skipped.
func TestImportOfFineAggregates(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, _ bool) {
		m := r.start(0, hoursOnly)
		list := floatsOf(pastOf(rand.New(rand.NewPCG(5, 1)), r.now().Add(-25*day), 2))
		edge := ImportedSeries{list[0].Labels, &chunk.Samples{}}
		var b rollup.Buckets
		rollup.AppendEvery(&b, list[0].Samples, rollup.FiveMinutes.Width())
		edge.Samples.AppendFloat(b.End[7], 0, 3)
		require.Equal(t, 1, importCopies(t, m.Store, []ImportedSeries{edge}).RollupsOnly)
		stats := importAggregates(t, m.Store, aggregatesOf(list, rollup.FiveMinutes))
		require.Equal(t, ImportStats{Series: len(list), RollupsOnly: samplesOf(list)}, stats)
		require.Equal(t, samplesOf(list)+1, bucketCount(t, m.Store, rollup.FiveMinutes))
		require.Equal(t, samplesOf(list)+1, bucketCount(t, m.Store, rollup.OneHour))
		requireAggregated(t, m.Store, append([]ImportedSeries{joined(list[0], edge)}, list[1:]...), rollup.FiveMinutes)
		requireAggregated(t, m.Store, append([]ImportedSeries{joined(list[0], edge)}, list[1:]...), rollup.OneHour)
		require.Equal(t, samplesOf(list), importCopies(t, m.Store, list).LeftOut)
		require.Equal(t, samplesOf(list), importAggregates(t, m.Store, aggregatesOf(list, rollup.FiveMinutes)).LeftOut)
		requireNoProblems(t, m.Store)
	})
}

func joined(a, b ImportedSeries) ImportedSeries {
	all := copyOf(a.Samples)
	all.AppendAll(copyOf(b.Samples))
	all.Normalize()
	return ImportedSeries{a.Labels, all}
}

// leftClosedAggregates aggregates a series as other systems do: a sample at an edge belongs to the bucket that starts
// there.
func leftClosedAggregates(x ImportedSeries, res rollup.Resolution) []ImportedBuckets {
	moved := copyOf(x.Samples)
	for i, t := range moved.T {
		if t%res.Width() == 0 {
			moved.T[i] = t + 1
		}
	}
	return aggregatesOf([]ImportedSeries{{x.Labels, moved}}, res)
}

// TestSamplesAtEdgesOfAggregates imports aggregates and samples of the same time, in either order. Samples at the edges
// of buckets must be stored once, whether the aggregates start there or not. Some series only have samples at edges.
func TestSamplesAtEdgesOfAggregates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, res := range rollup.Resolutions {
		begin := now.Add(map[rollup.Resolution]time.Duration{
			rollup.FiveMinutes: -25 * day, rollup.OneHour: -100 * day,
		}[res])
		for _, step := range []int64{15_000, res.Width(), 2 * res.Width(), res.Width() * 2 / 3} {
			for _, early := range []time.Duration{0, time.Hour, day} {
				for _, first := range []string{"aggregates", "samples"} {
					ts := openTestStore(t, func(o *Options) { hoursOnly(o); o.seams.still = true })
					ts.now = now
					aggregated := ImportedSeries{labels.FromStrings("__name__", "g"), &chunk.Samples{}}
					samples := ImportedSeries{aggregated.Labels, &chunk.Samples{}}
					for at := begin.UnixMilli() - early.Milliseconds(); at < begin.Add(30*time.Hour).
						UnixMilli(); at += step {
						samples.Samples.AppendFloat(at, 0, float64(at%97))
						if at >= begin.UnixMilli() {
							aggregated.Samples.AppendFloat(at, 0, float64(at%97))
						}
					}
					for _, aggregates := range []bool{
						first == "aggregates", first == "samples", first == "aggregates",
					} {
						if aggregates {
							importAggregates(t, ts.Store, leftClosedAggregates(aggregated, res))
						} else {
							importCopies(t, ts.Store, []ImportedSeries{samples})
						}
					}
					for fine := res; fine <= rollup.OneHour; fine++ {
						require.Equal(t, samples.Samples.Len(), bucketCount(t, ts.Store, fine),
							"%s, step %d, from %s before, %s first", res, step, early, first)
					}
					requireNoProblems(t, ts.Store)
				}
			}
		}
	}
}

// TestAggregatesAroundStoredSamples imports samples and then 5m buckets around them, where only 1h rollups are kept. The
// 5m buckets before and after the samples must be added to the hours of the samples. The other 5m buckets must be left
// out, also if the import is repeated.
func TestAggregatesAroundStoredSamples(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to time.Duration // of the samples
		left     int
	}{
		{"until the end", 10*time.Hour + 35*time.Minute, 12 * time.Hour, 85},
		{"from the start", 10 * time.Hour, 11*time.Hour + 25*time.Minute, 85},
		{"within an hour", 10*time.Hour + 20*time.Minute, 10*time.Hour + 40*time.Minute, 20},
		{"from within a window", 10*time.Hour + 37*time.Minute, 12 * time.Hour, 85},
	} {
		t.Run(c.name, func(t *testing.T) {
			ts := openTestStore(t, func(o *Options) { hoursOnly(o); o.seams.still = true })
			begin := ts.now.Add(-100 * day).Truncate(day)
			x := ImportedSeries{labels.FromStrings("__name__", "g_total"), &chunk.Samples{}}
			samples := ImportedSeries{x.Labels, &chunk.Samples{}}
			for at := 10 * time.Hour; at < 12*time.Hour; at += time.Minute {
				ms, v := begin.Add(at).UnixMilli()+1, float64(at/time.Second)
				x.Samples.AppendFloat(ms, 0, v)
				if at >= c.from && at < c.to {
					samples.Samples.AppendFloat(ms, 0, v)
				}
			}
			importCopies(t, ts.Store, []ImportedSeries{samples})
			aggregates := func() ImportStats {
				return importAggregates(t, ts.Store, aggregatesOf([]ImportedSeries{x}, rollup.FiveMinutes))
			}
			stats := aggregates()
			require.Equal(t, c.left, stats.LeftOut)
			require.Equal(t, 120-c.left, stats.HoursOnly)
			whole := 120 - c.left + samples.Samples.Len()
			if whole == 120 {
				requireHoursLike(t, ts.Store, x)
			}
			require.Equal(t, whole, bucketCount(t, ts.Store, rollup.OneHour))
			require.Equal(t, 120, aggregates().LeftOut)
			require.Equal(t, samples.Samples.Len(), importCopies(t, ts.Store, []ImportedSeries{samples}).LeftOut)
			require.Equal(t, 120, importAggregates(
				t, ts.Store, aggregatesOf([]ImportedSeries{x}, rollup.OneHour)).LeftOut)
			require.Equal(t, whole, bucketCount(t, ts.Store, rollup.OneHour))
			requireNoProblems(t, ts.Store)
		})
	}
}

// requireHoursLike requires the only stored series to have 1h buckets with the values of the samples of x.
func requireHoursLike(t *testing.T, s *Store, x ImportedSeries) {
	t.Helper()
	found, err := s.Select(t.Context(), query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: rollup.OneHour,
		Columns: rollup.AllColumns,
	})
	require.NoError(t, err)
	require.Len(t, found, 1)
	var got, want rollup.Buckets
	require.NoError(t, found[0].Buckets(&got, &query.BucketBuffers{}))
	rollup.AppendEvery(&want, x.Samples, rollup.OneHour.Width())
	require.Equal(t, want.End, got.End)
	require.Equal(t, want.Count, got.Count)
	require.Equal(t, want.Min, got.Min)
	require.Equal(t, want.Max, got.Max)
	require.Equal(t, want.First, got.First)
	require.Equal(t, want.Last, got.Last)
	require.Equal(t, want.Sum, got.Sum)
	require.Equal(t, want.Resets, got.Resets)
}

// TestAggregatesFromAStoredSample imports one sample, and then aggregates that start at its time and include it. The
// first bucket of the aggregates must be skipped, because the sample can't be subtracted from it.
func TestAggregatesFromAStoredSample(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { hoursOnly(o); o.seams.still = true })
	begin := ts.now.Add(-25 * day).Truncate(day).UnixMilli()
	x := ImportedSeries{labels.FromStrings("__name__", "g"), &chunk.Samples{}}
	for i := range int64(60) {
		x.Samples.AppendFloat(begin+i*15_000, 0, float64(i))
	}
	one := ImportedSeries{x.Labels, &chunk.Samples{T: []int64{begin}, V: []float64{0}}}
	require.Equal(t, 1, importCopies(t, ts.Store, []ImportedSeries{one}).RollupsOnly)
	stats := importAggregates(t, ts.Store, leftClosedAggregates(x, rollup.FiveMinutes))
	require.Equal(t, ImportStats{Series: 1, RollupsOnly: 60, LeftOut: 20}, stats)
	require.Equal(t, 41, bucketCount(t, ts.Store, rollup.FiveMinutes))
	require.Equal(t, 41, bucketCount(t, ts.Store, rollup.OneHour))
	requireNoProblems(t, ts.Store)
}

// TestLateSampleAtAnEdgeOfAggregates seals a written sample at the edge at which imported aggregates begin, when only
// rollups of its time are kept. The sample must be stored once, and an earlier sample must be added.
func TestLateSampleAtAnEdgeOfAggregates(t *testing.T) {
	for _, res := range rollup.Resolutions {
		ts := openTestStore(t, func(o *Options) { hoursOnly(o); o.seams.still = true })
		begin := ts.now.Add(-time.Hour).Truncate(time.Hour)
		ts.write("t", labels.FromStrings("__name__", "other"), every(begin, time.Minute, 3)...)
		require.NoError(t, ts.SealAll(t.Context()))
		ls := labels.FromStrings("__name__", "g")
		half := time.Duration(res.Width()) * time.Millisecond / 2
		ts.write("t", ls, every(begin.Add(-half), half, 2)...)
		ts.passes(begin.Add(map[rollup.Resolution]time.Duration{
			rollup.FiveMinutes: 25 * day, rollup.OneHour: 100 * day,
		}[res]))
		x := ImportedSeries{ls, &chunk.Samples{}}
		for i := range int64(60) {
			x.Samples.AppendFloat(begin.UnixMilli()+i*15_000, 0, float64(i))
		}
		require.Equal(t, 60, importAggregates(t, ts.Store, leftClosedAggregates(x, res)).RollupsOnly)
		require.NoError(t, ts.SealAll(t.Context()))
		require.Equal(t, 61, bucketCount(t, ts.Store, rollup.OneHour, equal("__name__", "g")), res)
		requireNoProblems(t, ts.Store)
	}
}

// TestImportOfAggregatesThatFailsAnywhere fails each write of an import of buckets in turn. A repeated import must then
// store the same rows as an import without errors.
func TestImportOfAggregatesThatFailsAnywhere(t *testing.T) {
	t.Parallel()
	soak.Seed(t)
	for at := 0; ; at++ {
		require.Less(t, at, 100)
		var left countdown
		ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && left.hit() {
				return faultengine.Fail(nil)
			}
			return faultengine.Pass()
		}, func(o *Options) { hoursOnly(o); o.seams.still = true })
		list := floatsOf(pastOf(rand.New(rand.NewPCG(6, 1)), ts.now.Add(-25*day), 2))[:3]
		left.Store(int64(at))
		_, err := ts.ImportBuckets(t.Context(), "t", aggregatesOf(list[:2], rollup.FiveMinutes))
		left.Store(0)
		require.Equal(
			t, samplesOf(list), importAggregates(t, ts.Store, aggregatesOf(list, rollup.FiveMinutes)).RollupsOnly,
		)
		requireAggregated(t, ts.Store, list, rollup.FiveMinutes)
		requireAggregated(t, ts.Store, list, rollup.OneHour)
		requireNoProblems(t, ts.Store)
		if at > 0 && err == nil {
			require.Greater(t, at, 3, "it writes more often")
			return
		}
	}
}

// TestAggregatesThatAreRefused imports buckets with columns that other systems don't have, or with contradictory
// columns. They must be rejected.
func TestAggregatesThatAreRefused(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { hoursOnly(o); o.seams.still = true })
	list := floatsOf(historyOf(ts.now))[:1]
	for name, change := range map[string]func(*rollup.Buckets){
		"no sample": func(b *rollup.Buckets) { b.Count[1] = 0 },
		"flags":     func(b *rollup.Buckets) { b.Flags[1] = 0 },
		"an edge":   func(b *rollup.Buckets) { b.End[1]++ },
		"first":     func(b *rollup.Buckets) { b.First[1] = b.Max[1] + 1 },
		"sum":       func(b *rollup.Buckets) { b.Sum[1] = b.Max[1]*float64(b.Count[1]) + 1 },
		"moment":    func(b *rollup.Buckets) { b.Moment[1] = 7 },
		"late":      func(b *rollup.Buckets) { b.LastT[1] = b.End[1] + 1 },
	} {
		made := aggregatesOf(list, rollup.OneHour)
		change(made[0].Buckets)
		stats := importAggregates(t, ts.Store, made)
		require.Zero(t, stats.RollupsOnly, name)
		require.Len(t, stats.Refusals, 1, name)
		require.ErrorIs(t, stats.Refusals[0].Err, rollup.ErrAggregates)
	}
	_, err := ts.ImportBuckets(t.Context(), "t", []ImportedBuckets{{list[0].Labels, rollup.Raw, &rollup.Buckets{}}})
	require.ErrorIs(t, err, errBucketWidth)
	require.Zero(t, bucketCount(t, ts.Store, rollup.OneHour))
}

// TestImportOfAggregatesOnCassandra imports buckets into a real Cassandra, twice. The second import must not change any
// rollup.
func TestImportOfAggregatesOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // it waits for the commit log
	hosts := cassandratest.Hosts(t)
	o := cassandra.DefaultOptions()
	o.Hosts, o.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	o.Timeout, o.ConnectTimeout = time.Minute, time.Minute
	eng, err := cassandra.Open(t.Context(), o)
	require.NoError(t, err)
	ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: time.Now()}
	ts.opts.Partitions, ts.opts.Shared, ts.opts.Now = 2, true, time.Now
	hoursOnly(&ts.opts)
	ts.Store = openReady(t, eng, ts.opts)
	t.Cleanup(ts.close)
	fine := floatsOf(pastOf(rand.New(rand.NewPCG(7, 1)), time.Now().Add(-25*day), 2))[:3]
	coarse := floatsOf(historyOf(time.Now()))[3:6]
	for range 2 {
		require.Equal(
			t, samplesOf(fine), importAggregates(t, ts.Store, aggregatesOf(fine, rollup.FiveMinutes)).RollupsOnly,
		)
		require.Equal(
			t, samplesOf(coarse), importAggregates(t, ts.Store, aggregatesOf(coarse, rollup.OneHour)).RollupsOnly,
		)
		requireAggregated(t, ts.Store, fine, rollup.FiveMinutes)
		require.Equal(t, samplesOf(fine)+samplesOf(coarse), bucketCount(t, ts.Store, rollup.OneHour))
	}
	requireNoProblems(t, ts.Store)
}
