package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

func equal(name, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, name, value)
}

// deleteModel is a store with a plain list of what must be there.
type deleteModel struct {
	*testStore
	r      *rand.Rand
	labels []labels.Labels
	want   map[string]map[int64]float64
}

func newDeleteModel(t *testing.T, change func(*Options)) *deleteModel {
	seed := soak.Seed(t)
	m := &deleteModel{testStore: openTestStore(t, func(o *Options) {
		o.seams.still = true
		if change != nil {
			change(o)
		}
	}), r: rand.New(rand.NewPCG(seed, 0)), want: map[string]map[int64]float64{}}
	for i := range 6 {
		m.labels = append(m.labels, labels.FromStrings(labels.MetricName, []string{"up", "load"}[i%2], "host", fmt.Sprint("h", i)))
	}
	return m
}

// fill writes a sample of each series every step, from so long ago until so long ago.
func (m *deleteModel) fill(from, to, step time.Duration) {
	for _, ls := range m.labels {
		var list []sample
		for ago := from; ago > to; ago -= step {
			list = append(list, sample{m.now.Add(-ago).UnixMilli() + m.r.Int64N(1000), float64(m.r.IntN(100))})
		}
		m.put(ls, list...)
	}
}

func (m *deleteModel) put(ls labels.Labels, list ...sample) {
	m.write("default", ls, list...)
	if m.want[ls.String()] == nil {
		m.want[ls.String()] = map[int64]float64{}
	}
	for _, x := range list {
		old, ok := m.want[ls.String()][x.t]
		if !ok || x.v > old {
			m.want[ls.String()][x.t] = x.v
		}
	}
}

func (m *deleteModel) delete(from, to time.Duration, ms ...*labels.Matcher) {
	m.t.Helper()
	start, end := m.now.Add(-from).UnixMilli(), m.now.Add(-to).UnixMilli()
	require.NoError(m.t, m.Delete(m.t.Context(), "default", start, end, ms...))
	for _, ls := range m.labels {
		if format.MatchesAll(ls, ms) {
			for at := range m.want[ls.String()] {
				if at >= start && at <= end {
					delete(m.want[ls.String()], at)
				}
			}
		}
	}
}

// compare compares samples, and buckets of both resolutions with what the samples make.
func (m *deleteModel) compare(when string) {
	m.t.Helper()
	m.compareRaw(when)
	t, _ := m.t.(*testing.T)
	for range 10 {
		compareBuckets(t, m.testStore, m.r, when)
	}
	m.check()
}

func (m *deleteModel) compareRaw(when string) {
	m.t.Helper()
	want := map[string][]sample{}
	for name, byTime := range m.want {
		for t, v := range byTime {
			want[name] = append(want[name], sample{t, v})
		}
		if want[name] != nil {
			slices.SortFunc(want[name], func(a, b sample) int { return int(a.t - b.t) })
		}
	}
	require.Equal(m.t, want, m.all("default"), when)
}

func (m *deleteModel) openDeletes() int {
	list, err := m.deletesOf(m.t.Context(), "default")
	require.NoError(m.t, err)
	return len(list)
}

