package cassandratest

import (
	"time"

	"go.uber.org/goleak"
)

// Leaks waits until no goroutine is left that tests have started, and returns which are after that long. Those of
// Cassandra's driver end when the network lets them, and one of them sleeps for some seconds over the news that a node
// is up, even when its session is closed.
func Leaks(atMost time.Duration) error {
	for began := time.Now(); ; {
		err := goleak.Find(goleak.IgnoreAnyFunction("github.com/gocql/gocql.(*Session).handleNodeUp"))
		if err == nil || time.Since(began) > atMost {
			return err
		}
	}
}
