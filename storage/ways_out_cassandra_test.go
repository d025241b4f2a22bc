package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
)

// waysLinesOnCassandra is the max number of lines of a history on Cassandra, where each line takes a hundred times as
// long as in memory.
const waysLinesOnCassandra = 40

// TestWaysOutOnCassandra is TestWaysOutExpiring on Cassandra. It runs the first lines of histories, each in its own
// keyspace. Rows are written with their TTLs, but none expires, because the cluster's clock advances by less than a
// minute.
func TestWaysOutOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // It waits for the commit log.
	hosts := cassandratest.Hosts(t)
	for seed := range protocolSeeds(t, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			co := cassandra.DefaultOptions()
			co.Hosts, co.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
			co.Timeout, co.ConnectTimeout = time.Minute, time.Minute
			h := makeWaysHistory(seed, "expiring")
			h = h[:min(len(h), waysLinesOnCassandra)]
			problem := runWaysOver(h, func(now func() time.Time) (engine.Engine, error) {
				co.ClusterTime = now
				return cassandra.Open(t.Context(), co)
			})
			if problem != "" { // The history isn't shortened, because each attempt would need a keyspace.
				t.Fatalf("seed %d: %s\n%s", seed, problem, h)
			}
		})
	}
}
