package main

import (
	"math/rand/v2"
	"testing"
	"time"

	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestPrometheusSuiteOnCassandra runs Prometheus' suite over two stores with engines of their own on one
// keyspace: written through the first, read through the second. Chance decides for each write whether it is
// sealed, by either of them, before it is read: one in eight, other ones in every run, for sealing takes most
// of the time here. Of the suite's parts, each with samples of its own, one in six is on Cassandra, the others are
// over an engine in memory; in a soak all are on Cassandra.
//
// A slot is as wide and partitions are as few as can be: the suite's tenants have a few samples each, and
// what takes time is the number of rows.
func TestPrometheusSuiteOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("some 2,000 queries, a part of them on Cassandra")
	}
	t.Parallel()
	hosts := cassandratest.Hosts(t)
	co := cassandra.DefaultOptions()
	co.Hosts, co.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	var engines []engine.Engine
	for range 2 {
		eng, err := cassandra.Open(t.Context(), co)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, eng.Close()) })
		engines = append(engines, eng)
	}
	daily := func(o *storage.Options) { o.Shared, o.Slot, o.Partitions = true, 24*time.Hour, 1 }
	seed := soak.Seed(t)
	chance := rand.New(rand.NewPCG(seed, 0))
	sealed := func() bool { return chance.IntN(8) == 0 }
	here, there := newSuiteStore(t, sealed, daily, memory.New()), newSuiteStore(t, sealed, daily, engines...)
	parts := 0
	runSuite(t, func(t testing.TB) promstorage.Storage {
		if chance.IntN(6) > 0 && soak.Times(t, 1) == 1 {
			return here.newTenant(t)
		}
		parts++
		return there.newTenant(t)
	})
	require.Greater(t, parts, 10)
	t.Logf("%d parts of the suite were on Cassandra", parts)
}
