package e2e

import (
	"testing"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestRealPrometheusOnCassandra runs two processes on one keyspace. Prometheus writes to one of them, and the responses
// of the other are compared with Prometheus'. Either process seals. One protocol of remote write is enough, because
// TestRealPrometheus shows that both protocols result in the same batches.
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
