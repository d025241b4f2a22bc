package cassandratest

import (
	"os"
	"testing"
)

// OwnKeyspace returns the name of a keyspace that no other test uses. The code that opens it creates it. After the test
// and its cleanups, it is dropped as by DropKeyspace. If Cassandra is too busy for that, the keyspace is kept and the
// test doesn't fail.
func OwnKeyspace(t testing.TB, hosts []string) string {
	t.Helper()
	name := Keyspace(t)
	t.Cleanup(func() {
		if err := DropKeyspace(hosts, name); err != nil {
			t.Log(err)
		}
	})
	return name
}

// KeepVariable names an environment variable; if it is set, keyspaces stay on the node of docker/cassandra/with-node
// until that is removed with all its data. It is for a node that is used for one run of the tests: dropping a keyspace
// is what costs such a node most, for with each of its tables Cassandra flushes all tables of the node.
const KeepVariable = "CASSANDRA_KEEP"

// DropKeyspace drops a keyspace of tests, if it exists, unless KeepVariable is set.
func DropKeyspace(hosts []string, name string) error {
	if os.Getenv(KeepVariable) != "" && os.Getenv(SharedDirVariable) != "" {
		return nil
	}
	return query(hosts, "DROP KEYSPACE IF EXISTS "+name)
}

// Run runs statements of CQL on the Cassandra that tests share, one after the other.
func Run(t testing.TB, hosts []string, statements ...string) {
	t.Helper()
	if err := query(hosts, statements...); err != nil {
		t.Fatal(err)
	}
}
