package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// stagedDirectory creates a directory with staged samples of a day, in one sorted file.
func stagedDirectory(t *testing.T, now time.Time, series int) (dir, path string) {
	dir = filepath.Join(t.TempDir(), "data")
	po := pebble.DefaultOptions()
	po.BlockBytes = 4 << 10 // Small blocks, because Pebble tries every bit of a damaged block.
	eng, err := pebble.Open(dir, po)
	require.NoError(t, err)
	s := storagetest.Start(t, eng, storagetest.FixedClock(now))
	rng := rand.New(rand.NewPCG(1, 1))
	for m := range series {
		ls := labels.FromStrings("__name__", fmt.Sprintf("metric_%d", m))
		storagetest.Write(t, s, "default", ls, storagetest.Samples(now.UnixMilli(), -60_000, 24*60,
			func(int) float64 { return rng.Float64() })...)
	}
	require.NoError(t, eng.CompactAll(t.Context()))
	require.NoError(t, s.Close())
	require.NoError(t, eng.Close())
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		if path == "" || info.Size() > fileSize(t, path) {
			path = file
		}
	}
	return dir, path
}

func fileSize(t *testing.T, path string) int64 {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// TestDamagedStagedBlock changes one bit in the staged rows of a small and of a large store: doctor names the damage
// and still lists the slots that can be read, and check reports the damage once, however many slots it affects.
func TestDamagedStagedBlock(t *testing.T) {
	now := time.Now().Truncate(time.Hour)
	for _, series := range []int{8, 64} {
		dir, path := stagedDirectory(t, now, series)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, c := range []struct {
			at    int
			slots string // with readable samples
		}{
			{len(whole) / 24, ""}, {len(whole) / 2, ""}, {len(whole) - 3, "0 slots"}, {len(whole) - 1025, ""},
		} {
			at := fmt.Sprintf("%d series, byte %d of %d", series, c.at, len(whole))
			bad := bytes.Clone(whole)
			bad[c.at] ^= 4
			require.NoError(t, os.WriteFile(path, bad, 0o600))

			_, told, err := examineFiles(t, now, "--storage.path="+dir)
			require.Error(t, err, at)
			require.NotContains(t, told, "can't be opened", at)
			require.Contains(t, told, "1 damaged part: file "+filepath.Base(path)+" is damaged", at)
			require.Regexp(t, c.slots+`.* with unsealed samples`, told, at)
			requireNoPebbleNoise(t, told)

			out, errs, status := runPrinted(t, "", "check", "--storage.path="+dir)
			require.Equal(t, 1, status, at)
			require.Contains(t, out, "affected: table stage, ", at)
			require.Equal(t, 2, strings.Count(out, "\n"), "a problem and the totals: %s: %s", at, out)
			require.Contains(t, errs, "cassia restore --damaged", at)
			require.Equal(t, 1, strings.Count(errs, "\n"), "%s: %s", at, errs)
			requireNoPebbleNoise(t, out)
		}
	}
}

func requireNoPebbleNoise(t *testing.T, text string) {
	t.Helper()
	for _, noise := range []string{"000000", "goroutine", "stack trace", "from -", "to -"} {
		require.NotContains(t, text, noise)
	}
}
