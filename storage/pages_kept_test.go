package storage

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestRetentionDropsPages checks which pages are left after the retention of each class, and after the retention of a
// tenant. The rows of a class must be dropped together with its pages.
func TestRetentionDropsPages(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { withTestClasses(o); usualPages(o) })
	begin := ts.now
	tenants := []string{"usual", "brief"}
	for _, tenant := range tenants {
		for _, job := range []string{"web", "ci", "audit"} {
			for i := range 12 {
				ls := labels.FromStrings(labels.MetricName, "up", "job", job, "host", fmt.Sprint("h", i))
				ts.write(
					tenant, ls, sample{begin.Add(-time.Hour).UnixMilli(), 1},
					sample{begin.Add(-time.Hour).UnixMilli() + 15_000, 2},
				)
			}
		}
	}
	require.NoError(t, ts.SealAll(t.Context()))
	var partitions []pagedPartition
	for _, tenant := range tenants {
		require.Equal(t, [resolutions]int{36, 36, 36}, ts.countEntries(tenant))
		partitions = append(partitions, ts.pagedPartitions(tenant)...)
	}
	// left returns the tenants and classes that have pages, by resolution.
	left := func() (left [resolutions][]string) {
		for _, p := range ts.pagesIn(partitions) {
			left[p.res] = append(left[p.res], fmt.Sprint(p.key[2].Text, " ", p.key[1].Int))
		}
		for res := range left {
			slices.Sort(left[res])
			left[res] = slices.Compact(left[res])
		}
		return left
	}
	everything := []string{"brief 0", "brief 1", "brief 2", "usual 0", "usual 1", "usual 2"}
	for _, step := range []struct {
		days int
		want [resolutions][]string
	}{
		{0, [resolutions][]string{everything, everything, everything}},
		{45, [resolutions][]string{{"brief 2", "usual 2"}, {"brief 2", "usual 0", "usual 2"}, {"brief 1", "brief 2", "usual 0", "usual 1", "usual 2"}}},
		{110, [resolutions][]string{{}, {"brief 2", "usual 2"}, {"brief 2", "usual 0", "usual 2"}}},
		{400, [resolutions][]string{{}, {}, {"brief 2", "usual 2"}}},
	} {
		ts.passes(begin.Add(time.Duration(step.days) * day))
		got := left()
		for res := range got {
			require.ElementsMatch(t, step.want[res], got[res], "after %d days, %s", step.days, rollup.Resolution(res))
		}
		for _, p := range partitions { // Rows are dropped with pages.
			there := slices.Contains(got[p.res], fmt.Sprint(p.key[2].Text, " ", p.key[1].Int))
			rows := 0
			for _, err := range ts.rows.Scan(
				t.Context(), engine.Range{Table: format.TableOf(p.res), Partition: p.key, KeysOnly: true},
			) {
				require.NoError(t, err)
				rows++
			}
			require.Equal(t, there, rows > 0)
		}
		ts.check()
	}
}

// TestTenantsExpireWithPages checks that the pages of a tenant with a shorter retention are dropped first, and that no
// pages are left in windows that are dropped as a whole.
func TestTenantsExpireWithPages(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) {
		usualPages(o)
		o.Retention, o.Retention5m, o.Retention1h = 10*day, 20*day, 40*day
		o.TenantRetention = map[string]retention.Durations{"brief": {Raw: day, FiveMinutes: 2 * day, OneHour: 3 * day}}
	})
	begin := ts.now
	var partitions []pagedPartition
	for _, tenant := range []string{"usual", "brief"} {
		for i := range 20 {
			ts.write(
				tenant, labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint("h", i)),
				sample{begin.Add(-time.Hour).UnixMilli(), 1},
			)
		}
		require.NoError(t, ts.SealAll(t.Context()))
		partitions = append(partitions, ts.pagedPartitions(tenant)...)
	}
	of := func() map[string]int {
		n := map[string]int{}
		for _, p := range ts.pagesIn(partitions) {
			n[p.key[2].Text]++
		}
		return n
	}
	before := of()
	require.Positive(t, before["usual"])
	require.Equal(t, before["usual"], before["brief"])
	ts.passes(begin.Add(16 * day))
	require.Zero(t, ts.countEntries("brief")[rollup.Raw])
	require.Positive(t, ts.countEntries("usual")[rollup.Raw])
	ts.passes(begin.Add(150 * day))
	require.Empty(t, of())
	require.Empty(t, ts.pagedPartitions("usual"))
}

