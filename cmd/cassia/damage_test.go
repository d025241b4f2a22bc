package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// countedSamples returns the number of samples and the warnings. It queries minute by minute, so that rollups aren't
// used.
func countedSamples(t *testing.T, dir string, now time.Time) (n int, told []string) {
	eng, err := pebble.Open(dir, pebble.DefaultOptions())
	require.NoError(t, err)
	defer func() { require.NoError(t, eng.Close()) }()
	s := storagetest.Start(t, eng, storagetest.FixedClock(now))
	defer func() { require.NoError(t, s.Close()) }()
	evaluator := promql.NewEngine(promql.DefaultOptions())
	defer func() { require.NoError(t, evaluator.Close()) }()
	q, err := evaluator.NewInstantQuery(t.Context(), promql.NewQueryable(s),
		promengine.NewPrometheusQueryOpts(false, 0), `sum(count_over_time({__name__=~"metric_.*"}[3d:1m]))`, now)
	require.NoError(t, err)
	defer q.Close()
	r := q.Exec(t.Context())
	require.NoError(t, r.Err)
	for _, err := range r.Warnings.AsErrors() {
		told = append(told, err.Error())
	}
	v, err := r.Vector()
	require.NoError(t, err)
	require.Len(t, v, 1)
	return int(v[0].F), told
}

// TestDamagedDirectory overwrites 64 bytes at seven positions of each large file. Queries return the readable samples
// with a warning, check reports all damage, doctor reports an error, export writes the readable samples and exits with
// status 1, a backup reports the damage and keeps older backups, and restoring a complete backup repairs the directory.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Hour)
	dir, folder := cassiatest.SealedDirectory(t, now), filepath.Join(t.TempDir(), "backups")
	cassia := func(args ...string) (status int, text string) {
		var stderr bytes.Buffer
		status = run(args, &stderr)
		return status, stderr.String()
	}
	status, text := cassia("backup", "--storage.path="+dir, "--to="+folder, "--keep=1")
	require.Zero(t, status, text)
	all, told := countedSamples(t, dir, now)
	require.Equal(t, 8*3*24*60, all)
	require.Empty(t, told)

	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	size := int64(0) // of the largest file
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && info.Size() > size {
			size = info.Size()
		}
	}
	var damaged []string
	for _, name := range files {
		info, err := os.Stat(name)
		require.NoError(t, err)
		if info.Size() < size/4 {
			continue
		}
		damaged = append(damaged, filepath.Base(name))
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		require.NoError(t, err)
		for i := range int64(7) {
			_, err = f.WriteAt(bytes.Repeat([]byte("x"), 64), info.Size()*(i+1)/8)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}

	n, told := countedSamples(t, dir, now)
	require.Less(t, n, all)
	require.Greater(t, n, all/2)
	require.NotEmpty(t, told)
	require.Regexp(t, `metric "metric_\d", tenant "default", from 20..-..-..T..:00:00Z to `, told[0])

	status, text = cassia("check", "--storage.path="+dir)
	require.Equal(t, 1, status)
	require.Regexp(t, `: \d+ problems`, text)
	require.NotContains(t, text, "goroutine", "no stack trace")
	found, text, err := examineFiles(t, now, "--storage.path="+dir)
	require.Error(t, err)
	require.Positive(t, doctor.CountLevel(found, doctor.Error))
	require.Regexp(t, strings.Join(damaged, "|"), text)
	require.Contains(t, text, "cassia restore --damaged")

	exported := filepath.Join(t.TempDir(), "a.csv")
	status, text = cassia("export", "--storage.path="+dir, "--format=csv", "--output="+exported)
	require.Equal(t, 1, status)
	require.Contains(t, text, "skipped")
	lines, err := os.ReadFile(exported)
	require.NoError(t, err)
	require.Greater(t, bytes.Count(lines, []byte("\n")), all/2)

	status, text = cassia("backup", "--storage.path="+dir, "--to="+folder, "--keep=1")
	require.Equal(t, 1, status)
	require.Contains(t, text, "no older backup was removed")
	complete, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	require.Len(t, complete, 2)

	status, text = cassia("restore", "--damaged", "--from="+folder, "--storage.path="+dir)
	require.Zero(t, status, text)
	n, told = countedSamples(t, dir, now)
	require.Equal(t, all, n)
	require.Empty(t, told)
	status, text = cassia("restore", "--from="+folder, "--storage.path="+filepath.Join(t.TempDir(), "data"))
	require.Zero(t, status, "the newest whole one: %s", text)
}

// TestDamagedLog truncates a log to zero bytes. All commands that open the directory fail with one line that names the
// remedy. Without a backup of the log, restore doesn't recommend commands that would fail.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	dir := cassiatest.StoreWith(t, 8)
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(logs[len(logs)-1], 0))
	for _, args := range [][]string{
		{"check"}, {"backup", "--to=" + t.TempDir()},
		{"export", "--format=csv", "--output=" + filepath.Join(t.TempDir(), "a.csv")},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(append(args, "--storage.path="+dir), &stderr), args)
		require.Contains(t, stderr.String(), filepath.Base(logs[len(logs)-1]), args)
		require.Contains(t, stderr.String(), "cassia restore", args)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	}
	found, text, err := examineFiles(t, time.Now(), "--storage.path="+dir)
	require.Error(t, err)
	require.Positive(t, doctor.CountLevel(found, doctor.Error), text)

	var stderr bytes.Buffer
	restore := []string{"restore", "--damaged", "--from=" + t.TempDir(), "--storage.path=" + dir}
	require.Equal(t, 1, run(restore, &stderr))
	require.Contains(t, stderr.String(), "the directory can't be opened without them")
	require.Contains(t, stderr.String(), "--give-up-log")
	require.NotContains(t, stderr.String(), "cassia check")
}
