package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// unreadable is an engine that returns errors for reads of one table, while the table is set.
type unreadable struct {
	engine.Engine
	table atomic.Pointer[engine.Table]
}

func (u *unreadable) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if u.table.Load() != r.Table {
		return u.Engine.Scan(ctx, r)
	}
	return func(yield func(engine.Row, error) bool) {
		err := fmt.Errorf("%w: file 000001.sst", engine.ErrCorrupt)
		if r.Damaged == nil {
			yield(engine.Row{}, err)
			return
		}
		r.Damaged(engine.Damage{Err: err})
	}
}

// Version implements engine.Versioned.
func (u *unreadable) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	return u.Engine.(engine.Versioned).Version(t, partition)
}

func openUnreadableStore(t *testing.T, change func(*Options)) (*testStore, *unreadable) {
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions, ts.opts.seams.still = 1, true
	change(&ts.opts)
	eng := &unreadable{Engine: memory.New()}
	ts.eng = eng
	ts.Store = openReady(t, eng, ts.opts)
	t.Cleanup(ts.close)
	return ts, eng
}

// TestNothingExpiresWhereTenantsCantBeRead checks that code that removes rows returns an error if it can't read all
// rows that it depends on. Rows of a tenant whose name is unreadable must not be dropped together with rows of other
// tenants.
func TestNothingExpiresWhereTenantsCantBeRead(t *testing.T) {
	t.Parallel()
	for _, table := range []*engine.Table{engine.Tenants, engine.Windows} {
		t.Run(table.Name, func(t *testing.T) {
			ts, eng := openUnreadableStore(t, func(o *Options) { o.Retention = 24 * time.Hour })
			at := ts.now.UnixMilli() - format.HourMS
			ts.write("ann", upLabels, sample{at, 1})
			require.NoError(t, ts.SealAll(t.Context()))
			eng.table.Store(table)
			var err error
			for range 60 * 2 {
				var dropped int
				dropped, err = ts.Expire(t.Context())
				require.Zero(t, dropped)
				ts.now = ts.now.Add(12 * time.Hour)
			}
			require.ErrorIs(t, err, engine.ErrCorrupt)
			eng.table.Store(nil)
			require.NotZero(t, ts.passes(ts.now.Add(30*24*time.Hour)))
		})
	}
}

// TestDeleteStaysWhereWindowsCantBeRead checks that a tombstone is kept as long as samples that it hides may exist.
func TestDeleteStaysWhereWindowsCantBeRead(t *testing.T) {
	t.Parallel()
	ts, eng := openUnreadableStore(t, func(*Options) {})
	at := ts.now.UnixMilli() - format.HourMS
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.Delete(t.Context(), "ann", at, at, equal("host", "a")))
	eng.table.Store(engine.Windows)
	require.ErrorIs(t, ts.CleanTombstones(t.Context(), "ann"), engine.ErrCorrupt)
	eng.table.Store(nil)
	require.Empty(t, ts.all("ann"))
	require.NoError(t, ts.CleanTombstones(t.Context(), "ann"))
	require.Empty(t, ts.all("ann"))
}

// TestNothingIsSpreadByAGuess makes a number of shards unreadable. Queries must read all possible shards. Writers must
// not assume a number, because their rows would be in a wrong shard once the number is readable again.
func TestNothingIsSpreadByAGuess(t *testing.T) {
	t.Parallel()
	ts, eng := openUnreadableStore(t, func(*Options) {})
	at := ts.now.UnixMilli() - 3*format.DayMS
	brought := func(v float64, host string) error {
		_, err := ts.Import(t.Context(), "ann", []ImportedSeries{{
			Labels:  labels.FromStrings(labels.MetricName, "up", "host", host),
			Samples: &chunk.Samples{T: []int64{at}, V: []float64{v}},
		}})
		return err
	}
	require.NoError(t, brought(1, "a"))
	want := ts.all("ann")
	require.Len(t, want, 1)

	ts.opensAgain()
	eng.table.Store(engine.Shards)
	require.ErrorIs(t, brought(2, "b"), engine.ErrCorrupt)
	require.Equal(t, want, ts.all("ann"))
	eng.table.Store(nil)
	require.NoError(t, brought(2, "b"))
	ts.opensAgain()
	require.Len(t, ts.all("ann"), 2)
}

// TestGapsBeyondBounds makes more rows unreadable than are recorded. Every answer with missing rows must have a
// warning, including answers from caches.
func TestGapsBeyondBounds(t *testing.T) {
	t.Parallel()
	ts, _ := openUnreadableStore(t, func(*Options) {})
	at := ts.now.UnixMilli() - format.HourMS
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	missing := func(i int) *damage.DamagedRowsError {
		return &damage.DamagedRowsError{
			Table: engine.Catalog, Tenant: "bob", Metric: fmt.Sprint(i), Err: engine.ErrCorrupt, Kept: true,
		}
	}
	for i := 0; ts.damage.Count() == i; i++ { // Repeat until no more damage is recorded.
		ts.damage.Record(missing(i))
	}
	late := missing(-1)
	late.Tenant = "ann"
	ts.damage.Record(late)
	var told []error
	_, err := ts.Select(t.Context(), query.Query{
		Tenant: "ann", MinT: at, MaxT: at, Matchers: []*labels.Matcher{equal("host", "a")},
		Warn: func(err error) { told = append(told, err) },
	})
	require.NoError(t, err)
	require.NotEmpty(t, told)

	// Unreadable stage rows must also cause a warning.
	ts.damage.RecordStaged(
		damage.StagedAt{Slot: ts.period.SlotOf(at), Row: format.StageRow{Writer: "w", Seq: 1}}, format.ErrMalformedBlob,
	)
	told = nil
	_, err = ts.Select(
		t.Context(), query.Query{Tenant: "ann", MinT: at, MaxT: at, Warn: func(err error) { told = append(told, err) }},
	)
	require.NoError(t, err)
	require.ErrorContains(t, errors.Join(told...), "skipped the staged row")
}