// TestRowsAndPagesInOneStore writes a store with rows only and with pages in turn, including late samples and deletes.
// The answers must equal the model, and no deleted sample may be left in a page.
func TestRowsAndPagesInOneStore(t *testing.T) {
	t.Parallel()
	for _, seams := range [][]int{{math.MaxInt, 0}, {0, math.MaxInt}, {math.MaxInt, 0, math.MaxInt, 1}} {
		m := newPagedModel(t, 20, func(o *Options) { o.seams.pageSeries = seams[0] })
		for i, least := range seams {
			if i > 0 {
				m.opts.seams.pageSeries = least
				m.reopen()
				m.compare("opened")
			}
			// These samples are late from the second round on.
			m.some("0123", float64(10*i), deletedAgo, deletedAgo+time.Duration(i)*time.Second)
			m.some("012", 3, 5*time.Hour+time.Duration(i)*time.Minute)
			m.some("0", deletedValue, 26*time.Hour-time.Duration(i)*time.Second)
			m.compare("staged")
			require.NoError(t, m.SealAll(t.Context()))
			m.compare("sealed")
			n := m.countEntries("default")
			require.Equal(t, slices.Min(seams[:i+1]) != math.MaxInt, n[rollup.Raw] > 0)
			m.delete(10*time.Hour, 8*time.Hour, equal("group", fmt.Sprint(i)))
			m.compare("deleted")
			if i%2 == 1 {
				require.NoError(t, m.CleanTombstones(t.Context(), "default"))
				m.compare("clean")
			}
		}
		m.delete(27*time.Hour, 25*time.Hour, equal("group", "0"))
		require.NoError(t, m.CleanTombstones(t.Context(), "default"))
		require.Zero(t, m.openDeletes())
		m.requireNoneDeleted("default", "clean")
		m.compare("clean")
	}
}

// TestLateSamplesBesidePages seals slots repeatedly, in processes that have cached the labels that they wrote, and in
// other processes. The rollup with the highest version wins, whether it is in a row or a page: the rollups must equal
// the rollups of the raw samples.
func TestLateSamplesBesidePages(t *testing.T) {
	t.Parallel()
	m := newPagedModel(t, 20, nil)
	entries := [resolutions]int{}
	for round := range 6 {
		groups := []string{"0123", "01", "23", "0123", "1", "0123"}[round]
		m.some(
			groups, float64(m.r.IntN(100)), deletedAgo+time.Duration(round)*17*time.Second,
			5*time.Hour+time.Duration(m.r.IntN(3600))*time.Second,
		)
		require.NoError(t, m.SealAll(t.Context()))
		m.compare("sealed")
		if round%2 == 1 {
			m.reopen()
			m.compare("started")
		}
		now := m.countEntries("default")
		for res := range now {
			require.GreaterOrEqual(t, now[res], entries[res])
		}
		entries = now
	}
	require.Greater(t, entries[rollup.FiveMinutes], 2*len(m.labels), "of two slots, some rollups are in several pages")
	m.rollupsAre(t)
}

