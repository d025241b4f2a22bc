package cassiatest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// StoreWith creates a store and returns its directory. The store contains a sample per minute of one series, for the
// given number of hours until now.
func StoreWith(t *testing.T, hours int) string {
	dir := filepath.Join(t.TempDir(), "data")
	eng, err := pebble.Open(dir, pebble.DefaultOptions())
	require.NoError(t, err)
	s := storagetest.Start(t, eng)
	samples := storagetest.Samples(time.Now().UnixMilli(), -60_000, hours*60, func(int) float64 { return 1 })
	storagetest.Write(t, s, "default", labels.FromStrings("__name__", "up", "job", "a"), samples...)
	require.NoError(t, s.Close())
	require.NoError(t, eng.Close())
	return dir
}

// SealedDirectory creates a store with sealed days of some metrics, and returns its directory. Each resolution is
// stored in one large file.
func SealedDirectory(t *testing.T, now time.Time) string {
	dir := filepath.Join(t.TempDir(), "data")
	po := pebble.DefaultOptions()
	po.BlockBytes = 4 << 10 // Use small blocks, because Pebble tries to flip each bit of a damaged block.
	eng, err := pebble.Open(dir, po)
	require.NoError(t, err)
	s := storagetest.Start(t, eng, storagetest.FixedClock(now))
	rng := rand.New(rand.NewPCG(1, 1))
	b := s.NewBatch("default")
	for m := range 8 {
		ls := labels.FromStrings("__name__", fmt.Sprintf("metric_%d", m), "job", fmt.Sprint(m))
		storagetest.Add(t, b, ls, storagetest.Samples(now.UnixMilli(), -60_000, 3*24*60,
			func(int) float64 { return rng.Float64() })...)
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, s.SealAll(t.Context()))
	require.NoError(t, eng.CompactAll(t.Context()))
	require.NoError(t, s.Close())
	require.NoError(t, eng.Close())
	return dir
}

// WriteBlocks writes TSDB blocks with Prometheus' own writer. The blocks contain the given numbers of days and series,
// with a sample per minute. It returns the start of the first block, which is a midnight, and the total number of
// samples.
func WriteBlocks(t *testing.T, dir string, days, series int) (first time.Time, samples int) {
	t.Helper()
	first = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	const perBlock = 10
	for from := 0; from < days; from += perBlock {
		w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 3*perBlock*24*time.Hour.Milliseconds())
		require.NoError(t, err)
		for i := range series {
			app := w.Appender(t.Context())
			ls := labels.FromStrings(labels.MetricName, fmt.Sprint("metric_", i%5), "host", fmt.Sprint("h", i))
			for m := range perBlock * 1440 {
				at := first.AddDate(0, 0, from).Add(time.Duration(m)*time.Minute + time.Duration(i)*time.Second)
				_, err := app.Append(0, ls, at.UnixMilli(), float64(m*i%977))
				require.NoError(t, err)
				samples++
			}
			require.NoError(t, app.Commit())
		}
		_, err = w.Flush(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return first, samples
}

// FilesOf describes the files and folders in a directory by path: permissions, modification times, and hashes of
// contents.
func FilesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%v %v", info.Mode(), info.ModTime())
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", len(b), sha256.Sum256(b))
		}
		files[path] = text
		return nil
	}))
	return files
}
