package storage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// unrolledStore is a store that can't write rollups of one resolution.
type unrolledStore struct {
	*testStore
	failing rollup.Resolution // Raw if all writes succeed
	tenant  string            // "" if the writes of all tenants fail
}

func openUnrolled(t *testing.T, expiring bool, change func(*Options)) *unrolledStore {
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions, ts.opts.seams.still = 1, true
	change(&ts.opts)
	inner := memory.New()
	if expiring {
		inner = memory.NewExpiring(ts.opts.Now)
	}
	s := &unrolledStore{testStore: ts}
	ts.memory = faultengine.Wrap(inner, s.fault)
	ts.open()
	t.Cleanup(ts.close)
	return s
}

// fault is the rule of the store's engine.
func (s *unrolledStore) fault(op faultengine.Op) faultengine.Action {
	tables := map[rollup.Resolution][]*engine.Table{
		rollup.FiveMinutes: {engine.R5m, engine.R5mPages}, rollup.OneHour: {engine.R1h, engine.R1hPages},
	}[s.failing]
	if op.Kind != faultengine.Write || !slices.Contains(tables, op.Table) || s.tenant != "" &&
		!slices.Contains(op.Batch.Partition, engine.Text(s.tenant)) {
		return faultengine.Pass()
	}
	return faultengine.Fail(nil)
}

// importUnrolled imports ten samples of each job, and returns the error.
func (s *unrolledStore) importUnrolled(tenant string, at time.Time, jobs ...string) error {
	var list []ImportedSeries
	for _, job := range jobs {
		samples := &chunk.Samples{}
		for _, x := range every(at, time.Minute, 10) {
			samples.AppendFloat(x.t, 0, x.v)
		}
		list = append(list, ImportedSeries{jobLabels(job), samples})
	}
	_, err := s.Import(s.t.Context(), tenant, list)
	return err
}

// countRaw counts the visible raw samples of a tenant by job.
func (s *unrolledStore) countRaw(tenant string) map[string]int {
	counts := map[string]int{}
	for name, list := range s.all(tenant) {
		for _, job := range []string{"web", "ci"} {
			if name == jobLabels(job).String() {
				counts[job] = len(list)
			}
		}
	}
	return counts
}

// countAnswered counts the samples of a tenant's job as a query for samples does: raw samples, and the buckets of older
// times.
func (s *unrolledStore) countAnswered(tenant, job string) int {
	q := query.Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: []*labels.Matcher{equal("job", job)},
	}
	boundaries, err := s.BoundariesOf(s.t.Context(), q)
	require.NoError(s.t, err)
	n := s.countRaw(tenant)[job]
	for _, older := range query.OlderQueries(q, boundaries, rollup.ColumnCount) {
		list, err := s.Select(s.t.Context(), older)
		require.NoError(s.t, err)
		for _, series := range list {
			var b rollup.Buckets
			require.NoError(s.t, series.Buckets(&b, &query.BucketBuffers{}))
			for _, count := range b.Count {
				n += int(count)
			}
		}
	}
	return n
}

// TestHiddenOnlyWithRollups lowers the retention below samples whose rollups can't be computed. Until the rollups
// exist, the raw samples must be visible, and afterwards the rollups. Every answer must contain each sample once.
func TestHiddenOnlyWithRollups(t *testing.T) {
	t.Parallel()
	ages := map[string]time.Duration{ // 10 days before 12:00, samples of a day are hidden gradually.
		"the whole window is hidden": 15 * day, "the window is hidden gradually": 10*day + 2*time.Hour,
	}
	for when, age := range ages {
		for _, failing := range rollup.Resolutions {
			for _, kept5m := range []time.Duration{365 * day, 10 * day} {
				for _, expiring := range []bool{false, true} {
					name := fmt.Sprintf("%s/%s fails/5m kept for %s/expiring=%t", when, failing, kept5m, expiring)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						requireHiddenOnlyWithRollups(t, age, failing, kept5m, expiring)
					})
				}
			}
		}
	}
}

