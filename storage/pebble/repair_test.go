package pebble

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// overwrite replaces 64 bytes in the middle of the largest file that matches a pattern.
func overwrite(t *testing.T, pattern string) string {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	size := func(path string) int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	path := slices.MaxFunc(files, func(a, b string) int { return int(size(a) - size(b)) })
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("rot ", 16)), size(path)/2)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return path
}

// TestBackupOfDamage checks that a backup of damaged files lists them, supersedes no other backup, isn't restored
// unless it is named, and repairs nothing. The previous backup repairs the directory, and newer rows are kept.
func TestBackupOfDamage(t *testing.T) {
	b := newBackedUp(t)
	for range 3 {
		b.write()
	}
	_, err := b.backup(t.Context(), "a", 1)
	require.NoError(t, err)
	b.write()
	overwrite(t, filepath.Join(b.dir, "*.sst"))

	stats, err := b.backup(t.Context(), "b", 1)
	require.NoError(t, err)
	require.Len(t, stats.Damaged, 1)
	require.Zero(t, stats.Removed, "a whole one isn't given for it")
	require.Equal(t, 3, b.restored(""), "the newest whole one")
	_, err = Repair(t.Context(), Spares(b.folder), b.dir, false)
	require.ErrorIs(t, err, engine.ErrLocked)

	require.NoError(t, b.e.Close())
	mended, err := Repair(t.Context(), Spares(b.folder), b.dir, false)
	require.NoError(t, err)
	require.Len(t, mended.Mended, 1)
	require.Contains(t, mended.Mended[0], "backup a")
	require.Empty(t, mended.Left)
	require.Empty(t, mended.Lost)
	b.e, err = Open(b.dir, DefaultOptions())
	require.NoError(t, err)
	require.Equal(t, 4, stageRows(t, b.e))
	stats, err = b.backup(t.Context(), "c", 1)
	require.NoError(t, err)
	require.Empty(t, stats.Damaged)
	require.Equal(t, 2, stats.Removed, "the damaged one goes with what is older")
	require.Equal(t, 4, b.restored(""))
}

// TestMendWithoutBackup checks that files that no backup has are left unchanged, and reported.
func TestMendWithoutBackup(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	require.NoError(t, b.e.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(b.folder, "a")))
	path := overwrite(t, filepath.Join(b.dir, "*.sst"))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	stats, err := Repair(t.Context(), Spares(b.folder), b.dir, false)
	require.NoError(t, err)
	require.Len(t, stats.Left, 1)
	require.Contains(t, stats.Left[0], filepath.Base(path))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	b.e, err = Open(b.dir, DefaultOptions())
	require.NoError(t, err)
}

// TestMendWithoutManifest checks that nothing else is repaired if the manifest is damaged and no backup has it, because
// without the manifest it is unknown which files belong to the database.
func TestMendWithoutManifest(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	require.NoError(t, b.e.Close())
	require.NoError(t, os.MkdirAll(b.folder, 0o755))
	path := overwrite(t, filepath.Join(b.dir, "MANIFEST-*"))
	for _, giveUp := range []bool{false, true} {
		stats, err := Repair(t.Context(), Spares(b.folder), b.dir, giveUp)
		require.NoError(t, err)
		require.Len(t, stats.Left, 1)
		require.Contains(t, stats.Left[0], filepath.Base(path))
	}
	_, err := Open(b.dir, DefaultOptions())
	require.ErrorIs(t, err, engine.ErrCorrupt)
	b.e, err = Open(filepath.Join(t.TempDir(), "another"), DefaultOptions()) // The cleanup closes this engine.
	require.NoError(t, err)
}

// TestMendWithoutNote damages or removes the note. It is written again if the manifest, the tables and the log are
// complete. A log that may have been longer is used only with giveUp.
func TestMendWithoutNote(t *testing.T) {
	for about, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"changed": func(path string) error { overwrite(t, path); return nil },
	} {
		for _, isCut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, log cut: %v", about, isCut), func(t *testing.T) {
				b := newBackedUp(t)
				b.write()
				require.NoError(t, b.e.Write(t.Context(), stageBatch(100, "in the log only")))
				require.NoError(t, b.e.Close())
				require.NoError(t, damage(filepath.Join(b.dir, ledgerName)))
				logs, err := filepath.Glob(filepath.Join(b.dir, "*.log"))
				require.NoError(t, err)
				if isCut {
					info, err := os.Stat(logs[len(logs)-1])
					require.NoError(t, err)
					require.NoError(t, os.Truncate(logs[len(logs)-1], info.Size()-logTrailer))
				}
				stats, err := Repair(t.Context(), noSpares, b.dir, false)
				require.NoError(t, err)
				if isCut {
					require.Len(t, stats.Left, 1)
					require.Contains(t, stats.Left[0],
						"--give-up-log continues without knowing whether the log is complete")
					stats, err = Repair(t.Context(), noSpares, b.dir, true)
					require.NoError(t, err)
					require.Len(t, stats.Lost, 1)
				}
				require.Empty(t, stats.Left)
				b.e, err = Open(b.dir, DefaultOptions())
				require.NoError(t, err)
				require.Equal(t, 2, stageRows(t, b.e))
			})
		}
	}
}

