package cassandratest

import "testing"

// OwnKeyspace returns the name of a keyspace that no other test uses. Whoever opens it creates it; once the test has
// ended, and all that it cleans up by itself, it is dropped. A Cassandra that is too busy for that fails no test: it keeps
// the keyspace.
func OwnKeyspace(t testing.TB, hosts []string) string {
	t.Helper()
	name := Keyspace(t)
	t.Cleanup(func() {
		if err := query(hosts, "DROP KEYSPACE IF EXISTS "+name); err != nil {
			t.Log(err)
		}
	})
	return name
}

// Run runs statements of CQL on the Cassandra that tests share, one after the other.
func Run(t testing.TB, hosts []string, statements ...string) {
	t.Helper()
	if err := query(hosts, statements...); err != nil {
		t.Fatal(err)
	}
}
