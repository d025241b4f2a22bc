package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// TestDeletesOnCassandra deletes what two processes have written, and writes it anew, over a real Cassandra.
func TestDeletesOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // it waits for the commit log
	hosts := cassandratest.Hosts(t)
	co := cassandra.DefaultOptions()
	co.Hosts, co.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	co.Timeout, co.ConnectTimeout = time.Minute, time.Minute
	now := time.Now() // It mustn't be far from the cluster's clock.
	open := func() *testStore {
		eng, err := cassandra.Open(t.Context(), co)
		require.NoError(t, err)
		ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: now}
		ts.opts.Partitions, ts.opts.Shared = 2, true
		ts.Store = openReady(t, eng, ts.opts)
		t.Cleanup(ts.close)
		return ts
	}
	a, b := open(), open()
	at := now.Add(-3 * time.Hour).UnixMilli()
	gone := labels.FromStrings(labels.MetricName, "gone", "host", "a")
	kept := labels.FromStrings(labels.MetricName, "kept", "host", "a")
	check := func(when string, of []*testStore, want map[string][]sample) {
		t.Helper()
		for _, ts := range of {
			require.Equal(t, want, ts.all("ann"), when)
		}
	}
	a.write("ann", gone, sample{at, 1})
	a.write("ann", kept, sample{at, 1})
	require.NoError(t, a.SealAll(t.Context()))
	b.write("ann", gone, sample{at + 1, 2})
	b.write("ann", kept, sample{at + 1, 2})
	require.NoError(t, a.Delete(t.Context(), "ann", at-10, at+10, equal("__name__", "gone")))
	want := map[string][]sample{kept.String(): {{at, 1}, {at + 1, 2}}}
	check("deleted", []*testStore{a, b}, want)
	b.write("ann", gone, sample{at, 1}, sample{at + 2, 3}) // The first one bit for bit.
	want[gone.String()] = []sample{{at, 1}, {at + 2, 3}}
	check("written anew", []*testStore{a, b}, want)
	require.NoError(t, b.SealAll(t.Context()))
	c := open()
	require.NoError(t, c.SealAll(t.Context()))
	check("sealed", []*testStore{a, b, c}, want)
	require.NoError(t, c.CleanTombstones(t.Context(), "ann"))
	check("clean", []*testStore{a, b, c}, want)
	list, err := c.deletesOf(t.Context(), "ann")
	require.NoError(t, err)
	require.Len(t, list, 1, "it rests for two days")

	// The worked-off rows are noted for all.
	runs := 0
	for partition := range 2 {
		w := Work{Slot: c.period.SlotOf(at), Partition: partition}
		for row, err := range c.eng.Scan(t.Context(), engine.Range{Table: engine.Defined, Partition: format.StagePartition(w.Slot, w.Partition)}) {
			require.NoError(t, err)
			if row.Clustering[1].Int < 0 {
				runs++
			}
		}
	}
	require.GreaterOrEqual(t, runs, 2)
}
