package cassandratest

import (
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// dropTimeout is how long a busy node may take to drop a keyspace.
const dropTimeout = time.Minute

// OwnKeyspace returns the name of a keyspace that no other test uses. Whoever opens it creates it; once the test has
// ended, and all that it cleans up by itself, it is dropped.
func OwnKeyspace(t testing.TB, hosts []string) string {
	t.Helper()
	name := Keyspace(t)
	t.Cleanup(func() {
		if err := drop(hosts, name); err != nil {
			t.Errorf("drop keyspace %s: %v", name, err)
		}
	})
	return name
}

func drop(hosts []string, keyspace string) error {
	c := gocql.NewCluster(hosts...)
	c.ProtoVersion, c.NumConns = 4, 1
	c.Timeout, c.ConnectTimeout = dropTimeout, dropTimeout
	session, err := c.CreateSession()
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec()
}
