package backups

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBackupsBesideTheData checks that a folder in which backups would be mixed with data is rejected, regardless of
// the name by which it is accessed.
func TestBackupsBesideTheData(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	require.NoError(t, os.MkdirAll(at("disk/data/snapshots"), 0o755))
	require.NoError(t, os.MkdirAll(at("backups/20261122T103000Z-1f"), 0o755))
	require.NoError(t, os.WriteFile(at("backups/20261122T103000Z-1f/backup.json"), []byte("{}"), 0o644))
	require.NoError(t, os.Symlink(at("disk/data"), at("link")))
	require.NoError(t, os.Symlink(at("disk"), at("disk-link")))
	require.NoError(t, os.Symlink(at("backups"), at("backups-link")))
	for folder, want := range map[string]string{
		"disk/data": "is the data directory: choose a folder next to it", "link": "is the data directory",
		"disk/../disk/data/": "is the data directory", "disk/data/backups": "is in the data directory",
		"link/snapshots": "is in the data directory", "link/none/none": "is in the data directory",
		"disk": "contains the data directory", "disk-link": "contains the data directory",
		"backups/20261122T103000Z-1f":          "the folder is a backup, or is inside a backup",
		"backups-link/20261122T103000Z-1f/x/y": "the folder is a backup, or is inside a backup", "backups": "",
		"backups-link": "", "disk/data2": "", "disk/dat": "", "none/none": "", "disk/backups": "",
	} {
		for _, dir := range []string{"disk/data", "link", "disk-link/data"} {
			p := Location{At: at(folder)}
			if err := p.CheckBeside(at(dir)); want != "" {
				require.ErrorContains(t, err, want, folder)
			} else {
				require.NoError(t, err, folder)
			}
		}
	}
	p := Location{At: at("disk/new/backups")}
	require.ErrorContains(t, p.CheckBeside(at("disk/new")), "is in the data directory", "which isn't there yet")
	p.At = "s3://bucket"
	require.NoError(t, p.CheckBeside(at("disk/data")))

	for dir, want := range map[string]string{
		"backups":                       "is the backup folder; restore to another directory",
		"backups-link":                  "is the backup folder; restore to another directory",
		"backups/restored":              "is inside the backup folder",
		"backups/20261122T103000Z-1f":   "the folder is a backup, or is inside a backup",
		"backups/20261122T103000Z-1f/x": "the folder is a backup, or is inside a backup",
		".":                             "contains the backup folder", "restored": "", "disk/restored": "",
	} {
		for _, from := range []string{"backups", "backups-link", "s3://bucket"} {
			p := Location{At: from}
			if !p.InBucket() {
				p.At = at(from)
			} else if want != "" && !strings.HasPrefix(want, "it is") {
				continue
			}
			if err := p.CheckRestoreTo(at(dir)); want != "" {
				require.ErrorContains(t, err, want, dir)
				require.ErrorContains(t, err, "restore to another directory")
			} else {
				require.NoError(t, err, dir)
			}
		}
	}
}
