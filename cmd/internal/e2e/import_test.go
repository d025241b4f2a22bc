package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestImportKilled kills the import of a month three times and runs it again each time. After the last run, every
// sample must be stored once, and query results must equal those of the source.
func TestImportKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary on 600,000 samples: leave -short out")
	}
	t.Parallel()
	binary := builtCassia(t)
	dir := t.TempDir()
	blocks, data := filepath.Join(dir, "blocks"), filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(blocks, 0o755))
	first, samples := cassiatest.WriteBlocks(t, blocks, 30, 14)
	args := []string{
		"import", "blocks", "--storage.path=" + data, "--retention.raw=0",
		"--checkpoint=" + filepath.Join(dir, "checkpoint"), blocks,
	}

	out, errs, status := cassiatest.Command(t, binary, append(args, "--dry-run")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, fmt.Sprintf("3 blocks, %s", first.Format(time.DateOnly)))
	require.Contains(t, out, fmt.Sprintf("14 series, %d samples", samples))
	require.NoDirExists(t, data)

	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(100+r.IntN(700))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // It was killed, or finished before that.
		timer.Stop()
	}
	out, errs, status = cassiatest.Command(t, binary, append(args, "--verify")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, fmt.Sprintf("verified %d samples", samples))
	require.Contains(t, out, ": 0 differences")
	out, errs, status = cassiatest.Command(t, binary, "check", "--storage.path="+data)
	require.Zero(t, status, out+errs)
	require.Contains(t, out, fmt.Sprintf("with %d samples", samples))

	// An import must fail while a server uses the directory.
	server := start(t.Context(), t,
		promrig.Cassia(binary, dir, cassiatest.FreeAddress(t), "--retention.raw=0", "--no-self-monitoring"))
	_, errs, status = cassiatest.Command(t, binary, args...)
	require.Equal(t, 1, status)
	require.Contains(t, errs,
		"in use by another process; stop that process, or choose another directory; if that process is Cassia, import through it while it runs: use --url")
	answer, err := promrig.API{URL: server.URL()}.Query(
		t.Context(), `sum(count_over_time({__name__=~"metric_.*"}[40d]))`, time.Now(),
	)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(answer), fmt.Sprint(samples))
	require.NoError(t, server.Terminate(cassiatest.StopWithin))
}
