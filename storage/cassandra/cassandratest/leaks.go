package cassandratest

import (
	"time"

	"go.uber.org/goleak"
)

// CheckLeaks waits until all goroutines started by tests have ended. Its error lists the goroutines that still run
// after a time limit. Goroutines of Cassandra's driver end with a delay, and one of them sleeps for some seconds after
// a node comes up, even if its session is closed.
func CheckLeaks(atMost time.Duration) error {
	for began := time.Now(); ; {
		err := goleak.Find(goleak.IgnoreAnyFunction("github.com/gocql/gocql.(*Session).handleNodeUp"))
		if err == nil || time.Since(began) > atMost {
			return err
		}
	}
}
