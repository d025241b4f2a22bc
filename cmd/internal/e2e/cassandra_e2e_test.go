package e2e

import (
	"testing"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestRealPrometheusOnCassandra has Prometheus write to one process, and compares the responses of another process on
// the same keyspace. Either of them seals. It tests only one protocol, because both protocols produce the same batches,
// as TestRealPrometheus shows.
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
