package e2e

import (
	"testing"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestRealPrometheusOnCassandra has Prometheus write to one process, and compares what another one answers that shares
// its keyspace; either of them seals. Both protocols become the same batches, which TestRealPrometheus shows: here one
// is enough.
func TestRealPrometheusOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real programs for two minutes: leave -short out")
	}
	t.Parallel()
	compareWithPrometheus(t, []bool{true}, func(binary string) []promrig.Program {
		flags := cassiatest.OnCassandra(t)
		return []promrig.Program{
			promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
			promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
		}
	})
}
