package cassandratest

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// hostsVariable is the environment variable with the nodes that Hosts returns, as host:port separated by commas.
const hostsVariable = "CASSANDRA_HOSTS"

// Hosts returns the addresses of the Cassandra nodes that tests share. A test must use its own keyspace there, and must
// not stop the nodes. Hosts skips the test if there are no such nodes.
func Hosts(t testing.TB) []string {
	t.Helper()
	var hosts []string
	for host := range strings.SplitSeq(os.Getenv(hostsVariable), ",") {
		if host = strings.TrimSpace(host); host != "" {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) == 0 {
		t.Skipf("SKIPPED, NO CASSANDRA: run `make test` or `make test-cassandra`, which start one (they need Java 17 "+
			"and Maven), put docker/cassandra/with-node before `go test`, or name one in %s", hostsVariable)
	}
	return hosts
}

// keyspace returns the name of a keyspace that no other test uses. The caller creates it, and drops it afterwards.
func keyspace(t testing.TB) string {
	t.Helper()
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	return "cassia_test_" + hex.EncodeToString(random[:])
}
