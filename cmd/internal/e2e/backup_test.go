package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestBackupDuringWrites makes multiple backups of a server under load while it seals, and finally kills the server.
// The samples in each restored backup must be identical, bit by bit, to the samples acknowledged before the backup
// started.
func TestBackupDuringWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary under load: leave -short out")
	}
	t.Parallel()
	binary := builtCassia(t)
	home, folder := t.TempDir(), filepath.Join(t.TempDir(), "backups")
	data := filepath.Join(home, "data")
	flags := []string{"--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d", "--no-self-monitoring"}
	program := promrig.Cassia(binary, home, cassiatest.FreeAddress(t), flags...)
	k := newKilled(t, killLoads(t, time.Now())[:2], program)
	k.processes = []*promrig.Process{start(k.ctx, t, program)}
	stopLoads := k.startLoads()
	cassia := func(args ...string) string {
		out, err := exec.CommandContext(k.ctx, binary, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	const backups = 3
	var at [backups]*killed // the samples acknowledged before each backup
	var names []string      // of the backups; two may be made in the same second
	backup := func(url string) {
		out := cassia("backup", "--storage.path="+data, "--to="+folder, "--url="+url)
		t.Log(out)
		name, _, ok := strings.Cut(strings.TrimPrefix(out, "backup "+folder+"/"), ": ")
		require.True(t, ok, out)
		names = append(names, name)
	}
	for i := range at {
		k.live(0)
		for _, l := range k.loads {
			require.Eventually(t, func() bool { return l.acks.Count() > 0 }, cassiatest.ReadyWithin, time.Millisecond,
				"something is acknowledged before")
		}
		at[i] = k.known()
		backup(k.processes[0].URL())
	}
	k.processes[0].Kill()
	stopLoads()
	backup("http://localhost:1") // No server uses the directory.

	left, err := filepath.Glob(filepath.Join(data, "snapshots", "*"))
	require.NoError(t, err)
	require.Empty(t, left, "snapshots take space")
	found, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	require.Len(t, found, backups+1)
	for i, name := range names {
		known := k // The last backup contains all samples.
		if i < backups {
			known = at[i]
		}
		dir := t.TempDir()
		require.Contains(
			t, cassia("restore", "--from="+folder, "--backup="+name, "--storage.path="+filepath.Join(dir, "data")),
			": 0 problems",
		)
		known.processes = []*promrig.Process{
			start(k.ctx, t, promrig.Cassia(binary, dir, cassiatest.FreeAddress(t), flags...)),
		}
		known.verify(0, "restored "+name)
		known.stop(0)
	}
}
