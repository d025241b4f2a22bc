package promql

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// changedClass is a store with a series whose class changes. Samples are written every day.
type changedClass struct {
	*storage.Store
	t    *testing.T
	eng  engine.Engine
	now  time.Time
	all  retention.Durations
	days []changedDay
}

// changedDay is a day with samples, and the retention of its class.
type changedDay struct {
	noon time.Time
	keep retention.Durations
}

// daySamples is the number of samples written each day, one every five minutes up to noon.
const daySamples = 24

var classMetric = labels.FromStrings(labels.MetricName, "c", "job", "ci")

// open opens the store with classes. The series belongs to class in, or to no class if in is empty.
func (c *changedClass) open(classes map[string]retention.Durations, in string) {
	if c.Store != nil {
		require.NoError(c.t, c.Close())
	}
	c.Store = storagetest.Start(
		c.t, c.eng, storagetest.Clock(func() time.Time { return c.now }), func(o *storage.Options) {
			o.Partitions, o.AddClasses = 1, true
			o.Elapsed = func() time.Duration { return time.Duration(c.now.UnixNano()) }
			o.Retention, o.Retention5m, o.Retention1h = c.all.Raw, c.all.FiveMinutes, c.all.OneHour
			for _, name := range []string{"long", "short"} {
				keep, ok := classes[name]
				if !ok {
					continue
				}
				job := "other"
				if name == in {
					job = "ci"
				}
				o.Classes = append(o.Classes, retention.Class{Name: name, Durations: keep,
					Match: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "job", job)}}})
			}
		},
	)
}

// day writes the samples of a day, on which their class has the given retention, and seals them an hour after noon.
func (c *changedClass) day(keep retention.Durations) {
	c.now = c.now.Add(testDay)
	noon := c.now.Add(-time.Hour)
	b := c.NewBatch("default")
	ref, err := b.Define(nil, classMetric)
	require.NoError(c.t, err)
	for i := range daySamples {
		require.NoError(c.t, b.Float(ref, noon.Add(-time.Duration(i)*5*time.Minute).UnixMilli(), 0, 1))
	}
	require.NoError(c.t, b.Commit(c.t.Context()))
	c.days = append(c.days, changedDay{noon, keep})
	require.NoError(c.t, c.SealAll(c.t.Context()))
	_, err = c.Expire(c.t.Context())
	require.NoError(c.t, err)
}

// held returns the number of samples that each day has at a resolution.
func (c *changedClass) held(res rollup.Resolution) map[time.Time]int {
	list, err := c.Select(c.t.Context(), query.Query{
		Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "c")},
	})
	require.NoError(c.t, err)
	counts := map[time.Time]int{}
	add := func(t int64, n int) {
		at := time.UnixMilli(t).UTC()
		counts[at.Truncate(testDay).Add(12*time.Hour)] += n
	}
	for _, x := range list {
		if res == rollup.Raw {
			var samples chunk.Samples
			require.NoError(c.t, x.Samples(&samples))
			for _, t := range samples.T {
				add(t, 1)
			}
			continue
		}
		var b rollup.Buckets
		require.NoError(c.t, x.Buckets(&b, &query.BucketBuffers{}))
		for i, end := range b.End {
			add(end, int(b.Count[i]))
		}
	}
	return counts
}

// answers returns the number of samples per day in the answers of resolution auto.
func (c *changedClass) answers(from, to time.Time, step time.Duration) map[time.Time]int {
	e := NewEngine(DefaultOptions())
	defer e.Close()
	q, err := e.NewRangeQuery(newRollupContext(c.t, "auto"), NewQueryable(c.Store), nil, "count_over_time(c[2h])", from,
		to, step)
	require.NoError(c.t, err)
	defer q.Close()
	r := q.Exec(newRollupContext(c.t, "auto"))
	require.NoError(c.t, r.Err)
	m, err := r.Matrix()
	require.NoError(c.t, err)
	counts := map[time.Time]int{}
	for _, x := range m {
		for _, p := range x.Floats {
			counts[time.UnixMilli(p.T).UTC()] += int(p.F)
		}
	}
	return counts
}

// check checks that each resolution returns the samples that the class of each day keeps at that resolution, and that
// auto returns the samples that the class keeps at any resolution.
func (c *changedClass) check() {
	c.t.Helper()
	held := map[rollup.Resolution]map[time.Time]int{}
	all := c.answers(c.days[0].noon, c.now.Add(-time.Hour), testDay)
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		held[res] = c.held(res)
	}
	for i, d := range c.days {
		some := false
		for res := rollup.Raw; res <= rollup.OneHour; res++ {
			kept := d.keep.Duration(res)
			age := c.now.Sub(d.noon)
			want := 0
			switch {
			case kept == 0 || age+2*time.Hour < kept:
				want, some = daySamples, true
			case age < kept: // The retention boundary is inside this day.
				want = held[res][d.noon]
			}
			require.Equal(c.t, want, held[res][d.noon], "%s of %s on %s", res, d.noon, c.now)
		}
		if some {
			require.Equal(c.t, daySamples, all[d.noon], "auto over all days, of %s on %s", d.noon, c.now)
			if i%7 == len(c.days)%7 {
				require.Equal(c.t, daySamples, c.answers(d.noon, d.noon, testDay)[d.noon], "auto at %s on %s", d.noon,
					c.now)
			}
		}
	}
}

// TestClassChangedOnAWednesday checks answers after the class of a series changes on a Wednesday, and back after ten
// days. On every day of two months, each resolution must return the samples that the class of each day keeps, and auto
// must not choose a resolution without samples.
func TestClassChangedOnAWednesday(t *testing.T) {
	long := retention.Durations{Raw: 30 * testDay, FiveMinutes: 365 * testDay, OneHour: 5 * 365 * testDay}
	short := retention.Durations{Raw: 3 * testDay, FiveMinutes: 3 * testDay, OneHour: 90 * testDay}
	both := map[string]retention.Durations{"long": long, "short": short}
	for name, c := range map[string]struct {
		all           retention.Durations
		before, after map[string]retention.Durations
		was, is       string
	}{
		"shortened": {long, both, both, "long", "short"},
		"raised":    {long, both, both, "short", "long"},
		"new":       {long, nil, map[string]retention.Durations{"short": short}, "", "short"},
	} {
		for _, expiring := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, expiring=%v", name, expiring), func(t *testing.T) {
				t.Parallel()
				s := &changedClass{t: t, now: time.Date(2026, 4, 19, 13, 0, 0, 0, time.UTC), all: c.all}
				if s.eng = storagetest.Pebble(t); expiring {
					s.eng = memory.NewExpiring(func() time.Time { return s.now })
				}
				change := 16
				if expiring { // The next day's list of classes is already fixed.
					change--
				}
				keep := map[string]retention.Durations{"": c.all, "long": long, "short": short}
				s.open(c.before, c.was)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				for day := range 80 {
					in := c.was
					if day >= 16 && day < 26 {
						in = c.is
					}
					switch day {
					case change:
						s.open(c.after, c.is)
					case change + 10:
						s.open(c.after, c.was)
					}
					s.day(keep[in])
					require.Equal(t, day%7 == 2, s.now.Weekday() == time.Wednesday)
					if day >= 15 {
						s.check()
					}
				}
				_, err := s.Check(t.Context(), func(problem string) { t.Error(problem) })
				require.NoError(t, err)
			})
		}
	}
}
