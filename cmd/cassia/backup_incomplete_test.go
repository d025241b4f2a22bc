package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/s3/s3test"
	"github.com/cassia-db/cassia/storage/pebble"
)

// TestIncompleteBackupsAreNotWhole removes a file of the newest backup and truncates a file of the previous one. It
// checks that `backup list` reports both backups as incomplete, and that `backup delete` keeps the only complete
// backup. It also checks that `backup verify` checks all backups even if the file list of one of them is unreadable.
func TestIncompleteBackupsAreNotWhole(t *testing.T) {
	for _, place := range []string{"folder", "bucket"} {
		t.Run(place, func(t *testing.T) {
			to := t.TempDir()
			lists, files := filepath.Join(to, "*", "backup.json"), filepath.Join(to, "*", "MANIFEST-*")
			if place == "bucket" {
				var objects string
				to, objects = bucketForBackups(t, "incomplete")
				lists = filepath.Join(objects, "backups", "*", "*", "*")
				files = filepath.Join(objects, "files", "*", "*", "*")
			}
			cassia := func(status int, args ...string) (stdout, stderr string) {
				t.Helper()
				stdout, stderr, got := runPrinted(t, "", append(args, "--to="+to)...)
				require.Equal(t, status, got, stdout+stderr)
				return stdout, stderr
			}
			dir := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour))
			var list, own []string // per backup: its file list, and a file that no earlier backup contains
			known := map[string]bool{}
			isNew := func(pattern string) (path string) {
				paths, err := filepath.Glob(pattern)
				require.NoError(t, err)
				for _, p := range paths {
					if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Size() > 1 && !known[p] {
						path = p
					}
					known[p] = true
				}
				require.NotEmpty(t, path)
				return path
			}
			for range 3 {
				cassia(0, "backup", "--storage.path="+dir)
				list, own = append(list, isNew(lists)), append(own, isNew(files))
			}
			stored := func() (b []pebble.StoredBackup) {
				out, _ := cassia(0, "backup", "list", "--json")
				require.NoError(t, json.Unmarshal([]byte(out), &b))
				require.Len(t, b, 3)
				return b
			}
			for _, b := range stored() {
				require.Empty(t, b.Incomplete)
			}
			require.NoError(t, os.Truncate(own[1], 1))
			require.NoError(t, os.Remove(own[2]))

			out, _ := cassia(0, "backup", "list")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Regexp(t, ` yes$`, lines[1])
			require.Regexp(t, ` incomplete: 1 file$`, lines[2])
			require.Regexp(t, ` incomplete: 1 file$`, lines[3])
			b := stored()
			require.Empty(t, b[0].Incomplete)
			require.Contains(t, b[1].Incomplete[0], "has 1 of ")
			require.Contains(t, b[2].Incomplete[0], "is missing")

			_, errs := cassia(1, "backup", "delete", b[0].Name)
			require.Contains(t, errs, b[0].Name+" is the newest undamaged backup of store ")
			out, errs = cassia(1, "backup", "verify")
			require.Equal(t, 1, strings.Count(out, " 0 files damaged\n"), out)
			require.Equal(t, 2, strings.Count(out, " 1 file damaged\n"), out)
			require.Contains(t, errs, ": 2 backups damaged; make a new backup, and cassia backup delete these")

			if place == "folder" {
				require.NoError(t, os.Remove(list[1]))
			} else {
				require.NoError(t, os.Truncate(list[1], 1))
			}
			out, errs = cassia(1, "backup", "verify")
			require.Contains(t, out, b[0].Name+": ")
			require.Contains(t, out, b[1].Name+": can't be verified: ")
			require.Contains(t, out, b[2].Name+": ")
			require.Contains(t, errs, ": 2 backups damaged; make a new backup, and cassia backup delete these")
		})
	}
}

// bucketForBackups starts an S3 server. It returns the URL of a prefix for backups, and the folder of its objects.
func bucketForBackups(t *testing.T, prefix string) (to, objects string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an S3 server: leave -short out")
	}
	for _, variable := range s3test.Environment {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	server := s3test.Start(t)
	return s3test.At(server.Address, prefix), filepath.Join(server.BucketDir(), prefix)
}
