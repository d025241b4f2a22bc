package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// pagesRig runs processes on one engine.
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
	o.seams.still, o.seams.trustsClocks = true, true
	if change != nil {
		change(&o)
	}
	s := openReady(r.t, r.eng, o)
	r.t.Cleanup(func() { require.NoError(r.t, s.Close()) })
	return s
}

// seal writes a sample of each of some new series, two slots before now, and seals them.
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

// pages counts the pages of a metric in the raw window of the slot that seal writes to.
func (r *pagesRig) pages(s *Store, metric string) (n int) {
	r.t.Helper()
	at := s.period.SlotOf(r.now.UnixMilli()) - 2
	for _, err := range r.eng.Scan(r.t.Context(), engine.Range{
		Table:     engine.RawPages,
		Partition: format.SeriesPartition(s.period.WindowOfSlot(rollup.Raw, at), "ann", metric, 0),
	}) {
		require.NoError(r.t, err)
		n++
	}
	return n
}

// found returns the number of series of a metric whose sample a process finds.
func (r *pagesRig) found(s *Store, metric string) (n int) {
	r.t.Helper()
	all, err := s.Select(r.t.Context(), query.Query{
		Tenant: "ann", MaxT: r.now.UnixMilli(),
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)},
	})
	require.NoError(r.t, err)
	for _, series := range all {
		var samples chunk.Samples
		require.NoError(r.t, series.Samples(&samples))
		n += samples.Len()
	}
	return n
}

func TestNewSharedStoresHavePages(t *testing.T) {
	r := newPagesRig(t)
	one, other := r.start("one", nil), r.start("other", nil)
	require.False(t, one.Compacts(), "the engine takes Clear, but others write rollups")
	r.seal(one, "up")
	require.Positive(t, r.pages(one, "up"))
	require.Equal(t, 10, r.found(other, "up"))
}
