package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
)

// TestMendFromBucket checks that the largest file of a directory can be repaired from a backup in a bucket.
func TestMendFromBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an S3 server: leave -short out")
	}
	for _, variable := range s3test.Environment {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	now := time.Now().Truncate(time.Hour)
	dir, to := cassiatest.SealedDirectory(t, now), s3test.At(s3test.Start(t).Address, "mend")
	cassia := func(args ...string) (status int, text string) {
		var stderr bytes.Buffer
		status = run(append(args, "--storage.path="+dir), &stderr)
		return status, stderr.String()
	}
	status, text := cassia("backup", "--to="+to)
	require.Zero(t, status, text)
	all, told := countedSamples(t, dir, now)
	require.Empty(t, told)

	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	size := func(path string) int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	path := slices.MaxFunc(files, func(a, b string) int { return int(size(a) - size(b)) })
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte("x"), 64), size(path)/2)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	status, text = cassia("backup", "--to="+to)
	require.Equal(t, 1, status)
	require.Contains(t, text,
		"contains the damage; no older backup was removed. Run cassia check to list the missing data, and cassia restore --damaged --from=s3://backups/mend to repair the store from an older backup")

	status, text = cassia("restore", "--damaged", "--from="+strings.Replace(to, "/mend", "/other", 1))
	require.Equal(t, 1, status, "there are no backups")
	require.Contains(t, text, "no backup in s3://backups/other has these files")
	status, text = cassia("restore", "--damaged", "--from="+to)
	require.Zero(t, status, text)
	n, told := countedSamples(t, dir, now)
	require.Equal(t, all, n)
	require.Empty(t, told)

	require.NoError(t, os.Remove(path))
	status, text = cassia("check")
	require.Equal(t, 1, status)
	require.Contains(t, text, "cassia restore --damaged")
	status, text = cassia("restore", "--damaged", "--from="+to)
	require.Zero(t, status, text)
	n, told = countedSamples(t, dir, now)
	require.Equal(t, all, n)
	require.Empty(t, told)
}
