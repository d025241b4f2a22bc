package storage

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain makes sure that no test leaves a goroutine behind. Those of Cassandra's driver end when the network lets them,
// and one of them sleeps for some seconds over the news that a node is up, even when its session is closed.
func TestMain(m *testing.M) {
	code := m.Run()
	leaked := func() error {
		return goleak.Find(goleak.IgnoreAnyFunction("github.com/gocql/gocql.(*Session).handleNodeUp"))
	}
	err := leaked()
	for ended := time.Now(); err != nil && time.Since(ended) < time.Minute; {
		err = leaked()
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
