package storage

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

const day = 24 * time.Hour

// classOfJob returns a class that contains the series of a job.
func classOfJob(name, job string, keep retention.Durations) retention.Class {
	return retention.Class{
		Name: name, Match: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "job", job)}}, Durations: keep,
	}
}

func jobLabels(job string) labels.Labels {
	return labels.FromStrings(labels.MetricName, "up", "job", job)
}

var (
	keepLong   = retention.Durations{Raw: 30 * day, FiveMinutes: 60 * day, OneHour: 300 * day}
	keepShort  = retention.Durations{Raw: 2 * day, FiveMinutes: 4 * day, OneHour: 50 * day}
	keepLonger = retention.Durations{Raw: 90 * day, FiveMinutes: 200 * day, OneHour: 0}
)

func withTestClasses(o *Options) {
	o.Retention, o.Retention5m, o.Retention1h = keepLong.Raw, keepLong.FiveMinutes, keepLong.OneHour
	o.Classes = []retention.Class{classOfJob("ci", "ci", keepShort), classOfJob("audit", "audit", keepLonger)}
	o.TenantRetention = map[string]retention.Durations{"brief": {Raw: 3 * day, FiveMinutes: 5 * day, OneHour: 10 * day}}
	o.AddClasses = true
}

// chunksAt counts the rows of a class in the window of a resolution that contains t.
func (ts *testStore) chunksAt(res rollup.Resolution, t int64, class int64, tenant string) (n int) {
	ts.t.Helper()
	for _, err := range ts.rows.Scan(ts.t.Context(), engine.Range{
		Table:     format.TableOf(res),
		Partition: format.SeriesPartition(ts.period.WindowAt(res, t), tenant, "up", format.ClassShardOf(class, 0)),
		From:      engine.Key{engine.Int(format.KindChunk)}, KeysOnly: true,
	}) {
		require.NoError(ts.t, err)
		n++
	}
	return n
}

// bucketsOf reads all buckets of a tenant, and returns the number of samples in them by job.
func (ts *testStore) bucketsOf(tenant string, res rollup.Resolution, edges ...int64) map[string]int {
	ts.t.Helper()
	found, err := ts.Select(ts.t.Context(), query.Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
		Edges:    edges,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")},
	})
	require.NoError(ts.t, err)
	counts := map[string]int{}
	for _, s := range found {
		var b rollup.Buckets
		var buf query.BucketBuffers
		require.NoError(ts.t, s.Buckets(&b, &buf))
		for i, n := range b.Count {
			require.True(ts.t, i == 0 || b.End[i] > b.End[i-1], "no bucket twice")
			counts[s.Labels.Get("job")] += int(n)
		}
	}
	return counts
}

func (ts *testStore) jobs(tenant string) (jobs []string) {
	ts.t.Helper()
	for name := range ts.all(tenant) {
		jobs = append(jobs, strings.Split(name, `"`)[3])
	}
	return jobs
}

