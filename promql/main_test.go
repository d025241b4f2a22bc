package promql

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has the tests collect less often: generated queries allocate much that lives shortly, and take a fifth less CPU
// so, up to a limit. Benchmarks run as users do.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(min(debug.SetMemoryLimit(-1), 2<<30))
	}
	os.Exit(m.Run())
}
