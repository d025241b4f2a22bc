package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestBucketsAreWhatSamplesMake reads buckets of samples that are late, unsealed, sealed, or were sealed by an earlier
// release without rollups. It compares them with buckets computed from the samples of the same query.
func TestBucketsAreWhatSamplesMake(t *testing.T) {
	t.Parallel()
	for _, shards := range []int64{1, 4} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			seed := soak.Seed(t)
			r := rand.New(rand.NewPCG(seed, 0))
			ts := openTestStore(t, nil)
			m := newReadModel(t, ts, shards, r)
			ask := func(when string) {
				for range soak.Fewer(15) {
					compareBuckets(t, ts, r, when)
				}
			}
			ask("sealed without rollups, and unsealed")
			require.NoError(t, ts.SealAll(t.Context()))
			ask("sealed")
			list, err := listed(ts.Unrolled(t.Context(), -format.MaxTime/2, format.MaxTime/2, func() {}))
			require.NoError(t, err)
			require.NotEmpty(t, list)
			for i, u := range list {
				_, err := ts.RollUp(t.Context(), u, func() {})
				require.NoError(t, err)
				if i == len(list)/2 {
					ask("half rolled up")
				}
			}
			left, err := listed(ts.Unrolled(t.Context(), -format.MaxTime/2, format.MaxTime/2, func() {}))
			require.NoError(t, err)
			require.Empty(t, left)
			ask("rolled up")
			p := ts.period
			newest := p.SlotOf(ts.now.UnixMilli())
			for range 40 {
				slot := newest - r.Int64N(40)
				ls := m.labels[r.IntN(len(m.labels))]
				ts.write(
					"default", ls,
					sample{p.SlotStart(slot) + 1 + r.Int64N(p.SlotEnd(slot)-p.SlotStart(slot)), r.Float64()},
				)
			}
			ask("late")
			ts.reopen()
			ask("late, after a restart")
			require.NoError(t, ts.SealAll(t.Context()))
			ask("late, sealed")
			require.Greater(t, ts.check().Rollups, 1000)
		})
	}
}

func compareBuckets(t *testing.T, ts *testStore, r *rand.Rand, when string) {
	q := randomQuery(ts, r)
	res := rollup.Resolutions[r.IntN(2)]
	width := res.Width()
	q.Limit = 0
	q.MinT, q.MaxT = format.FloorDiv(q.MinT, width)*width+1, format.FloorDiv(q.MaxT, width)*width
	if q.MinT >= q.MaxT {
		return
	}
	var edges []int64
	for range r.IntN(4) {
		edges = append(edges, q.MinT+r.Int64N(q.MaxT-q.MinT))
	}
	slices.Sort(edges)

	want := map[string]*rollup.Buckets{}
	found, err := ts.Select(t.Context(), q)
	require.NoError(t, err)
	for _, s := range found {
		var samples chunk.Samples
		require.NoError(t, s.Samples(&samples))
		if samples.Len() == 0 {
			continue
		}
		b := &rollup.Buckets{}
		rollup.AppendCells(b, &samples, edges, width)
		want[s.Labels.String()] = b
	}

	q.Resolution, q.Columns, q.Edges = res, rollup.AllColumns, edges
	found, err = ts.Select(t.Context(), q)
	require.NoError(t, err)
	got := map[string]bool{}
	var b rollup.Buckets
	var buf query.BucketBuffers
	for _, s := range found {
		require.NoError(t, s.Buckets(&b, &buf))
		b.Delete(0, func(end int64) bool { return end <= q.MinT-1 || end > q.MaxT })
		name := s.Labels.String()
		if b.Len() == 0 {
			require.Nil(t, want[name], "%s: %s is missing", when, name)
			continue
		}
		got[name] = true
		require.NotNil(t, want[name], "%s: %s has buckets and no samples", when, name)
		require.Equal(t, want[name].End, b.End, "%s: %s", when, name)
		require.Equal(t, want[name].Start, b.Start, "%s: %s", when, name)
		require.Equal(t, want[name].Count, b.Count)
		require.Equal(t, want[name].First, b.First)
		require.Equal(t, want[name].LastT, b.LastT)
		require.Equal(t, want[name].Max, b.Max)
		require.InDeltaSlice(t, want[name].Sum, b.Sum, 1e-9)
		require.InDeltaSlice(t, want[name].Correction, b.Correction, 1e-9)
		require.Equal(t, want[name].Resets, b.Resets)
	}
	require.Len(t, got, len(want), when)
}