// TestClassesExpireEachAtItsTime checks answers and rows of one day's samples until all of them have expired. The
// samples are in every class, and one tenant has a shorter retention of its own.
func TestClassesExpireEachAtItsTime(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, withTestClasses)
	begin := ts.now
	at := begin.Add(-time.Hour).UnixMilli()
	for _, tenant := range []string{"usual", "brief"} {
		for _, job := range []string{"web", "ci", "audit"} {
			ts.write(tenant, jobLabels(job), sample{at, 1}, sample{at + 15_000, 2})
		}
	}
	require.NoError(t, ts.SealAll(t.Context()))
	for class := range int64(3) {
		for res := range rollup.Resolution(resolutions) {
			require.Equal(t, 1, ts.chunksAt(res, at, class, "usual"), "class %d, %s", class, res)
		}
	}
	type tenantJobs map[string][]string
	steps := []struct {
		days           int
		raw, five, one tenantJobs
		rows           int // of the remaining classes of both tenants in the raw window
	}{
		{0, tenantJobs{"usual": {"audit", "ci", "web"}, "brief": {"audit", "ci", "web"}}, nil, nil, 6},
		{3, tenantJobs{"usual": {"audit", "web"}, "brief": {"audit"}},
			tenantJobs{"usual": {"audit", "ci", "web"}, "brief": {"audit", "ci", "web"}}, nil, 6},
		{10, tenantJobs{"usual": {"audit", "web"}, "brief": {"audit"}},
			tenantJobs{
				"usual": {"audit", "web"}, "brief": {"audit"},
			}, tenantJobs{"usual": {"audit", "ci", "web"}, "brief": {"audit", "ci"}}, 4},
		{45, tenantJobs{"usual": {"audit"}, "brief": {"audit"}},
			tenantJobs{
				"usual": {"audit", "web"}, "brief": {"audit"},
			}, tenantJobs{"usual": {"audit", "ci", "web"}, "brief": {"audit", "ci"}}, 2},
		{110, nil, tenantJobs{"usual": {"audit"}, "brief": {"audit"}}, tenantJobs{"usual": {"audit", "web"}, "brief": {"audit"}}, 0},
		{400, nil, nil, tenantJobs{"usual": {"audit"}, "brief": {"audit"}}, 0},
	}
	for _, step := range steps {
		ts.passes(begin.Add(time.Duration(step.days) * day))
		for range 2 { // Expire in between must not change any answer.
			for _, tenant := range []string{"usual", "brief"} {
				require.ElementsMatch(
					t, step.raw[tenant], ts.jobs(tenant), "raw of %s after %d days", tenant, step.days,
				)
				for res, want := range map[rollup.Resolution]tenantJobs{
					rollup.FiveMinutes: step.five, rollup.OneHour: step.one,
				} {
					if want == nil {
						continue
					}
					got := ts.bucketsOf(tenant, res)
					require.Len(t, got, len(want[tenant]), "%s of %s after %d days: %v", res, tenant, step.days, got)
					for _, job := range want[tenant] {
						require.Equal(t, 2, got[job], "%s of %s of %s after %d days", res, job, tenant, step.days)
					}
				}
			}
			_, err := ts.Expire(t.Context())
			require.NoError(t, err)
			ts.check()
		}
		again, err := ts.Expire(t.Context())
		require.NoError(t, err)
		require.Zero(t, again, "nothing is dropped twice")
		rows := 0
		for _, tenant := range []string{"usual", "brief"} {
			for class := range int64(3) {
				rows += ts.chunksAt(rollup.Raw, at, class, tenant)
			}
		}
		require.Equal(t, step.rows, rows, "raw rows after %d days", step.days)
	}
}

