//go:build unix

package backups

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilesOfRoot checks that files created by root belong to the owner of the directory. Otherwise a server that runs
// as that user couldn't lock and remove them.
func TestFilesOfRoot(t *testing.T) {
	t.Parallel()
	owner := os.Geteuid()
	dir := t.TempDir()
	if owner == 0 {
		owner = 12345
		require.NoError(t, os.Chown(dir, owner, owner))
	}
	snapshots := filepath.Join(dir, "snapshots")
	c, err := ClaimSnapshot(t.Context(), snapshots, "a")
	require.NoError(t, err)
	p := Location{At: filepath.Join(t.TempDir(), "backups")}
	require.NoError(t, p.RecordBackup(snapshots, "a"))
	for _, path := range []string{
		snapshots, snapshots + ".lock", snapshots + rememberedSuffix, filepath.Join(snapshots, "a"+claimSuffix),
	} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.EqualValues(t, owner, info.Sys().(*syscall.Stat_t).Uid, path)
	}
	require.NoError(t, c.Remove())
}
