package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
)

// TestPrometheusSuiteOnCassandra runs Prometheus' suite over two stores with engines of their own on one
// keyspace: written through the first, read through the second, and sealed by either of them.
//
// A slot is as wide and partitions are as few as can be: the suite's tenants have a few samples each, and
// what takes time is the number of rows.
func TestPrometheusSuiteOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("some 2,000 queries, twice: two minutes")
	}
	t.Parallel()
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed=%v", sealed), func(t *testing.T) {
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
			o := storage.DefaultOptions()
			o.Shared, o.Slot, o.Partitions = true, 24*time.Hour, 1
			runSuite(t, newSuiteStore(t, sealed, o, engines...))
		})
	}
}