// TestBucketsWithSamplesPastTheRetention writes a late sample of another series into the slot that contains the raw
// retention boundary, so that the slot is read from samples. A bucket must not be computed from its visible samples if
// some of its samples are hidden.
func TestBucketsWithSamplesPastTheRetention(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 2 * day })
	hour := format.FloorDiv(ts.now.UnixMilli(), 2*format.HourMS)*2*format.HourMS - 4*format.HourMS
	for i := int64(1); i <= 24; i++ {
		ts.write("t", jobLabels("web"), sample{hour + i*5*60_000, 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = time.UnixMilli(hour + 52*60_000).Add(2 * day)
	ts.write("t", jobLabels("late"), sample{hour + 58*60_000, 1})
	require.Len(t, ts.all("t")[jobLabels("web").String()], 14, "samples of 55 minutes past the hour, and later ones")
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"web": 24, "late": 1}, ts.bucketsOf("t", res), "%s", res)
	}
	require.Equal(
		t, map[string]int{"web": 14, "late": 1}, ts.bucketsOf("t", rollup.OneHour, hour+50*60_000),
		"a bucket that is cut is made of what is there",
	)
	require.NoError(t, ts.SealAll(t.Context()))
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"web": 24, "late": 1}, ts.bucketsOf("t", res), "%s, sealed", res)
	}
	ts.check()
}

func TestSeriesAreFoundAsLongAsRollupsAreKept(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	open := func() *testStore {
		ts := openTestStore(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 2*day, 40*day, 100*day })
		ts.write(
			"default", labels.FromStrings(labels.MetricName, "up", "job", "old"), sample{ts.now.UnixMilli() - 1000, 1},
		)
		require.NoError(t, ts.SealAll(t.Context()))
		return ts
	}
	ts := open()
	begin := ts.now
	for _, days := range []int{0, 20, 70, 300} {
		want := []string{"old"}
		if days == 300 {
			want = []string{}
		}
		ts.now = begin.Add(time.Duration(days) * day)
		values, err := ts.LabelValues(
			t.Context(), "job", query.Query{Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime},
		)
		require.NoError(t, err)
		require.Equal(t, want, values, "after %d days", days)
		found, err := ts.Select(t.Context(), query.Query{
			Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, LabelsOnly: true,
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "job", "old")},
		})
		require.NoError(t, err)
		require.Len(t, found, len(want), "after %d days", days)
	}
	ts = open()                               // The clock was set back since.
	for _, days := range []int{20, 70, 300} { // Dropped windows were hidden before.
		require.Equal(t, 1, ts.passes(begin.Add(time.Duration(days)*day)), "after %d days", days)
	}
}

// TestBucketsWithDeletesPastTheRetention deletes a part of a bucket that has samples past the raw retention. The answer
// must not include deleted samples, before or after the rollups are recomputed.
func TestBucketsWithDeletesPastTheRetention(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.seams.still = 2*day, true })
	hour := format.FloorDiv(ts.now.UnixMilli(), 2*format.HourMS)*2*format.HourMS - 4*format.HourMS
	for i := int64(1); i <= 24; i++ {
		v := 1.0
		if i == 12 {
			v = 100
		}
		ts.write("t", jobLabels("web"), sample{hour + i*5*60_000, v})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = time.UnixMilli(hour + 52*60_000).Add(2 * day)
	require.NoError(t, ts.Delete(t.Context(), "t", hour+59*60_000, hour+60*60_000, equal("job", "web")))
	most := func() (most float64) {
		found, err := ts.Select(t.Context(), query.Query{
			Tenant: "t", MinT: hour + 1, MaxT: hour + 2*format.HourMS, Resolution: rollup.OneHour,
			Columns: rollup.AllColumns, Matchers: []*labels.Matcher{equal("job", "web")},
		})
		require.NoError(t, err)
		var b rollup.Buckets
		for _, s := range found {
			require.NoError(t, s.Buckets(&b, &query.BucketBuffers{}))
			most = max(most, slices.Max(b.Max))
		}
		return most
	}
	require.Equal(t, 1.0, most(), "answered from samples")
	require.NoError(t, ts.WorkOffDeletes(t.Context(), "t"))
	require.Equal(t, 1.0, most(), "made anew")
}
