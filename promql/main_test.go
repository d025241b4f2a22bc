package promql

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has the tests collect less often: generated queries allocate much that lives shortly, and take a fifth less CPU
// so. Benchmarks run as users do.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