// noSpares yields no backups.
func noSpares(func(Spare, error) bool) {}

// TestSharedFileRots checks that a damaged file that backups share is copied again.
func TestSharedFileRots(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	overwrite(t, filepath.Join(b.folder, "a", "*.sst"))
	stats, err := b.backup(t.Context(), "b", 0)
	require.NoError(t, err)
	require.Len(t, stats.Rotten, 1)
	require.Empty(t, stats.Damaged)
	require.Equal(t, 1, b.restored("b"))
}

// TestLogCut checks that a log that is shorter than its synced bytes is rejected, and that its lost rows are accepted
// only with giveUp.
func TestLogCut(t *testing.T) {
	for about, damage := range map[string]func(t *testing.T, path string){
		"emptied": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"gone":    func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"changed": func(t *testing.T, path string) { overwrite(t, path) },
	} {
		t.Run(about, func(t *testing.T) {
			b := newBackedUp(t)
			b.write()
			for seq := range int64(500) { // in the log only
				require.NoError(t, b.e.Write(t.Context(), stageBatch(100+seq, "v")))
			}
			require.NoError(t, os.MkdirAll(b.folder, 0o755))
			require.NoError(t, b.e.Close())
			logs, err := filepath.Glob(filepath.Join(b.dir, "*.log"))
			require.NoError(t, err)
			damage(t, logs[len(logs)-1])

			_, err = Open(b.dir, DefaultOptions())
			require.ErrorIs(t, err, engine.ErrCorrupt)
			require.ErrorContains(t, err, filepath.Base(logs[len(logs)-1]))
			require.ErrorContains(t, err, "cassia restore")
			stats, err := Repair(t.Context(), Spares(b.folder), b.dir, false)
			require.NoError(t, err)
			require.Len(t, stats.Left, 1)
			_, err = Open(b.dir, DefaultOptions())
			require.ErrorIs(t, err, engine.ErrCorrupt, "nothing is given up unasked")

			stats, err = Repair(t.Context(), Spares(b.folder), b.dir, true)
			require.NoError(t, err)
			require.Empty(t, stats.Left)
			require.Len(t, stats.Lost, 1)
			b.e, err = Open(b.dir, DefaultOptions())
			require.NoError(t, err)
			require.GreaterOrEqual(t, stageRows(t, b.e), 1)
			require.Less(t, stageRows(t, b.e), 501)
		})
	}
}

// TestMendTakesNoOtherFile checks that a repair doesn't use a file of another lineage: a restored store reuses file
// numbers of the original, even for files of the same size with the same keys and sequence numbers.
func TestMendTakesNoOtherFile(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	require.NoError(t, b.e.Close())
	restored := filepath.Join(t.TempDir(), "restored")
	_, err = Restore(t.Context(), b.folder, "a", restored)
	require.NoError(t, err)
	goOn := func(dir, value string) *Engine {
		e, err := Open(dir, DefaultOptions())
		require.NoError(t, err)
		require.NoError(t, e.Write(t.Context(), stageBatch(50, value)))
		require.NoError(t, e.db.Flush())
		return e
	}
	b.e = goOn(b.dir, "1")
	_, err = b.backup(t.Context(), "b", 0)
	require.NoError(t, err)
	for began := time.Now().Unix(); time.Now().Unix() == began; {
		// The manifest has the seconds at which files were created.
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, goOn(restored, "2").Close())
	tables, err := filepath.Glob(filepath.Join(restored, "*.sst"))
	require.NoError(t, err)
	newest := tables[len(tables)-1]
	require.FileExists(t, filepath.Join(b.folder, "b", filepath.Base(newest)), "this test is for files of one name")
	before, err := os.ReadFile(newest)
	require.NoError(t, err)
	other, err := os.ReadFile(filepath.Join(b.folder, "b", filepath.Base(newest)))
	require.NoError(t, err)
	require.Len(t, other, len(before))
	require.NoError(t, os.Remove(newest))
	stats, err := Repair(t.Context(), Spares(b.folder), restored, false)
	require.NoError(t, err)
	require.Len(t, stats.Left, 1, "mended: %v", stats.Mended)
	require.Contains(t, stats.Left[0], filepath.Base(newest))

	stats, err = Repair(t.Context(), Spares(b.folder), b.dir+"-none", false)
	require.ErrorIs(t, err, ErrNoData, "%v", stats)
	_, err = Repair(t.Context(), Spares(b.folder), filepath.Join(b.folder, "b"), false)
	require.ErrorIs(t, err, errIsBackup)
	require.NoFileExists(t, filepath.Join(b.folder, "b", "LOCK"))
}