func requireHiddenOnlyWithRollups(
	t *testing.T, age time.Duration, failing rollup.Resolution, kept5m time.Duration, expiring bool,
) {
	s := openUnrolled(t, expiring, func(o *Options) { o.Retention = 30 * day })
	all := map[string]int{"web": 10}
	check := func(raw map[string]int) {
		t.Helper()
		require.Equal(t, raw, s.countRaw("default"), "raw samples")
		require.Equal(t, 10, s.countAnswered("default", "web"), "samples, or buckets of older times")
		require.Equal(t, all, s.bucketsOf("default", rollup.OneHour), "1h buckets")
		if kept5m > age {
			require.Equal(t, all, s.bucketsOf("default", rollup.FiveMinutes), "5m buckets")
		}
	}
	s.failing = failing
	require.ErrorIs(t, s.importUnrolled("default", s.now.Add(-age), "web"), faultengine.ErrFault)
	check(all)
	s.opts.Retention, s.opts.Retention5m = 10*day, kept5m
	s.opensAgain()
	for range 2 { // Expire tries again each time.
		_, err := s.Expire(t.Context())
		require.ErrorIs(t, err, faultengine.ErrFault)
		check(all)
	}
	s.failing = rollup.Raw
	for range 2 {
		_, err := s.Expire(t.Context())
		require.NoError(t, err)
		check(map[string]int{})
	}
	s.opts.Retention, s.opts.Retention5m = 30*day, 365*day
	s.opensAgain()
	_, err := s.Expire(t.Context())
	require.NoError(t, err)
	check(all)
}

// TestHiddenOnlyWithRollupsOfTheTenant lowers the retention of a class, while the rollups of one of two tenants can't
// be computed. The other tenant's samples of the class must be hidden, but no samples of the default class.
func TestHiddenOnlyWithRollupsOfTheTenant(t *testing.T) {
	t.Parallel()
	keep := retention.Durations{Raw: 30 * day, FiveMinutes: 365 * day, OneHour: 365 * day}
	s := openUnrolled(t, false, func(o *Options) {
		o.Retention, o.AddClasses = 30*day, true
		o.Classes = []retention.Class{classOfJob("ci", "ci", keep)}
	})
	at := s.now.Add(-15 * day)
	s.failing, s.tenant = rollup.FiveMinutes, "failing"
	require.ErrorIs(t, s.importUnrolled("failing", at, "web", "ci"), faultengine.ErrFault)
	require.NoError(t, s.importUnrolled("other", at, "web", "ci"))
	keep.Raw = 10 * day
	s.opts.Classes = []retention.Class{classOfJob("ci", "ci", keep)}
	s.opensAgain()
	check := func(tenant string, raw map[string]int) {
		t.Helper()
		require.Equal(t, raw, s.countRaw(tenant), tenant)
		for _, job := range []string{"web", "ci"} {
			require.Equal(t, 10, s.countAnswered(tenant, job), "%s of %s", job, tenant)
		}
		for _, res := range rollup.Resolutions {
			require.Equal(t, map[string]int{"web": 10, "ci": 10}, s.bucketsOf(tenant, res), "%s of %s", res, tenant)
		}
	}
	_, err := s.Expire(t.Context())
	require.ErrorIs(t, err, faultengine.ErrFault)
	check("failing", map[string]int{"web": 10, "ci": 10})
	check("other", map[string]int{"web": 10})
	s.failing = rollup.Raw
	_, err = s.Expire(t.Context())
	require.NoError(t, err)
	check("failing", map[string]int{"web": 10})
	check("other", map[string]int{"web": 10})
}

// TestUnsealedSamplesPastTheRetention writes samples that pass the raw retention before they are sealed. Answers must
// contain them until the week has passed after which raw rows are dropped, and again once they are sealed.
func TestUnsealedSamplesPastTheRetention(t *testing.T) {
	t.Parallel()
	for _, expiring := range []bool{false, true} {
		for _, sealed := range []bool{false, true} {
			t.Run(fmt.Sprintf("expiring=%t/with sealed samples=%t", expiring, sealed), func(t *testing.T) {
				t.Parallel()
				s := openUnrolled(t, expiring, func(o *Options) { o.Retention = day })
				want := 10
				if sealed {
					want = 20
					require.NoError(t, s.importUnrolled("default", s.now.Add(-day+2*time.Hour), "web"))
				}
				s.write("default", jobLabels("web"), every(s.now.Add(-day+5*time.Minute), time.Minute, 10)...)
				require.Equal(t, want, s.countAnswered("default", "web"))
				for passed, next := range []time.Duration{6 * time.Minute, time.Hour, 3 * time.Hour, day, day, 3 * day} {
					s.now = s.now.Add(next)
					require.Equal(t, want, s.countAnswered("default", "web"), "step %d", passed)
					_, err := s.Expire(t.Context())
					require.NoError(t, err)
					require.Equal(t, want, s.countAnswered("default", "web"), "step %d, after Expire", passed)
				}
				require.NoError(t, s.SealAll(t.Context()))
				require.Equal(t, want, s.countAnswered("default", "web"))
			})
		}
	}
}