// TestLabelsOfHiddenClassesAreNotTold finds series by matchers. The series of a class must disappear with its last
// visible rows.
func TestLabelsOfHiddenClassesAreNotTold(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, withTestClasses)
	for _, job := range []string{"web", "ci"} {
		ts.write("usual", jobLabels(job), sample{ts.now.UnixMilli() - 1000, 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	q := query.Query{
		Tenant: "usual", MinT: -format.MaxTime, MaxT: format.MaxTime,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")},
	}
	for _, step := range []struct {
		days int
		want []string
	}{{1, []string{"ci", "web"}}, {30, []string{"ci", "web"}}, {100, []string{"web"}}, {250, nil}} {
		ts.now = ts.now.Add(time.Duration(step.days) * day)
		values, err := ts.LabelValues(t.Context(), "job", q)
		require.NoError(t, err)
		require.ElementsMatch(t, step.want, values)
	}
}

func TestLateSamplesAreTakenByTheClassesRetention(t *testing.T) {
	ts := openTestStore(t, withTestClasses)
	for _, c := range []struct {
		tenant, job string
		kept        time.Duration
	}{
		{"usual", "web", keepLong.Raw}, {"usual", "ci", keepShort.Raw}, {"usual", "audit", keepLonger.Raw},
		{"brief", "web", 3 * day}, {"brief", "ci", keepShort.Raw}, {"brief", "audit", keepLonger.Raw},
	} {
		b := ts.NewBatch(c.tenant)
		s, err := b.Define(nil, jobLabels(c.job))
		require.NoError(t, err)
		require.ErrorIs(t, b.Float(s, ts.now.Add(-c.kept).UnixMilli(), 0, 1), ErrTooOld, "%s %s", c.tenant, c.job)
		require.NoError(t, b.Float(s, ts.now.Add(-c.kept).UnixMilli()+1, 0, 1), "%s %s", c.tenant, c.job)
		require.NoError(t, b.Commit(t.Context()))
	}
	require.NoError(t, ts.SealAll(t.Context()))
	require.Len(t, ts.all("usual"), 3)
	ts.now = ts.now.Add(time.Minute)
	require.Empty(t, ts.all("usual"))
	require.Empty(t, ts.all("brief"))
}

// TestSealedTooLate seals samples after the raw windows of some classes have expired. The samples of each class must be
// stored at the resolutions that its retention still covers.
func TestSealedTooLate(t *testing.T) {
	ts := openTestStore(t, withTestClasses)
	at := ts.now.UnixMilli() - 1000
	for _, tenant := range []string{"usual", "brief"} {
		for _, job := range []string{"web", "ci", "audit"} {
			ts.write(tenant, jobLabels(job), sample{at, 1})
		}
	}
	for _, tenant := range []string{"usual", "brief"} { // As if other samples were sealed there.
		require.NoError(t, ts.listWindow(t.Context(), tenant, ts.period.RawWindowAt(at)))
	}
	ts.passes(ts.now.Add(11 * day)) // ci is past its raw retention, and has been hidden for a week
	require.NoError(t, ts.SealAll(t.Context()))
	require.ElementsMatch(t, []string{"web", "audit"}, ts.jobs("usual"))
	require.ElementsMatch(t, []string{"audit"}, ts.jobs("brief"))
	require.Zero(t, ts.chunksAt(rollup.Raw, at, 1, "usual"))
	require.Equal(t, map[string]int{"web": 1, "ci": 1, "audit": 1}, ts.bucketsOf("usual", rollup.OneHour))
	require.Zero(t, ts.HeadStats().Chunks)
}

// TestCutSlotsOfClassesWithoutSamples queries buckets with an edge (Query.Edges) inside a stored bucket, at times for
// which one class has samples and another class only buckets. The result must include the buckets of both classes.
func TestCutSlotsOfClassesWithoutSamples(t *testing.T) {
	ts := openTestStore(t, withTestClasses)
	at := ts.now.Add(-time.Hour).UnixMilli()
	for _, job := range []string{"web", "ci"} {
		ts.write("usual", jobLabels(job), sample{at, 1}, sample{at + 15_000, 2}, sample{at + 3*format.HourMS/4, 3})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = ts.now.Add(3 * day)
	require.Equal(t, map[string]int{"web": 3, "ci": 3}, ts.bucketsOf("usual", rollup.FiveMinutes, at+1))
	require.Equal(t, map[string]int{"web": 3, "ci": 3}, ts.bucketsOf("usual", rollup.OneHour, at+1))
}

// TestRowsOfClassesLiveAsLongAsTheyShould checks the TTLs of all written rows.
func TestRowsOfClassesLiveAsLongAsTheyShould(t *testing.T) {
	ts := openTestStore(t, withTestClasses)
	ts.expireRows()
	lives := &livesEngine{Engine: ts.eng, t: t, of: ts}
	ts.Store.eng, ts.rows = lives, paged.New(lives, paged.Options{})
	ts.openQuerier()
	for _, tenant := range []string{"usual", "brief"} {
		for _, job := range []string{"web", "ci", "audit"} {
			ts.write(tenant, jobLabels(job), sample{ts.now.UnixMilli() - 1000, 1})
		}
	}
	require.NoError(t, ts.SealAll(t.Context()))
	require.Equal(t, 2*3*3*2, lives.series, "labels and a chunk of each series at each resolution")
	require.Positive(t, lives.shared)
}

func TestSettingsOfAStoreWithClasses(t *testing.T) {
	ts := openTestStore(t, nil)
	ts.opts.Classes = []retention.Class{classOfJob("ci", "ci", keepShort)}
	ts.reopen()
	require.EqualValues(t, 1, ts.retention.Classes(), "only processes that are told so add classes")
	ts.opts.AddClasses = true
	ts.reopen()
	have, _, err := readSettings(t.Context(), ts.eng)
	require.NoError(t, err)
	require.Equal(t, []retention.KnownClass{{Name: "ci", KeptMS: retention.KeptMS{
		RawMS: keepShort.Raw.Milliseconds(), FiveMinutesMS: keepShort.FiveMinutes.Milliseconds(),
		OneHourMS: keepShort.OneHour.Milliseconds(),
	}}}, have.Classes)
	ts.opts.Classes = nil
	ts.reopen()
	require.EqualValues(t, 2, ts.retention.Classes())
	require.Equal(
		t, ts.opts.Retention, ts.retention.RetentionOf("a", 1).Raw,
		"what isn't configured stays at least as long as the rest",
	)
	ts.opts.Retention = day
	ts.reopen()
	require.Equal(t, keepShort.Raw, ts.retention.RetentionOf("a", 1).Raw, "and as long as it said last")
}

func TestBadClassesAreRefused(t *testing.T) {
	ok := classOfJob("a", "a", keepShort)
	many := make([]retention.Class, retention.MaxClasses+1)
	for i := range many {
		many[i] = classOfJob(strings.Repeat("a", i+1), "x", keepShort)
	}
	for name, list := range map[string][]retention.Class{
		"is used twice": {ok, ok}, "a class has no name": {{Match: ok.Match, Durations: keepShort}},
		"matches nothing":             {{Name: "x", Durations: keepShort}},
		"8 classes; the maximum is 7": many, "5m rollups must be kept at least as long as raw samples (": {
			classOfJob("a", "a", retention.Durations{Raw: 2 * day, FiveMinutes: day, OneHour: 0}),
		},
	} {
		o := DefaultOptions()
		o.Classes = list
		require.ErrorContains(t, o.validate(), name)
		require.ErrorIs(t, o.validate(), retention.ErrBadClasses)
	}
	o := DefaultOptions()
	o.TenantRetention = map[string]retention.Durations{"a": {Raw: time.Minute, FiveMinutes: 0, OneHour: 0}}
	require.ErrorContains(t, o.validate(), `tenant "a"`)
}

func TestHorizonsOf(t *testing.T) {
	ts := openTestStore(t, withTestClasses)
	for _, job := range []string{"web", "ci"} {
		ts.write("usual", jobLabels(job), sample{ts.now.Add(-time.Hour).UnixMilli(), 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = ts.now.Add(3 * day)
	of := func(tenant, job string, back time.Duration) (classes []uint64) {
		found, err := ts.BoundariesOf(t.Context(), query.Query{
			Tenant: tenant, MinT: ts.now.Add(-back).UnixMilli(), MaxT: ts.now.UnixMilli(),
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "job", job)},
		})
		require.NoError(t, err)
		for _, h := range found {
			classes = append(classes, h.Class)
		}
		return classes
	}
	require.Equal(t, []uint64{1, 2}, of("usual", ".+", 10*day))
	require.Equal(t, []uint64{1}, of("usual", "web", 10*day))
	require.Equal(t, []uint64{2}, of("usual", "ci", 10*day))
	require.Equal(t, []uint64{1}, of("usual", "none", 10*day))
	require.Equal(t, []uint64{1, 2, 4}, of("usual", "none", day), "all is kept in all of them")
}

func TestTellRetention(t *testing.T) {
	var log bytes.Buffer
	ts := openTestStore(t, func(o *Options) {
		withTestClasses(o)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	tell := func() string {
		log.Reset()
		require.NoError(t, ts.retention.LogChange(t.Context()))
		return log.String()
	}
	require.Empty(t, tell(), "there is nothing to compare with")
	require.Empty(t, tell())
	ts.opts.TenantRetention, ts.opts.Classes = nil, ts.opts.Classes[:1]
	ts.opts.Classes[0] = classOfJob("ci", "ci",
		retention.Durations{Raw: 3 * day, FiveMinutes: 4 * day, OneHour: 50 * day})
	ts.reopen()
	told := tell()
	for _, want := range []string{
		`class \"ci\"`, `class \"audit\"`, `tenant \"brief\"`, "was=\"raw 48h0m0s", "is=\"raw 72h0m0s",
	} {
		require.Contains(t, told, want)
	}
	require.NotContains(t, told, "of=all")
	require.Empty(t, tell())
}
