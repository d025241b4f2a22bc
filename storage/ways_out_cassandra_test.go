package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
)

// waysLinesOnCassandra bounds a history over a real Cassandra, where each line takes a hundred times as long as in memory.
const waysLinesOnCassandra = 40

// TestWaysOutOnCassandra is TestWaysOutExpiring over a real Cassandra: the beginnings of histories, with a keyspace each. Rows are written with
// the time to live that they would have, but none vanishes: the cluster's own clock moves by less than a minute.
func TestWaysOutOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // it waits for the commit log
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
			if problem != "" { // As it is: cutting it short takes a keyspace each time.
				t.Fatalf("seed %d: %s\n%s", seed, problem, h)
			}
		})
	}
}
