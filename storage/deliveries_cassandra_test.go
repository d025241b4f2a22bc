package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// TestDeliveriesGiveTheSameBytesOnCassandra delivers to two stores with engines of their own on one keyspace,
// each request to either of them.
func TestDeliveriesGiveTheSameBytesOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra and a minute: leave -short out")
	}
	hosts := cassandratest.Hosts(t)
	co := cassandra.DefaultOptions()
	co.Hosts, co.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	co.Timeout, co.ConnectTimeout = time.Minute, time.Minute // it stands still for seconds on a busy machine
	now := time.Now()                                        // it mustn't be far from the cluster's clock
	const least = 40                                         // a commit takes a few hundredths of a second, which is what the test waits for
	requireSameBytes(t, now, least, func(t *testing.T) (stores []*testStore) {
		for range 2 {
			eng, err := cassandra.Open(t.Context(), co)
			require.NoError(t, err)
			ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: now}
			ts.opts.Partitions, ts.opts.Shared = 2, true
			ts.Store, err = Open(t.Context(), eng, ts.opts)
			require.NoError(t, err)
			require.NoError(t, ts.WaitReady(t.Context()))
			t.Cleanup(func() {
				if ts == stores[0] {
					ts.check()
				}
				require.NoError(t, ts.Store.Close())
				require.NoError(t, eng.Close())
			})
			stores = append(stores, ts)
		}
		return stores
	})
}
