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

// TestMain fails if a test leaves a goroutine behind. It makes the garbage collector run less often: histories allocate
// much short-lived memory and then use a fifth less CPU. It limits the memory, because pools retain closed stores until
// the second collection, so that each collection would otherwise come later than the previous one. Benchmarks run with
// the default settings.
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
