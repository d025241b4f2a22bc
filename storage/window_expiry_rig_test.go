package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// expiryRig is a clockRig of processes with different retentions, on an engine that expires rows or doesn't.
type expiryRig struct {
	*clockRig
	memory *memory.Engine
}

// newExpiryRig returns a rig whose engine expires rows if expiring is true.
func newExpiryRig(t *testing.T, expiring bool) *expiryRig {
	t.Parallel()
	r := &expiryRig{clockRig: &clockRig{t: t, shared: expiring}, memory: memory.New()}
	r.eng = r.memory
	if expiring {
		r.memory = memory.NewExpiring(r.now)
		r.eng = &expiringClocked{clockedEngine{r.memory, r.now}}
	}
	return r
}

// eachExpiryRig runs a test with an engine that expires rows, and with one that doesn't.
func eachExpiryRig(t *testing.T, test func(t *testing.T, r *expiryRig, expiring bool)) {
	for _, expiring := range []bool{true, false} {
		t.Run(fmt.Sprint("expiring=", expiring), func(t *testing.T) { test(t, newExpiryRig(t, expiring), expiring) })
	}
}

func keeping(raw, fiveMinutes, oneHour time.Duration) func(*Options) {
	return func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = raw, fiveMinutes, oneHour }
}

// passes advances the time. Twice a day each process sends a heartbeat and calls Expire.
func (r *expiryRig) passes(d time.Duration, all ...*clockMachine) {
	r.t.Helper()
	for ; d > 0; d -= 12 * time.Hour {
		r.pass(min(d, 12*time.Hour))
		for _, m := range append(all, all...) {
			if r.shared {
				require.NoError(r.t, m.member.SendHeartbeat(r.t.Context()))
			}
		}
		for _, m := range all {
			_, err := m.Expire(r.t.Context())
			require.NoError(r.t, err)
		}
	}
}

func (m *clockMachine) brings(from time.Time, samples int, every time.Duration) ImportStats {
	m.r.t.Helper()
	s := &chunk.Samples{}
	for i := range samples {
		s.AppendFloat(from.Add(time.Duration(i)*every).UnixMilli(), 0, float64(i))
	}
	stats, err := m.Import(m.r.t.Context(), "t", []ImportedSeries{{labelsOfMetric(), s}})
	require.NoError(m.r.t, err)
	return stats
}

// samplesBetween counts the raw samples that a query for a range of time finds.
func (m *clockMachine) samplesBetween(from, to time.Time) (n int) {
	m.r.t.Helper()
	list, err := m.Select(
		m.r.t.Context(), query.Query{Tenant: "t", MinT: from.UnixMilli(), MaxT: to.UnixMilli(), Matchers: ofMetric()},
	)
	require.NoError(m.r.t, err)
	for i := range list {
		var samples chunk.Samples
		require.NoError(m.r.t, list[i].Samples(&samples))
		n += samples.Len()
	}
	return n
}

// bucketsBetween counts the samples in the buckets of a resolution in a range of time.
func (m *clockMachine) bucketsBetween(res rollup.Resolution, from, to time.Time) (n int) {
	m.r.t.Helper()
	n, _ = m.bucketsAndWarnings(res, from, to)
	return n
}

// bucketsAndWarnings is like bucketsBetween, but also returns the warnings of the query.
func (m *clockMachine) bucketsAndWarnings(res rollup.Resolution, from, to time.Time) (n int, warnings []error) {
	m.r.t.Helper()
	list, err := m.Select(m.r.t.Context(), query.Query{
		Tenant: "t", MinT: from.UnixMilli(), MaxT: to.UnixMilli(), Matchers: ofMetric(), Resolution: res,
		Columns: rollup.AllColumns,
		Warn:    func(err error) { warnings = append(warnings, err) },
	})
	require.NoError(m.r.t, err)
	for i := range list {
		var b rollup.Buckets
		require.NoError(m.r.t, list[i].Buckets(&b, &query.BucketBuffers{}))
		for _, count := range b.Count {
			n += int(count)
		}
	}
	return n, warnings
}

// storedExpiry reads the row of the expiry of a class in a window.
func (s *Store) storedExpiry(
	ctx context.Context, tenant string, class, window int64,
) (expires int64, ok bool, err error) {
	item := engine.Key{
		engine.Text(fmt.Sprintf("%d/%016x/%d", format.ResolutionOf(window), uint64(window)^1<<63, class)),
	}
	for row, err := range s.eng.Scan(
		ctx,
		engine.Range{Table: engine.Store, Partition: engine.Key{engine.Text("expiry/" + tenant)}, From: item, To: item},
	) {
		var value struct{ Expires int64 }
		if err == nil {
			err = json.Unmarshal(row.Value, &value)
		}
		return value.Expires, true, err
	}
	return 0, false, nil
}

// keptFor returns the time between the end of a window and the expiry of its rows.
func (m *clockMachine) keptFor(res rollup.Resolution, at time.Time) time.Duration {
	m.r.t.Helper()
	window := m.period.WindowAt(res, at.UnixMilli())
	expires, ok, err := m.storedExpiry(m.r.t.Context(), "t", retention.DefaultClass, window)
	require.NoError(m.r.t, err)
	require.True(m.r.t, ok)
	return time.Unix(expires, 0).Sub(time.UnixMilli(m.period.WindowEnd(window)))
}

// rowsOf returns the number of rows of a table.
func (r *expiryRig) rowsOf(table *engine.Table) (n int) {
	for _, b := range r.memory.All() {
		if b.Table == table {
			n += len(b.Mutations)
		}
	}
	return n
}

// requireTogether requires the rows of each class in a window to expire at the same time.
func (r *expiryRig) requireTogether() {
	r.t.Helper()
	at, rows := map[string]int64{}, 0
	for _, b := range r.memory.All() {
		if b.Table == engine.Store || b.Table == engine.Stage || b.Expires == 0 {
			continue
		}
		var of string
		switch b.Table {
		case engine.Raw, engine.R5m, engine.R1h, engine.RawPages, engine.R5mPages, engine.R1hPages:
			of = fmt.Sprint(b.Partition[:3])
		case engine.Sealed, engine.Metadata:
			of = fmt.Sprint("shared ", b.Partition[0])
		case engine.Catalog:
			if b.Partition[3].Int != int64(format.CatalogCounts) {
				of = fmt.Sprint("shared ", b.Partition[0])
			}
		}
		if of == "" {
			continue
		}
		rows++
		if was, ok := at[of]; ok {
			require.Equal(r.t, was, b.Expires, "%s of %s", b.Table, of)
		}
		at[of] = b.Expires
	}
	require.Positive(r.t, rows)
}