func TestDeleteIsVisibleAtOnceAndStays(t *testing.T) {
	t.Parallel()
	m := newDeleteModel(t, nil)
	m.fill(50*time.Hour, 0, 7*time.Minute)
	m.compare("unsealed")
	m.delete(30*time.Hour, 20*time.Hour, equal(labels.MetricName, "up"))
	m.compare("of the stage")
	require.NoError(t, m.SealAll(t.Context()))
	m.compare("sealed")
	m.delete(45*time.Hour, 25*time.Hour, equal("host", "h1"))
	m.delete(10*time.Minute, 0, labels.MustNewMatcher(labels.MatchRegexp, "host", "h[2-4]"))
	m.compare("of what is sealed")
	require.Equal(t, 3, m.openDeletes())
	m.reopen()
	m.compare("after a restart")

	// The same history again, and another, in the deleted range.
	for ago := 44 * time.Hour; ago > 21*time.Hour; ago -= 20 * time.Minute {
		m.put(m.labels[1], sample{m.now.Add(-ago).UnixMilli(), float64(m.r.IntN(100))})
		m.put(m.labels[2], sample{m.now.Add(-ago).UnixMilli(), 5})
	}
	m.compare("written again")
	require.NoError(t, m.SealAll(t.Context()))
	m.compare("written again, sealed")
	require.NoError(t, m.WorkOffDeletes(t.Context(), "default"))
	m.compare("rolled up")
	m.put(m.labels[2], sample{m.now.Add(-26 * time.Hour).UnixMilli(), 7})
	require.NoError(t, m.SealAll(t.Context()))
	m.compare("late")
	m.reopen()
	m.compare("rolled up, after a restart")
	m.delete(26*time.Hour, 24*time.Hour, equal("host", "h2"))
	m.compare("deleted again")
	bytes := m.check().Bytes
	require.NoError(t, m.CleanTombstones(t.Context(), "default"))
	require.Zero(t, m.openDeletes())
	m.compare("clean")
	require.Less(t, m.check().Bytes, bytes, "space is free")
	m.reopen()
	m.compare("clean, after a restart")
	m.fill(40*time.Hour, 22*time.Hour, 11*time.Minute)
	m.compare("written after it was cleaned")
	require.NoError(t, m.SealAll(t.Context()))
	m.compare("written after it was cleaned, sealed")
	m.delete(100*time.Hour, -time.Hour, equal(labels.MetricName, "up"))
	require.NoError(t, m.CleanTombstones(t.Context(), "default"))
	m.compare("all of a metric")
}

// TestWrittenAgainBitForBit deletes sealed samples, and writes the very same ones: their chunk has the same content.
func TestWrittenAgainBitForBit(t *testing.T) {
	for _, clean := range []bool{false, true} {
		m := newDeleteModel(t, nil)
		list := []sample{{m.now.Add(-30 * time.Hour).UnixMilli(), 1}, {m.now.Add(-30*time.Hour).UnixMilli() + 1, 2}}
		for range 3 {
			m.put(m.labels[0], list...)
			require.NoError(t, m.SealAll(t.Context()))
			m.compare("written")
			m.delete(31*time.Hour, 29*time.Hour, equal("host", "h0"))
			m.compare("deleted")
			if clean {
				require.NoError(t, m.CleanTombstones(t.Context(), "default"))
				m.compare("clean")
			}
		}
		m.put(m.labels[0], list...)
		m.compare("written again")
		require.NoError(t, m.SealAll(t.Context()))
		m.compare("written again, sealed")
	}
}

// TestDeleteOfWhatIsOnlyRolledUp deletes where samples are past their retention: buckets go of which all samples are
// deleted.
func TestDeleteOfWhatIsOnlyRolledUp(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	m := newDeleteModel(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 2*day, 30*day, 0 })
	m.fill(30*time.Hour, 0, 7*time.Minute)
	require.NoError(t, m.SealAll(t.Context()))
	begin := time.Date(2026, 4, 30, 8, 0, 0, 0, time.UTC)
	for _, old := range []time.Duration{12 * day, 60 * day} {
		m.passes(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).Add(old))
		for _, res := range rollup.Resolutions {
			before, times := bucketsOf(m.testStore, res)
			if res == rollup.FiveMinutes && old > 30*day {
				require.Empty(t, before["h0"])
				continue
			}
			require.NotEmpty(t, before["h0"])
			start := begin.UnixMilli() + 100
			begin = begin.Add(6 * time.Hour)
			end := start + (5 * time.Hour).Milliseconds() + 200_000
			require.NoError(t, m.Delete(t.Context(), "default", start, end, equal("host", "h0")))
			want := slices.DeleteFunc(slices.Clone(before["h0"]), func(e int64) bool { return times[e][0] >= start && times[e][1] <= end })
			require.NotEqual(t, want, before["h0"])
			check := func(when string) {
				after, _ := bucketsOf(m.testStore, res)
				require.Equal(t, want, after["h0"], when)
				require.Equal(t, before["h1"], after["h1"], when)
				m.check()
			}
			check("deleted")
			require.NoError(t, m.CleanTombstones(t.Context(), "default"))
			require.Zero(t, m.openDeletes())
			check("clean")
			m.reopen()
			check("after a restart")
		}
	}
}