// rollupsAre compares all rollups with rollups computed from the samples.
func (m *deleteModel) rollupsAre(t *testing.T) {
	all := m.all("default")
	for _, res := range rollup.Resolutions {
		found, err := m.Select(t.Context(), query.Query{
			Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
		})
		require.NoError(t, err)
		require.Len(t, found, len(all))
		for _, s := range found {
			var got, want rollup.Buckets
			var buf query.BucketBuffers
			require.NoError(t, s.Buckets(&got, &buf))
			var samples chunk.Samples
			for _, x := range all[s.Labels.String()] {
				samples.AppendFloat(x.t, 0, x.v)
			}
			rollup.AppendEvery(&want, &samples, res.Width())
			require.Equal(t, want.End, got.End)
			require.Equal(t, want.Count, got.Count)
			require.Equal(t, want.Max, got.Max)
			require.Equal(t, want.Last, got.Last)
		}
	}
}

// imported returns a history of the model's series. Series of group 1 have the deleted value, and other series another
// value.
func (m *deleteModel) imported(times ...time.Duration) (list []ImportedSeries) {
	for _, ls := range m.labels {
		value := 2.0
		if ls.Get("group") == "1" {
			value = deletedValue
		}
		samples := &chunk.Samples{}
		for _, ago := range times {
			samples.AppendFloat(m.now.Add(-ago).UnixMilli(), 0, value)
		}
		list = append(list, ImportedSeries{ls, samples})
	}
	return list
}

// TestImportBesidePages imports a history into days with pages, imports a part of it again, and deletes a part of it.
// The answers must equal the model, and rollups must equal the rollups of the samples.
func TestImportBesidePages(t *testing.T) {
	t.Parallel()
	m := newPagedModel(t, 20, nil)
	m.some("0123", 3, deletedAgo, 5*time.Hour)
	require.NoError(t, m.SealAll(t.Context()))
	for i := range 3 {
		list := m.imported(
			deletedAgo+time.Minute+time.Duration(i/2)*time.Second, 5*time.Hour-time.Duration(i+1)*time.Minute,
		)
		for _, s := range list {
			for j, at := range s.Samples.T {
				m.want[s.Labels.String()][at] = s.Samples.V[j]
			}
		}
		_, err := m.Import(t.Context(), "default", list)
		require.NoError(t, err)
		m.compare("imported")
		m.reopen()
		m.rollupsAre(t)
	}
	m.delete(10*time.Hour, 4*time.Hour, equal("group", "1"))
	require.NoError(t, m.CleanTombstones(t.Context(), "default"))
	require.Zero(t, m.openDeletes())
	m.compare("clean")
	m.requireNoneDeleted("default", "clean")
}

// TestDeleteOfPagesOfRollupsAlone deletes samples that are only stored as rollups in pages. The buckets of the deleted
// series must be removed from the pages, and the other buckets must be kept.
func TestDeleteOfPagesOfRollupsAlone(t *testing.T) {
	t.Parallel()
	m := newPagedModel(t, 20, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 2*day, 30*day, 0 })
	ago := 12*day + 30*time.Minute
	stats, err := m.Import(t.Context(), "default", m.imported(ago))
	require.NoError(t, err)
	require.Equal(t, len(m.labels), stats.RollupsOnly)
	require.Equal(t, [resolutions]bool{false, true, true}, m.hasDeleted("default"))
	before := m.countEntries("default")
	m.delete(13*day, 11*day, equal("group", "1"))
	require.NoError(t, m.CleanTombstones(t.Context(), "default"))
	require.Zero(t, m.openDeletes())
	m.requireNoneDeleted("default", "clean")
	require.Equal(t, [resolutions]int{0, before[1] - 10, before[2] - 10}, m.countEntries("default"))
	m.check()
	for _, res := range rollup.Resolutions {
		found, err := m.Select(t.Context(), query.Query{
			Tenant: "default", MinT: m.now.Add(-13 * day).UnixMilli(), MaxT: m.now.UnixMilli(), Resolution: res,
			Columns:  rollup.AllColumns,
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
		})
		require.NoError(t, err)
		n := 0
		for _, s := range found {
			var b rollup.Buckets
			var buf query.BucketBuffers
			require.NoError(t, s.Buckets(&b, &buf))
			if b.Len() > 0 {
				require.NotEqual(t, "1", s.Labels.Get("group"))
				n++
			}
		}
		require.Equal(t, 30, n)
	}
}
