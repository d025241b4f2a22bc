package storage

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// TestCountsOnCassandra has two processes count series over a real Cassandra, and again once samples came late.
func TestCountsOnCassandra(t *testing.T) {
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
	a.writeSeries("ann", 0, 150, 78*time.Hour)
	a.writeSeries("ann", 30, 160, 54*time.Hour)
	require.NoError(t, a.SealAll(t.Context()))
	list := a.uncounted()
	require.Len(t, list, 2)
	require.Equal(t, list, b.uncounted())
	require.Equal(t, 2, a.countWindows())
	_, err := b.Counts().CountWindow(t.Context(), list[0], func() {})
	require.NoError(t, err)
	require.Empty(t, b.uncounted())
	require.Len(t, b.countKeys("ann", list[0].Window), 2)
	require.Len(t, b.countKeys("ann", list[1].Window), 3)
	for _, ts := range []*testStore{a, b} {
		require.Equal(t, 2, ts.requireCounts("ann", rand.New(rand.NewPCG(100, 1))))
		require.EqualValues(
			t, 130, ts.Counts().StoredCounts(t.Context(), "ann", list[1].Window, list[1].Version).Series,
		)
	}

	b.writeSeries("ann", 500, 505, 78*time.Hour)
	require.NoError(t, b.SealAll(t.Context()))
	a.requireCounts("ann", rand.New(rand.NewPCG(100, 2)))
	require.Equal(t, 2, b.countWindows())
	require.Empty(t, a.uncounted())
	require.Len(t, a.countKeys("ann", list[0].Window), 2, "those of the state before are removed")
	require.Len(t, a.countKeys("ann", list[1].Window), 3)
	a.requireCounts("ann", rand.New(rand.NewPCG(100, 3)))
}