// heldTables is a file system on which the creation of tables, and therefore a flush, waits until release is closed.
type heldTables struct {
	vfs.FS
	release chan struct{}
}

func (f heldTables) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if isTableFile(name) {
		<-f.release
	}
	return f.FS.Create(name, category)
}

// tableOfLog makes a directory with a table that is named only by the log, and a backup of it.
func tableOfLog(t *testing.T) (dir, folder, table string) {
	dir, folder = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	o := DefaultOptions()
	release := make(chan struct{})
	p := o.pebbleOptions(nil, nil)
	p.FS = heldTables{vfs.Default, release}
	path := filepath.Join(t.TempDir(), "source")
	db, err := pebbledb.Open(path, p)
	require.NoError(t, err)
	require.NoError(t, db.Set([]byte(formatKey), []byte(formatVersion), pebbledb.Sync))
	key := appendKey(appendPartition(nil, engine.Raw, sealedPartition), engine.Raw.Clustering,
		sealedRows(1, 1)[0].Mutations[0].Clustering)
	require.NoError(t, db.Set(key, []byte("in memory"), pebbledb.Sync))
	f, err := vfs.Default.Create(filepath.Join(path, "ingested"), vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), p.MakeWriterOptions(0, db.TableFormat()))
	require.NoError(t, w.Set(key, []byte("1 ingested")))
	require.NoError(t, w.Close())
	require.NoError(t, db.Ingest(ctx, []string{filepath.Join(path, "ingested")}))
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, db.Checkpoint(checkpoint))
	require.NoError(t, noteCopy(vfs.Default, checkpoint))
	close(release)
	require.NoError(t, db.Close())
	_, err = Backup(ctx, checkpoint, folder, "a", Keep{}, time.Now())
	require.NoError(t, err)
	_, err = Restore(ctx, folder, "a", dir)
	require.NoError(t, err)

	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	require.Len(t, tables, 1)
	return dir, folder, tables[0]
}

// TestMendTableOfLog checks that a table is repaired that was ingested while rows in its range were in memory. Until
// these rows are flushed, only the log names the table.
func TestMendTableOfLog(t *testing.T) {
	dir, folder, table := tableOfLog(t)
	require.NoError(t, os.Truncate(table, 100))
	stats, err := Repair(ctx, noSpares, dir, false)
	require.NoError(t, err)
	require.Len(t, stats.Left, 1)
	stats, err = Repair(ctx, Spares(folder), dir, false)
	require.NoError(t, err)
	require.Empty(t, stats.Left)
	require.Len(t, stats.Mended, 1)
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.Equal(t, 1, requireSealed(t, e, engine.Raw, 1))
	require.NoError(t, e.Close())
}

// TestMendKeepsUnnamedTables removes SYNCED. A table that the manifest doesn't name may belong to a newer manifest, so
// it is moved aside before the next start can delete it.
func TestMendKeepsUnnamedTables(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	require.NoError(t, b.e.Close())
	tables, err := filepath.Glob(filepath.Join(b.dir, "*.sst"))
	require.NoError(t, err)
	text, err := os.ReadFile(tables[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "000999.sst"), text, 0o600))
	require.NoError(t, os.Remove(filepath.Join(b.dir, ledgerName)))
	stats, err := Repair(ctx, noSpares, b.dir, false)
	require.NoError(t, err)
	require.Len(t, stats.Left, 1)
	require.Contains(t, stats.Left[0], "doesn't list 000999.sst; --give-up-log")
	stats, err = Repair(ctx, noSpares, b.dir, true)
	require.NoError(t, err)
	require.Empty(t, stats.Left)
	require.Len(t, stats.Lost, 1)
	b.e, err = Open(b.dir, DefaultOptions())
	require.NoError(t, err)
	require.Equal(t, 1, stageRows(t, b.e))
	require.FileExists(t, filepath.Join(b.dir, asideFolder, "000999.sst"))
}

// TestMendKeepsTableOfLostLog checks that a table named only in the lost part of a log is moved aside before the next
// start can delete it.
func TestMendKeepsTableOfLostLog(t *testing.T) {
	dir, _, table := tableOfLog(t)
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	for _, log := range logs {
		require.NoError(t, os.Truncate(log, 0))
	}
	stats, err := Repair(ctx, noSpares, dir, true)
	require.NoError(t, err)
	require.Empty(t, stats.Left)
	require.NotEmpty(t, stats.Lost)
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.FileExists(t, filepath.Join(dir, asideFolder, filepath.Base(table)))
}
