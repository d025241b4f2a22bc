package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestImportOfHistoryThatOnlyHoursCoverOnCassandra imports samples past the retention of 5m rollups into a real
// Cassandra, twice, and again after a delete. The 1h rollups must equal those of a store that retains everything.
func TestImportOfHistoryThatOnlyHoursCoverOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // it waits for the commit log
	hosts := cassandratest.Hosts(t)
	o := cassandra.DefaultOptions()
	o.Hosts, o.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	o.Timeout, o.ConnectTimeout = time.Minute, time.Minute
	eng, err := cassandra.Open(t.Context(), o)
	require.NoError(t, err)
	ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: time.Now()}
	ts.opts.Partitions, ts.opts.Shared, ts.opts.Now = 2, true, time.Now
	hoursOnly(&ts.opts)
	ts.Store = openReady(t, eng, ts.opts)
	t.Cleanup(ts.close)

	list := historyOf(time.Now())[:4]
	all := newOwnRig(t).start(time.Since(clockStart), keeping(0, 0, 0))
	importCopies(t, all.Store, list)
	want := hoursOf(t, all.Store)
	for range 2 {
		require.Equal(t, samplesOf(list), importCopies(t, ts.Store, list).RollupsOnly)
		require.Equal(t, want, hoursOf(t, ts.Store))
	}
	require.Zero(t, bucketCount(t, ts.Store, rollup.FiveMinutes))
	require.NoError(t, ts.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, equal("instance", "h1")))
	require.Zero(t, bucketCount(t, ts.Store, rollup.OneHour, equal("instance", "h1")))
	importCopies(t, ts.Store, list)
	require.Equal(t, want, hoursOf(t, ts.Store), "after a delete, again")
	requireNoProblems(t, ts.Store)
}