// bucketsOf returns the ends of the buckets of each host, and by them the first and the last time of the samples of h0.
func bucketsOf(ts *testStore, res rollup.Resolution) (ends map[string][]int64, times map[int64][2]int64) {
	found, err := ts.Select(ts.t.Context(), query.Query{Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")}})
	require.NoError(ts.t, err)
	ends, times = map[string][]int64{}, map[int64][2]int64{}
	var b rollup.Buckets
	var buf query.BucketBuffers
	for _, s := range found {
		require.NoError(ts.t, s.Buckets(&b, &buf))
		ends[s.Labels.Get("host")] = append([]int64{}, b.End...)
		for i, end := range b.End {
			if s.Labels.Get("host") == "h0" {
				times[end] = [2]int64{b.FirstT[i], b.LastT[i]}
			}
		}
	}
	return ends, times
}

func TestBadDeletesAreRefused(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.seams.still = true })
	ctx := t.Context()
	require.ErrorIs(t, ts.Delete(ctx, "default", 0, 1), ErrBadDelete)
	require.ErrorIs(t, ts.Delete(ctx, "default", 0, 1, equal("a", string(make([]byte, format.MaxTombstoneBytes)))), ErrBadDelete)
	slow := labels.MustNewMatcher(labels.MatchRegexp, "a", strings.Repeat(".*", maxDeleteSteps))
	require.ErrorContains(t, ts.Delete(ctx, "default", 0, 1, slow), "steps for each character")
	names := labels.MustNewMatcher(labels.MatchRegexp, "a", strings.Repeat(`pod-1\.a|`, maxDeleteSteps))
	require.NoError(t, ts.Delete(ctx, "names", 0, 1, names))
	require.NoError(t, ts.Delete(ctx, "default", 2, 1, equal("a", "b")), "nothing lies there")
	for range maxDeletions {
		require.NoError(t, ts.Delete(ctx, "default", 0, 1, equal("a", "b")))
	}
	require.ErrorIs(t, ts.Delete(ctx, "default", 0, 1, equal("a", "b")), ErrTooManyDeletes)
	require.NoError(t, ts.Delete(ctx, "other", 0, 1, equal("a", "b")), "tenants have deletes of their own")
	require.NoError(t, ts.CleanTombstones(ctx, "default"))
	require.NoError(t, ts.Delete(ctx, "default", 0, 1, equal("a", "b")))
}

func TestExemplarsAreDeleted(t *testing.T) {
	m := newDeleteModel(t, nil)
	at := m.now.Add(-30 * time.Hour).UnixMilli()
	write := func(ts ...int64) {
		b := m.NewBatch("default")
		s, err := b.Define(nil, m.labels[0])
		require.NoError(t, err)
		for _, ts := range ts {
			require.NoError(t, b.Exemplar(s, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", "x"), Value: 1, Ts: ts, HasTs: true}))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	check := func(when string, want ...int64) {
		t.Helper()
		found, err := m.Exemplars(t.Context(), "default", -format.MaxTime, format.MaxTime, []*labels.Matcher{equal("host", "h0")})
		require.NoError(t, err)
		var got []int64
		for _, r := range found {
			for _, e := range r.Exemplars {
				got = append(got, e.Ts)
			}
		}
		require.Equal(t, want, got, when)
		m.check()
	}
	write(at, at+1, at+2)
	check("written", at, at+1, at+2)
	require.NoError(t, m.Delete(t.Context(), "default", at+1, at+1, equal("host", "h0")))
	check("deleted", at, at+2)
	write(at + 1)
	check("written again", at, at+1, at+2)
	require.NoError(t, m.SealAll(t.Context()))
	check("sealed again", at, at+1, at+2)
	require.NoError(t, m.Delete(t.Context(), "default", at+1, at+2, equal("host", "h0")))
	check("deleted again", at)
	require.NoError(t, m.CleanTombstones(t.Context(), "default"))
	check("clean", at)
	write(at+1, at+2)
	require.NoError(t, m.SealAll(t.Context()))
	check("written after it was cleaned", at, at+1, at+2)
}
