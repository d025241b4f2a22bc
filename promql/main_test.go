package promql

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

// TestMain makes tests collect garbage less often, up to a memory limit. Generated queries allocate many short-lived
// objects, and take 20% less CPU time this way. Benchmarks run with Go's default settings, as users do.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(min(debug.SetMemoryLimit(-1), 2<<30))
	}
	os.Exit(m.Run())
}
