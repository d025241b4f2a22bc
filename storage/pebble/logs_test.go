package pebble

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// usage returns the disk usage of a directory's files in bytes, as du shows it, and the part used by logs.
func usage(t *testing.T, dir string) (all, logs int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if os.IsNotExist(err) {
			return nil
		}
		n := info.Sys().(*syscall.Stat_t).Blocks * 512
		if all += n; isLog(path) {
			logs += n
		}
		return err
	}))
	return all, logs
}

// TestLogsTakeNoMoreThanIsInThem checks that an empty store takes almost no space, and that no log has rows that were
// flushed.
func TestLogsTakeNoMoreThanIsInThem(t *testing.T) {
	dir := t.TempDir()
	o := DefaultOptions()
	o.MemTableBytes = 4 << 20
	e, err := Open(dir, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	all, _ := usage(t, dir)
	require.Less(t, all, int64(2<<20))
	value := string(randomBytes(rand.New(rand.NewPCG(1, 1)), 64<<10))
	write := func(from, n int64) {
		for seq := from; seq < from+n; seq++ {
			batch := stageBatch(0, value)
			batch[0].Mutations[0].Clustering[1] = engine.Int(seq)
			require.NoError(t, e.Write(ctx, batch))
		}
	}
	write(0, 1000) // 64 MB, which need about fifteen logs.
	require.NoError(t, e.db.Flush())
	write(1000, 1)
	require.Eventually(t, func() bool { // Logs are removed in the background.
		_, logs := usage(t, dir)
		return logs <= 2<<20
	}, waitAtMost, pollEvery)
}
