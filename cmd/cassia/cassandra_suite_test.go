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

// TestPrometheusSuiteOnCassandra runs Prometheus' test suite on two stores that use one keyspace through separate
// engines: samples are written through one store and read through the other. One in eight writes, selected at random,
// is sealed by one of the stores before its samples are read. Sealing all of them would take too long. Only one in six
// parts of the suite runs on Cassandra, the others run on an engine in memory. A soak test runs all parts on Cassandra.
//
// The stores use the widest slots and the fewest partitions. Each of the suite's tenants has few samples, so narrower
// slots or more partitions would only add rows, on whose number the running time depends.
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
