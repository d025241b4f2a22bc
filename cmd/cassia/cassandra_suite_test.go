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

// TestPrometheusSuiteOnCassandra runs Prometheus' suite on two stores with separate engines on one keyspace: samples
// are written through the first and read through the second. One in eight writes, selected randomly in each run, is
// sealed by either of them before it is read, because sealing takes most of the time here. One in six parts of the
// suite, each with its own samples, runs on Cassandra, the others on an engine in memory; in a soak all run on
// Cassandra.
//
// Slots are as wide and partitions as few as possible: the suite's tenants have few samples each, and the time depends
// on the number of rows.
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
