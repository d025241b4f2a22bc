package storage

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// damagedTable is an engine in which all rows of one table become unreadable when it is damaged.
type damagedTable struct {
	engine.Engine
	table *engine.Table // nil while no table is damaged
}

// Scan implements engine.Engine.
func (d *damagedTable) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if r.Table != d.table {
		return d.Engine.Scan(ctx, r)
	}
	return func(yield func(engine.Row, error) bool) {
		err := fmt.Errorf("%w: table %s", engine.ErrCorrupt, r.Table)
		if r.Damaged == nil {
			yield(engine.Row{}, err)
			return
		}
		r.Damaged(engine.Damage{Err: err})
	}
}

// TestQueriesOfDamagedTables damages each table in turn, before a start or after it. Answers must be complete or have a
// warning. Without the retention boundaries queries must fail. A store must not start without its deletes, settings and
// observed uptime.
func TestQueriesOfDamagedTables(t *testing.T) {
	t.Parallel()
	mem := memory.New()
	ts := openTestStore(t, func(*Options) {})
	ts.closeUnchecked()
	ts.memory = struct{ engine.Engine }{unclosed{mem}}
	ts.open()
	from := ts.now.Add(-27 * time.Hour).Truncate(time.Hour)
	for i := range 4 {
		ls := labels.FromStrings(labels.MetricName, fmt.Sprint("m", i%2), "i", fmt.Sprint(i))
		ts.write("default", ls, every(from, 5*time.Minute, 12*24)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	deleted := labels.MustNewMatcher(labels.MatchEqual, "i", "3")
	require.NoError(t, ts.Delete(t.Context(), "default", from.UnixMilli(), from.Add(time.Hour).UnixMilli(), deleted))
	require.NoError(t, ts.Store.Close())
	answer := func(table *engine.Table, isEarly bool) string {
		eng := &damagedTable{Engine: unclosed{mem}}
		if isEarly {
			eng.table = table
		}
		o := DefaultOptions()
		o.Now, o.ReadOnly = func() time.Time { return ts.now }, true
		s, err := Open(t.Context(), eng, o)
		if err == nil {
			defer func() { require.NoError(t, s.Close()) }()
			err = s.WaitReady(t.Context())
		}
		if err != nil {
			require.ErrorIs(t, err, engine.ErrCorrupt)
			return "no start"
		}
		eng.table = table
		return damagedAnswer(t, s, from.UnixMilli(), ts.now.UnixMilli())
	}
	whole := answer(nil, false)
	for _, table := range engine.Tables {
		for _, isEarly := range []bool{false, true} {
			got := answer(table, isEarly)
			want := ""
			switch {
			case isEarly && (table == engine.Store || table == engine.Deletes || table == engine.Tenants ||
				table == engine.Processes):
				want = "no start"
			case table == engine.Store:
				want = "an error"
			case !strings.HasPrefix(got, "warned"):
				want = whole
			default:
				continue
			}
			require.Equal(t, want, got, "table %s, before the start: %v", table, isEarly)
		}
	}
}

// damagedAnswer returns the numbers of samples and buckets of all series, "warned" if a warning reports that some are
// missing, or "an error" if the query fails.
func damagedAnswer(t *testing.T, s *Store, from, to int64) string {
	q := query.Query{Tenant: "default", MinT: from, MaxT: to, Columns: rollup.AllColumns,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")}}
	warned, text := false, ""
	q.Warn = func(error) { warned = true }
	for _, q.Resolution = range []rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour} {
		list, err := s.Select(t.Context(), q)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrCorrupt)
			return "an error"
		}
		n := 0
		for _, series := range list {
			var samples chunk.Samples
			var b rollup.Buckets
			var buffers query.BucketBuffers
			if q.Resolution == rollup.Raw {
				require.NoError(t, series.Samples(&samples))
			} else {
				require.NoError(t, series.Buckets(&b, &buffers))
			}
			n += len(samples.T) + len(b.End)
		}
		text += fmt.Sprintf("%d series, %d at %s; ", len(list), n, q.Resolution)
	}
	if warned {
		return "warned"
	}
	return text
}
