package storage

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// TestMain runs the tests and fails if one of them leaves a goroutine behind. It sets GC percent to 400, because tests
// of histories allocate much short-lived memory; this saves a fifth of their CPU. The memory limit bounds the heap,
// which would otherwise grow with each collection, because sync.Pools retain closed stores until the second collection.
// Benchmarks run with the default settings.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		defaultSeams.pageSeries = 1    // so that histories with few series also have pages
		defaultSeams.spannedSeries = 1 // and use spans
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(min(debug.SetMemoryLimit(-1), 2<<30))
	}
	code := m.Run()
	if err := cassandratest.CheckLeaks(time.Minute); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
