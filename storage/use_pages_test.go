package storage

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/rollup"
)

// pagesRig has processes over one engine.
type pagesRig struct {
	t   *testing.T
	eng engine.Engine
	now time.Time
}

func newPagesRig(t *testing.T) *pagesRig {
	r := &pagesRig{t: t, eng: memory.New(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	t.Cleanup(func() { require.NoError(t, r.eng.Close()) })
	return r
}

// start starts a process.
func (r *pagesRig) start(name string, change func(*Options)) *Store {
	o := DefaultOptions()
	o.Shared, o.Partitions, o.Now = true, 1, func() time.Time { return r.now }
	o.Self = membership.Process{Name: name, Target: "all", Version: "1.5"}
	o.seams.still, o.seams.believing = true, true
	if change != nil {
		change(&o)
	}
	s := openReady(r.t, r.eng, o)
	r.t.Cleanup(func() { require.NoError(r.t, s.Close()) })
	return s
}

// seal writes a sample each of some new series two slots ago and seals them.
func (r *pagesRig) seal(s *Store, metric string) {
	r.t.Helper()
	at := s.period.SlotStart(s.period.SlotOf(r.now.UnixMilli())-2) + 1
	b := s.NewBatch("ann")
	for i := range 10 {
		x, err := b.Define(nil, labels.FromStrings(labels.MetricName, metric, "i", fmt.Sprint(i)))
		require.NoError(r.t, err)
		require.NoError(r.t, b.Float(x, at, 0, 1))
	}
	require.NoError(r.t, b.Commit(r.t.Context()))
	require.NoError(r.t, s.SealAll(r.t.Context()))
}

// pages counts the rows of a table of pages for a metric, of all windows of raw rows around now.
func (r *pagesRig) pages(s *Store, metric string) (n int) {
	r.t.Helper()
	at := s.period.SlotOf(r.now.UnixMilli()) - 2
	for _, err := range r.eng.Scan(r.t.Context(), engine.Range{
		Table: engine.RawPages, Partition: format.SeriesPartition(s.period.WindowOfSlot(rollup.Raw, at), "ann", metric, 0),
	}) {
		require.NoError(r.t, err)
		n++
	}
	return n
}

// found returns how many series of a metric a process finds with their sample.
func (r *pagesRig) found(s *Store, metric string) (n int) {
	r.t.Helper()
	all, err := s.Select(r.t.Context(), Query{
		Tenant: "ann", MaxT: r.now.UnixMilli(), Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)},
	})
	require.NoError(r.t, err)
	for _, series := range all {
		var samples chunk.Samples
		require.NoError(r.t, series.Samples(&samples))
		n += samples.Len()
	}
	return n
}

// setFormat makes the store one of an earlier release.
func (r *pagesRig) setFormat(to int) {
	r.t.Helper()
	require.NoError(r.t, changeSettings(r.t.Context(), r.eng, func(have *settings) bool {
		changed := have.Format != to
		have.Format = to
		return changed
	}))
}

// beatOfEarlier writes what a process of an earlier release does at a beat, and its statement, if any.
func (r *pagesRig) beatOfEarlier(beat int64, statement string) {
	r.t.Helper()
	process, err := json.Marshal(membership.Process{Name: "host7:9201", Target: "all", Version: "1.4", Beat: beat})
	require.NoError(r.t, err)
	for list, value := range map[int64]string{0: string(process), 2: statement} {
		if value == "" {
			continue
		}
		require.NoError(r.t, r.eng.Write(r.t.Context(), []engine.Batch{{Table: engine.Processes, Partition: engine.Key{engine.Int(list)}, Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text("an earlier rel. ")}, Timestamp: beat, Value: []byte(value),
		}}}}))
	}
}

