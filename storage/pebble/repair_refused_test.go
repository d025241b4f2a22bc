package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestRefusedRepairsChangeNothing checks that a directory of another program or version isn't repaired, even if one of
// its files is damaged.
func TestRefusedRepairsChangeNothing(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		is      error
	}{
		"a newer SYNCED": {withHeader(func(h *ledgerHeader) { h.Version++ }), errBadFormat},
		"a newer format": {withHeader(func(h *ledgerHeader) { h.Format = "2" }), errBadFormat},
		"a newer Pebble": {withFile("marker.format-version.000099.999"), errBadFormat},
		"a Prometheus":   {withFile("wal/00000000"), errForeign},
		"a restore":      {withFile(restoring + "/x"), errUnfinishedRestore},
		"a backup":       {withFile(backupList), errIsBackup},
		"another's Pebble": {func(t *testing.T, dir string) {
			require.NoError(t, errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)))
			db, err := pebbledb.Open(dir, &pebbledb.Options{Logger: &logger{log: DefaultOptions().Logger}})
			require.NoError(t, err)
			require.NoError(t, errors.Join(db.Close(), os.Remove(filepath.Join(dir, lockName))))
		}, errForeign},
		"logs": {func(t *testing.T, dir string) {
			require.NoError(t, errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)))
			withFile("syslog.log")(t, dir)
		}, ErrNoData},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir, _ := killedDirectory(t, false)
			c.prepare(t, dir)
			options, err := filepath.Glob(filepath.Join(dir, "OPTIONS-*"))
			require.NoError(t, err)
			if c.is != errForeign && len(options) > 0 {
				require.NoError(t, os.Remove(options[0]))
			}
			before := snapshotOf(t, dir)
			_, err = Repair(ctx, noSpares, dir, true)
			require.ErrorIs(t, err, c.is)
			require.Equal(t, before, snapshotOf(t, dir))
		})
	}
}

// TestDamagedNameOfMerger checks that an options file with a damaged name of the merge operator is reported as damaged,
// not as another program's file.
func TestDamagedNameOfMerger(t *testing.T) {
	t.Parallel()
	dir, rows := killedDirectory(t, false)
	options, err := filepath.Glob(filepath.Join(dir, "OPTIONS-*"))
	require.NoError(t, err)
	text, err := os.ReadFile(options[0])
	require.NoError(t, err)
	damaged := bytes.Replace(text, []byte("merger="), []byte("merger=x"), 1)
	require.NotEqual(t, text, damaged)
	require.NoError(t, os.WriteFile(options[0], damaged[:len(text)], 0o600))
	_, err = Open(dir, DefaultOptions())
	require.ErrorIs(t, err, engine.ErrCorrupt)
	_, err = Repair(ctx, noSpares, dir, false)
	require.NoError(t, err)
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.Equal(t, rows, stageRows(t, e))
	require.NoError(t, e.Close())
}

// withdrawNote withdraws the note of a killed store, as happens on a full disk.
func withdrawNote(t *testing.T, dir string) {
	path := filepath.Join(dir, ledgerName)
	require.NoError(t, os.Rename(path, path+withdrawnSuffix))
}

// TestMendWithWithdrawnNote checks that a repair uses a withdrawn note to verify files, as a start does. A repair that
// writes the note again moves the withdrawn one aside.
func TestMendWithWithdrawnNote(t *testing.T) {
	t.Parallel()
	dir, rows := killedDirectory(t, false)
	withdrawNote(t, dir)
	options, err := filepath.Glob(filepath.Join(dir, "OPTIONS-*"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(options[0], 0))
	stats, err := Repair(ctx, noSpares, dir, false)
	require.NoError(t, err)
	require.Empty(t, stats.Left)
	require.FileExists(t, filepath.Join(dir, ledgerName))
	require.NoFileExists(t, filepath.Join(dir, ledgerName+withdrawnSuffix))
	require.FileExists(t, filepath.Join(dir, asideFolder, ledgerName+withdrawnSuffix))
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.Equal(t, rows, stageRows(t, e))
	require.NoError(t, e.Close())
}

// TestLogMissingWithWithdrawnNote checks that files in a withdrawn note may be missing, except logs with rows that
// aren't in tables.
func TestLogMissingWithWithdrawnNote(t *testing.T) {
	t.Parallel()
	dir, _ := killedDirectory(t, false)
	l, problems := readNote(vfs.Default, dir)
	require.Empty(t, problems)
	require.NoError(t, noteCopyOf(vfs.Default, dir, l.header)) // The note lists the log.
	withdrawNote(t, dir)
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	newest := logs[len(logs)-1]
	require.NoError(t, os.Remove(newest))
	_, err = Open(dir, DefaultOptions())
	require.ErrorIs(t, err, engine.ErrCorrupt)
	require.ErrorContains(t, err, filepath.Base(newest))
	stats, err := Repair(ctx, noSpares, dir, false)
	require.NoError(t, err)
	require.Len(t, stats.Left, 1)
	require.Contains(t, stats.Left[0], filepath.Base(newest))
}

// TestNoteOfManifestBefore checks that a directory can be opened although its note lists an earlier manifest that no
// longer exists. A process that is killed right after it removed the manifest leaves such a note.
func TestNoteOfManifestBefore(t *testing.T) {
	t.Parallel()
	dir, rows := killedDirectory(t, false)
	l, problems := readNote(vfs.Default, dir)
	require.Empty(t, problems)
	list := ledgerText{ledgerHeader: l.header, Files: []noted{{"MANIFEST-000000", 10, "00000000"}}}
	list.Manifest = "MANIFEST-000000"
	for name, w := range l.files {
		list.Files = append(list.Files, noted{name, w.synced, fmt.Sprintf("%08x", w.syncSum)})
	}
	require.NoError(t, writeLedger(vfs.Default, dir, list))
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.Equal(t, rows, stageRows(t, e))
	require.NoError(t, e.Close())
}
