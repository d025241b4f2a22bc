package cassandratest

import (
	"os"
	"testing"
)

// OwnKeyspace returns the name of a keyspace that no other test uses, for code that creates the keyspace when it opens
// it. DropKeyspace drops it after the test and its cleanups. If Cassandra is too busy for that, the keyspace is kept
// and the test doesn't fail.
func OwnKeyspace(t testing.TB, hosts []string) string {
	t.Helper()
	name := keyspace(t)
	t.Cleanup(func() {
		if err := DropKeyspace(hosts, name); err != nil {
			t.Log(err)
		}
	})
	return name
}

// keepVariable is an environment variable. If it is set, keyspaces aren't dropped on the node of
// docker/cassandra/with-node, which is removed with its data after a run of the tests. Dropping keyspaces would be the
// node's most expensive work, because for each dropped table Cassandra flushes all tables of the node.
const keepVariable = "CASSANDRA_KEEP"

// DropKeyspace drops a keyspace of tests, if it exists, unless keepVariable is set.
func DropKeyspace(hosts []string, name string) error {
	if os.Getenv(keepVariable) != "" && os.Getenv(sharedDirVariable) != "" {
		return nil
	}
	return query(hosts, "DROP KEYSPACE IF EXISTS "+name)
}

// Run runs CQL statements on the Cassandra that tests share, one after the other.
func Run(t testing.TB, hosts []string, statements ...string) {
	t.Helper()
	if err := query(hosts, statements...); err != nil {
		t.Fatal(err)
	}
}
