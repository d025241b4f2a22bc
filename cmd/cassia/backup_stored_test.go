package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/pebble"
)

// TestBackupsAreListedVerifiedAndDeleted checks the output of the commands that list, verify and delete backups, with
// backups of two stores in a folder and in a bucket.
func TestBackupsAreListedVerifiedAndDeleted(t *testing.T) {
	for _, place := range []string{"folder", "bucket"} {
		t.Run(place, func(t *testing.T) {
			to, files := filepath.Join(t.TempDir(), "backups"), ""
			if place == "bucket" {
				to, files = bucketForBackups(t, "stored")
				files = filepath.Join(files, "files", "*", "*", "*")
			}
			cassia := func(status int, args ...string) (stdout, stderr string) {
				t.Helper()
				stdout, stderr, got := runPrinted(t, "", append(args, "--to="+to)...)
				require.Equal(t, status, got, stdout+stderr)
				return stdout, stderr
			}
			if place == "bucket" {
				out, _ := cassia(0, "backup", "list")
				require.Equal(t, "no backups in s3://backups/stored\n", out)
				out, _ = cassia(0, "backup", "list", "--json")
				require.Equal(t, "[]\n", out)
			} else {
				_, errs := cassia(1, "backup", "list")
				require.Contains(t, errs, "no such file or directory")
			}
			dir, other := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour)), cassiatest.StoreWith(t, 1)
			cassia(0, "backup", "--storage.path="+dir)
			cassia(0, "backup", "create", "--storage.path="+dir)
			cassia(0, "backup", "--storage.path="+other)

			out, _ := cassia(0, "backup", "list")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, lines, 4)
			require.Equal(t,
				"NAME TIME FILES SIZE STORE HOST TENANTS VERIFIED", strings.Join(strings.Fields(lines[0]), " "))
			host, err := os.Hostname()
			require.NoError(t, err)
			for i, line := range lines[1:] {
				tenants := "default"
				if i == 2 { // This store has no sealed samples.
					tenants = "-"
				}
				require.Regexp(t, `^\d{8}T\d{6}Z-\w+ +20\S+Z +\d+ +\S+ \S+ +\S+ +`+host+` +`+tenants+` +yes$`, line)
			}
			var listed []pebble.StoredBackup
			out, _ = cassia(0, "backup", "list", "--json")
			require.NoError(t, json.Unmarshal([]byte(out), &listed))
			require.Len(t, listed, 3)
			var names []string
			for _, b := range listed {
				names = append(names, b.Name)
				require.Positive(t, b.Bytes)
			}
			require.Equal(t, []string{"default"}, listed[0].Tenants)
			require.Equal(t, listed[0].Store, listed[1].Store)
			require.NotEqual(t, listed[0].Store, listed[2].Store)

			// The restore fails because the folder has backups of two stores. The error must not report damage.
			var stderr bytes.Buffer
			require.Equal(t, 1,
				run([]string{"restore", "--from=" + to, "--storage.path=" + filepath.Join(t.TempDir(), "x")}, &stderr))
			require.Contains(t, stderr.String(),
				"has backups of 2 stores; choose one with --backup. The newest of each store: "+names[1]+", "+names[2])
			require.NotContains(t, stderr.String(), "damaged")

			out, _ = cassia(0, "backup", "verify")
			for _, name := range names {
				require.Contains(t, out, name+": ")
			}
			require.Equal(t, 3, strings.Count(out, " 0 files damaged\n"), out)

			_, errs := cassia(1, "backup", "delete", names[0], "20260101T000000Z-none")
			require.Contains(t, errs, "no backup named 20260101T000000Z-none; cassia backup list --to=")
			_, errs = cassia(1, "backup", "delete", names[1])
			require.Contains(t, errs,
				names[1]+" is the newest undamaged backup of store "+listed[1].Store+"; set --force to delete it")
			out, _ = cassia(0, "backup", "delete", names[0])
			require.Equal(t, "deleted 1 backup\n", out)
			out, _ = cassia(0, "backup", "delete", "--force", names[1], names[1])
			require.Equal(t, "deleted 1 backup\n", out)
			out, _ = cassia(0, "backup", "list")
			require.Equal(t, 2, strings.Count(out, "\n"), out)
			require.Contains(t, out, names[2])

			if place == "folder" {
				files = filepath.Join(to, names[2], "*.sst")
			}
			damaged, err := filepath.Glob(files)
			require.NoError(t, err)
			damaged = slices.DeleteFunc(damaged, func(path string) bool {
				info, err := os.Stat(path)
				return err != nil || info.IsDir() || info.Size() == 0
			})
			require.NotEmpty(t, damaged)
			for _, path := range damaged {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				text[len(text)/2] ^= 1
				require.NoError(t, os.WriteFile(path, text, 0o600))
			}
			out, errs = cassia(1, "backup", "verify", names[2])
			require.Contains(t, out, "differs from the file")
			require.Contains(t, errs, ": 1 backup damaged; make a new backup")
		})
	}
}

// TestBackupErrorsNameThePlaceOnce checks that the location of the backups isn't repeated in an error that begins with
// it.
func TestBackupErrorsNameThePlaceOnce(t *testing.T) {
	t.Parallel()
	at := &backups.Location{At: "s3://bucket/x?endpoint=http://127.0.0.1:1&region=a"}
	for text, want := range map[string]string{
		"s3://bucket/x at 127.0.0.1:1: no such bucket (NoSuchBucket)": "backup to s3://bucket/x at 127.0.0.1:1: no such bucket (NoSuchBucket)",
		"s3://bucket/x: can't use 127.0.0.1:1: refused":               "backup to s3://bucket/x: can't use 127.0.0.1:1: refused",
		"objects: no such object":                                     "backup to s3://bucket/x: no such object",
		"s3://bucket/xyz: is another":                                 "backup to s3://bucket/x: s3://bucket/xyz: is another",
	} {
		require.EqualError(t, withOperation("backup to "+at.String(), at, errors.New(text)), want)
	}
}