func TestNewSharedStoresHavePages(t *testing.T) {
	r := newPagesRig(t)
	one, other := r.start("one", nil), r.start("other", nil)
	require.True(t, one.WritesPages())
	require.False(t, one.Compacts(), "the engine takes Clear, but others write rollups")
	r.seal(one, "up")
	require.Positive(t, r.pages(one, "up"))
	require.Equal(t, 10, r.found(other, "up"))
	have, _, err := readSettings(t.Context(), r.eng)
	require.NoError(t, err)
	require.Equal(t, formatShared, have.Format, "earlier releases refuse it")
}

// A store of an earlier release gets pages when all of its processes read them: not before, and at each of these as soon as it has looked at the settings.
func TestUsePages(t *testing.T) {
	for _, old := range []int{formatFirst, formatClasses, formatFilters} {
		t.Run(fmt.Sprint("format ", old), func(t *testing.T) {
			r := newPagesRig(t)
			r.start("the first", nil)
			r.setFormat(old)
			one, other, looks := r.start("one", nil), r.start("other", nil), r.start("looks", func(o *Options) { o.ReadOnly = true })
			r.seal(one, "rows")
			require.False(t, one.WritesPages())
			require.Zero(t, r.pages(one, "rows"))

			require.ErrorIs(t, looks.UsePages(t.Context()), engine.ErrBadWrite)
			require.NoError(t, one.UsePages(t.Context()))
			require.True(t, one.WritesPages())
			r.seal(one, "pages")
			require.Positive(t, r.pages(one, "pages"))
			require.False(t, other.WritesPages(), "it hasn't looked")
			r.seal(other, "late")
			require.Zero(t, r.pages(one, "late"))
			require.NoError(t, other.refreshPeriods(t.Context()))
			r.seal(other, "later")
			require.Positive(t, r.pages(one, "later"))
			require.NoError(t, looks.refreshPeriods(t.Context()))
			for _, s := range []*Store{one, other, looks} {
				for _, metric := range []string{"rows", "pages", "late", "later"} {
					require.Equal(t, 10, r.found(s, metric), metric)
				}
			}
			require.False(t, looks.WritesPages())
			require.NoError(t, one.UsePages(t.Context()), "again")
		})
	}
}

// While a process of an earlier release uses the store, or may, there are no pages.
func TestUsePagesRefusesEarlierReleases(t *testing.T) {
	r := newPagesRig(t)
	one := r.start("one", nil)
	r.setFormat(formatFirst)
	again := r.start("again", nil)
	for i, statement := range []string{"", `{"all":{"raw_ms":0,"5m_ms":0,"1h_ms":0}}`, "{"} {
		r.beatOfEarlier(int64(i+1), statement)
		err := again.UsePages(t.Context())
		require.ErrorIs(t, err, ErrOthersLackPages)
		require.ErrorContains(t, err, "host7:9201 (616e2065, release 1.4)")
		require.False(t, again.WritesPages())
	}
	r.beatOfEarlier(4, `{"all":{"raw_ms":0,"5m_ms":0,"1h_ms":0},"leaving":true}`)
	require.NoError(t, again.UsePages(t.Context()))
	require.True(t, again.WritesPages())
	require.NoError(t, one.refreshPeriods(t.Context()))
}

// A process of an earlier release that comes while the settings are changed is named: pages are written by then.
func TestUsePagesNamesWhoCameMeanwhile(t *testing.T) {
	r := newPagesRig(t)
	r.start("the first", nil)
	r.setFormat(formatFirst)
	came := true // not before the settings are changed
	inner := r.eng
	r.eng = faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.CompareAndSet && op.Table == engine.Store && !came {
			came = true
			(&pagesRig{t: t, eng: inner}).beatOfEarlier(1, "")
		}
		return faultengine.Pass()
	})
	one := r.start("one", nil)
	came = false
	err := one.UsePages(t.Context())
	require.ErrorIs(t, err, ErrOthersLackPages)
	require.ErrorContains(t, err, "pages are enabled now, but a process that started concurrently may not support them; stop it")
	require.True(t, one.WritesPages())
}
