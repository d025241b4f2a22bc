package backups

import (
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/soak"
)

// largestFile returns the largest file that matches a pattern.
func largestFile(t *testing.T, pattern string) string {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	size := func(path string) int {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return int(info.Size())
	}
	return slices.MaxFunc(files, func(a, b string) int { return size(a) - size(b) })
}

// damageFile damages a file by overwriting 64 bytes in its middle.
func damageFile(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("rot ", 16)), info.Size()/2)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestMendFromBucket repairs a directory from a bucket whose server rejects and interrupts some of the requests. The
// newest backup was made from the damaged directory, so the files must be restored from the previous one. The result
// must be identical to the undamaged directory.
func TestMendFromBucket(t *testing.T) {
	needsServer(t)
	server := s3test.Start(t)
	random := rand.New(rand.NewPCG(soak.Seed(t), 0))
	proxy := s3test.NewProxy(t, server.Address, func(int, *http.Request) s3test.Fault {
		if random.IntN(4) == 0 {
			return s3test.Fault(1 + random.IntN(int(s3test.CutResponse)))
		}
		return s3test.NoFault
	})
	x := newStore(t)
	for range 5 {
		x.write()
	}
	for prefix, key := range map[string]string{"plain": "", "encrypted": newKey(t)} {
		p := Location{At: s3test.At(proxy.Address, prefix), KeyFile: key}
		dir := x.makeSnapshot()
		want := hashFiles(t, dir)
		_, err := p.Backup(t.Context(), dir, name(1), time.Now())
		require.NoError(t, err)

		// Damage a copy, because the files of the checkpoint are hard links.
		damaged := filepath.Join(t.TempDir(), "damaged")
		require.NoError(t, os.CopyFS(damaged, os.DirFS(dir)))
		damageFile(t, largestFile(t, filepath.Join(damaged, "*.log")))
		manifest := largestFile(t, filepath.Join(damaged, "MANIFEST-*"))
		require.NoError(t, os.Truncate(manifest, 10))
		stats, err := p.Backup(t.Context(), damaged, name(2), time.Now())
		require.NoError(t, err)
		require.NotEmpty(t, stats.Damaged)

		spares, err := p.SpareBackups(t.Context())
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(damaged, pebble.StoreFile)))
		mended, err := pebble.Repair(t.Context(), spares, damaged, false)
		require.NoError(t, err)
		require.Empty(t, mended.Left)
		require.Len(t, mended.Mended, 2, mended.Mended)
		for _, text := range mended.Mended {
			require.Contains(t, text, "from backup "+name(1))
		}
		got := hashFiles(t, damaged)
		for _, ours := range []string{"SYNCED", "LOCK"} { // A repair rewrites these files.
			delete(got, ours)
			delete(want, ours)
		}
		require.Equal(t, want, got)
		e, err := pebble.Open(damaged, pebble.DefaultOptions())
		require.NoError(t, err)
		require.NoError(t, e.Close())
	}
}
