package promql

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/storagetest"
)

const testDay = 24 * time.Hour

// keptJobs maps each job to its retention. Each job has a class of its own, except web, which is in no class.
var keptJobs = map[string]retention.Durations{
	"web":   {Raw: 2 * testDay, FiveMinutes: 3 * testDay},
	"ci":    {Raw: testDay, FiveMinutes: 2 * testDay, OneHour: 3 * testDay},
	"audit": {},
	"brief": {Raw: 36 * time.Hour, FiveMinutes: 36 * time.Hour, OneHour: 36 * time.Hour},
}

// mixedStore returns a store with a counter for each job, one sample per minute for five days.
func mixedStore(t *testing.T) (*storage.Store, time.Time) {
	now := time.Date(2026, 5, 6, 0, 0, 0, 0, time.UTC)
	clock := now.Add(-5 * testDay)
	store := storagetest.Open(t, memory.New(), func(o *storage.Options) {
		o.Now, o.Partitions = func() time.Time { return clock }, 1
		o.Retention, o.Retention5m, o.Retention1h = keptJobs["web"].Raw, keptJobs["web"].FiveMinutes,
			keptJobs["web"].OneHour
		o.AddClasses = true
		for _, job := range []string{"ci", "audit", "brief"} {
			o.Classes = append(o.Classes, retention.Class{
				Name: job, Durations: keptJobs[job],
				Match: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "job", job)}},
			})
		}
	})
	value := 0.0
	for clock.Before(now) {
		from := clock.UnixMilli()
		clock = clock.Add(2 * time.Hour)
		b := store.NewBatch("default")
		for i := range int64(120) {
			value++
			for job := range keptJobs {
				s, err := b.Define([]byte(job), labels.FromStrings(labels.MetricName, "requests_total", "job", job))
				require.NoError(t, err)
				require.NoError(t, b.Float(s, from+(i+1)*60_000, 0, value))
			}
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	require.NoError(t, store.SealAll(t.Context()))
	return store, now
}

// TestNoSilentGapsWithMixedClasses checks queries of series of multiple classes at once, over the longest retention of
// all. At every step, each series must have a value as long as any resolution keeps it.
func TestNoSilentGapsWithMixedClasses(t *testing.T) {
	store, now := mixedStore(t)
	const width = 2 * time.Hour
	for _, query := range []struct {
		text  string
		want  float64
		step  time.Duration
		alone bool // also run without the planner
	}{
		{"count_over_time(requests_total[2h])", 120, time.Hour, false},
		{"increase(requests_total[2h])", 120, time.Hour, true},
		{"count_over_time(requests_total[2h])", 120, 30 * time.Minute, false}, // 1h buckets don't fit the window
		{"increase(requests_total[2h])", 120, 35 * time.Minute, false},
		{"sum by (job) (count_over_time(requests_total[2h]))", 120, time.Hour, false},
		{"max by (job) (increase(requests_total[2h]))", 120, time.Hour, true},
		{"count by (job) (timestamp(requests_total))", 1, time.Hour, true},
		{"count_over_time(requests_total{job=~'ci|audit'}[2h])", 120, time.Hour, false},
	} {
		for _, alone := range []bool{false, true} {
			if alone && !query.alone {
				continue
			}
			o := DefaultOptions()
			o.NoPlanner = alone
			e := NewEngine(o)
			defer e.Close()
			q, err := e.NewRangeQuery(t.Context(), NewQueryable(store), nil, query.text, now.Add(-5*testDay).Add(width),
				now, query.step)
			require.NoError(t, err)
			r := q.Exec(t.Context())
			require.NoError(t, r.Err, query.text)
			m, err := r.Matrix()
			require.NoError(t, err)
			got := map[string]map[int64]float64{}
			for _, s := range m {
				at := map[int64]float64{}
				for _, p := range s.Floats {
					at[p.T] = p.F
				}
				got[s.Metric.Get("job")] = at
			}
			for job, keep := range keptJobs {
				if job != "ci" && job != "audit" &&
					query.text == "count_over_time(requests_total{job=~'ci|audit'}[2h])" {
					continue
				}
				for at := now.Add(-5 * testDay).Add(width); !at.After(now); at = at.Add(query.step) {
					v, ok := got[job][at.UnixMilli()]
					age := now.Sub(at)
					switch {
					case keep.OneHour == 0 || age+width+time.Hour < keep.OneHour:
						require.True(t, ok, "%s (alone: %v): a gap of %s, %s ago", query.text, alone, job, age)
						require.InEpsilon(t, query.want, v, 0.04, "%s (alone: %v) of %s, %s ago", query.text, alone,
							job, age)
					case age > keep.OneHour+time.Hour:
						require.False(t, ok, "%s (alone: %v): %s is hidden %s ago", query.text, alone, job, age)
					}
				}
			}
			if alone {
				require.NotEmpty(t, r.Warnings, "%s: what is from the ends of buckets is told", query.text)
			}
			q.Close()
		}
	}
}

// TestResolutionsOfClassesThatAreNotAsked checks that the retention of other classes doesn't affect the resolutions
// that are chosen for a query of one class.
func TestResolutionsOfClassesThatAreNotAsked(t *testing.T) {
	store, now := mixedStore(t)
	e := NewEngine(DefaultOptions())
	defer e.Close()
	for query, told := range map[string]int{
		`max_over_time(requests_total{job="audit"}[7m])`:          0,
		`max_over_time(requests_total{job="web"}[7m])`:            0,
		`max_over_time(requests_total{job=~"web|audit"}[7m])`:     0,
		`max_over_time(requests_total{job=~"ci|audit"}[7m])`:      1,
		`max_over_time(requests_total{instance="none"}[7m])`:      0,
		`max_over_time(requests_total[7m])`:                       1,
		`max_over_time(requests_total{job=~".+"}[7m] offset -1h)`: 1,
	} {
		q, err := e.NewRangeQuery(t.Context(), NewQueryable(store), nil, query, now.Add(-30*time.Hour),
			now.Add(-26*time.Hour), 5*time.Minute)
		require.NoError(t, err)
		r := q.Exec(t.Context())
		require.NoError(t, r.Err)
		require.Len(t, r.Warnings, told, "%s: %v", query, r.Warnings)
		q.Close()
	}
}

// TestChoiceByClasses checks which resolutions are chosen for times at which one class has expired and another has only
// 1h buckets.
func TestChoiceByClasses(t *testing.T) {
	const hours, days = int64(time.Hour / time.Millisecond), int64(testDay / time.Millisecond)
	kept := func(raw, five, hour int64) [3]int64 { return [3]int64{raw * days, five * days, hour * days} }
	r := resolution.Request{
		Func: "max_over_time", Range: 10 * 60_000, From: 50 * days, To: 50*days + 6*hours, Step: hours, Slot: 2 * hours,
		Oldest:   math.MinInt64,
		Boundary: kept(97, 90, 90), Classes: [][3]int64{kept(97, 90, 90), kept(70, 60, 0)},
	}
	segments, short, err := resolution.Choose(r)
	require.NoError(t, err)
	require.Len(t, segments, 1)
	require.Equal(t, rollup.OneHour, segments[0].Resolution)
	require.True(t, short.Cut)

	r.Classes = r.Classes[1:]
	r.Boundary = r.Classes[0]
	segments, _, err = resolution.Choose(r)
	require.NoError(t, err)
	require.Equal(t, rollup.OneHour, segments[0].Resolution)

	r.From, r.To = 65*days, 65*days+6*hours
	r.Classes = [][3]int64{kept(97, 90, 90), kept(70, 60, 0)}
	segments, _, err = resolution.Choose(r)
	require.NoError(t, err)
	require.Equal(t, rollup.FiveMinutes, segments[0].Resolution)
}
