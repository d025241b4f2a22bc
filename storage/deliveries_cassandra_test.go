package storage

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestDeliveriesGiveTheSameBytesOnCassandra sends each request to one of two stores, which have separate engines on the
// same keyspace. Both stores must return the same bytes for every way of delivery.
func TestDeliveriesGiveTheSameBytesOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra and a minute: leave -short out")
	}
	t.Parallel() // It waits for the commit log.
	hosts := cassandratest.Hosts(t)
	co := cassandra.DefaultOptions()
	co.Hosts, co.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	co.Timeout, co.ConnectTimeout = time.Minute, time.Minute // The node stalls for seconds on a busy machine.
	now := time.Now()                                        // It must be close to the cluster's clock.
	// The number of deliveries is small, because a commit takes some tens of milliseconds.
	const least = 40
	// A commit writes a row per slot, so there are fewer and wider slots than with an engine in this process.
	set := dataSet(rand.New(rand.NewPCG(5, 5)), now, soak.Times(t, 40), 1)
	requireSameBytes(t, set, least, func(t *testing.T) (stores []*testStore) {
		for range 2 {
			eng, err := cassandra.Open(t.Context(), co)
			require.NoError(t, err)
			ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: now}
			ts.opts.Partitions, ts.opts.Slot, ts.opts.Shared = 2, 6*time.Hour, true
			ts.Store = openReady(t, eng, ts.opts)
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
