package storage

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// pausedWriter is the engine of a process that can be paused before it sends its next raw rows.
type pausedWriter struct {
	*cassandra.Engine
	// pause, if set, is called once before raw rows are sent.
	pause   atomic.Pointer[func()]
	longest atomic.Int64 // duration of the longest write
}

// Write implements engine.Engine.
func (e *pausedWriter) Write(ctx context.Context, batches []engine.Batch) error {
	for i := range batches {
		if t := batches[i].Table; t != engine.Raw && t != engine.RawPages {
			continue
		}
		if pause := e.pause.Swap(nil); pause != nil {
			(*pause)()
		}
	}
	begun := time.Now()
	err := e.Engine.Write(ctx, batches)
	if took := int64(time.Since(begun)); took > e.longest.Load() {
		e.longest.Store(took)
	}
	return err
}

// TestRowsOfAWindowExpireTogetherOnCassandra is TestRowsOfAWindowExpireTogether on Cassandra. It reads the TTL of every
// row. Two processes with different retentions, whose clocks differ by six hours, write into the same windows. One of
// them is paused for an hour before it sends a write. Rows that expire together must expire within two seconds plus the
// duration of a write.
func TestRowsOfAWindowExpireTogetherOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // It waits for the commit log.
	hosts := cassandratest.Hosts(t)
	keyspace := cassandratest.OwnKeyspace(t, hosts)
	var paused atomic.Int64
	open := func(off, raw time.Duration) (*testStore, *pausedWriter) {
		co := cassandra.DefaultOptions()
		co.Hosts, co.Keyspace = hosts, keyspace
		co.Timeout, co.ConnectTimeout = time.Minute, time.Minute
		co.ClusterTime = func() time.Time { return time.Now().Add(time.Duration(paused.Load())) }
		opened, err := cassandra.Open(t.Context(), co)
		require.NoError(t, err)
		eng := &pausedWriter{Engine: opened}
		ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: time.Now()}
		ts.opts.Partitions, ts.opts.Shared, ts.opts.Retention = 2, true, raw
		ts.opts.Retention5m, ts.opts.Retention1h = 2*raw, 9*raw
		ts.opts.Now = func() time.Time { return time.Now().Add(off) }
		ts.Store = openReady(t, eng, ts.opts)
		t.Cleanup(ts.close)
		return ts, eng
	}
	type lives struct{ from, to time.Time } // the bounds of a row's expiry
	known := map[string]bool{}
	of := map[string][]lives{}
	note := func() {
		t.Helper()
		for _, table := range []*engine.Table{
			engine.Raw, engine.R5m, engine.R1h, engine.RawPages, engine.R5mPages, engine.R1hPages, engine.Sealed,
			engine.Catalog,
		} {
			var fields []string
			for _, f := range append(append([]engine.Field{}, table.Partition...), table.Clustering...) {
				fields = append(fields, `"`+f.Name+`"`)
			}
			before := time.Now().Add(time.Duration(paused.Load()))
			rows := cassandratest.Rows(t, hosts, "SELECT "+strings.Join(fields, ", ")+
				", WRITETIME(data) AS written, TTL(data) AS lives FROM "+keyspace+"."+table.Name)
			after := time.Now().Add(time.Duration(paused.Load()))
			for _, row := range rows {
				ttl, _ := row["lives"].(int)
				delete(row, "lives")
				key := fmt.Sprint(table, row)
				if known[key] {
					continue
				}
				known[key] = true
				if table == engine.Catalog && row["kind"] == int64(format.CatalogCounts) {
					continue
				}
				window, class := row[table.Partition[0].Name], any("shared")
				if table != engine.Sealed && table != engine.Catalog {
					class = row[table.Partition[1].Name]
				}
				group := fmt.Sprint(window, " ", class)
				of[group] = append(
					of[group],
					lives{before.Add(time.Duration(ttl) * time.Second), after.Add(time.Duration(ttl+1) * time.Second)},
				)
			}
		}
	}
	a, engA := open(-3*time.Hour, 10*24*time.Hour)
	at := time.Now().Add(-14 * time.Hour)
	ms := at.UnixMilli()
	series := func(host string) labels.Labels { return labels.FromStrings(labels.MetricName, "m", "host", host) }
	a.write("ann", series("a"), sample{ms, 1})
	require.NoError(t, a.SealAll(t.Context()))
	note()
	b, engB := open(3*time.Hour, 200*24*time.Hour)
	b.write("ann", series("a"), sample{ms + 60_000, 2})
	b.write("ann", series("b"), sample{ms + 60_000, 2})
	pause := func() {
		note() // Rows written earlier are read before time passes.
		paused.Add(int64(time.Hour))
	}
	engB.pause.Store(&pause)
	require.NoError(t, b.SealAll(t.Context()))
	require.Nil(t, engB.pause.Load(), "it wasn't paused")
	note()
	imported := &chunk.Samples{}
	for i := range 5 {
		imported.AppendFloat(ms-int64(i)*60_000, 0, 3)
	}
	_, err := b.Import(t.Context(), "ann", []ImportedSeries{{series("c"), imported}})
	require.NoError(t, err)
	require.NoError(t, a.Delete(t.Context(), "ann", ms-10, ms+10, equal("host", "a")))
	require.NoError(t, a.CleanTombstones(t.Context(), "ann"))
	note()
	slack := 2*time.Second + time.Duration(max(engA.longest.Load(), engB.longest.Load()))
	require.GreaterOrEqual(t, len(of), 6, "raw, 5m and 1h, each of a class and shared")
	for group, list := range of {
		require.Greater(t, len(list), 1, group)
		latest, earliest := list[0].from, list[0].to
		for _, l := range list {
			if l.from.After(latest) {
				latest = l.from
			}
			if l.to.Before(earliest) {
				earliest = l.to
			}
		}
		require.LessOrEqual(
			t, latest.Sub(earliest), slack, "rows of window and class %s expire up to %v apart", group,
			latest.Sub(earliest),
		)
		require.Greater(t, time.Until(earliest), 24*time.Hour, group)
	}
}
