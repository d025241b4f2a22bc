package pebble

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// backedUpEngine is an engine with a folder of its backups.
type backedUpEngine struct {
	t           *testing.T
	dir, folder string
	e           *Engine
	rows        int
	store       string
	now         time.Time
}

func newBackedUp(t *testing.T) *backedUpEngine {
	b := &backedUpEngine{t: t, dir: filepath.Join(t.TempDir(), "data"), folder: filepath.Join(t.TempDir(), "backups")}
	var err error
	b.e, err = Open(b.dir, DefaultOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.e.Close()) })
	return b
}

// write adds a row, in a new sorted file.
func (b *backedUpEngine) write() {
	b.rows++
	require.NoError(b.t, b.e.Write(b.t.Context(), stageBatch(int64(b.rows), "v")))
	require.NoError(b.t, b.e.db.Flush())
}

func (b *backedUpEngine) backup(ctx context.Context, name string, keep int) (BackupStats, error) {
	checkpoint := filepath.Join(b.dir, "snapshots", name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(checkpoint), 0o755))
	require.NoError(b.t, b.e.Checkpoint(checkpoint))
	require.NoError(b.t, NameLineage(checkpoint, Lineage{Store: b.store}))
	defer os.RemoveAll(checkpoint)
	return Backup(ctx, checkpoint, b.folder, name, Keep{Last: keep}, b.now)
}

// restored restores a backup and returns the number of its rows.
func (b *backedUpEngine) restored(name string) int {
	dir := filepath.Join(b.t.TempDir(), "restored")
	_, err := Restore(b.t.Context(), b.folder, name, dir)
	require.NoError(b.t, err)
	return rowsIn(b.t, dir)
}

func rowsIn(t *testing.T, dir string) int {
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	return stageRows(t, e)
}

func TestBackupsShareFiles(t *testing.T) {
	b := newBackedUp(t)
	for i, name := range []string{"a", "b", "c"} {
		b.write()
		stats, err := b.backup(t.Context(), name, 0)
		require.NoError(t, err)
		if i > 0 {
			require.GreaterOrEqual(t, stats.Files-stats.Copied, i, "files of rows are shared")
		}
	}
	for i, name := range []string{"a", "b", "c"} {
		require.Equal(t, i+1, b.restored(name), name)
	}
	require.Equal(t, 3, b.restored(""), "the newest one")

	// Older backups are removed, and files that remaining backups share with them are kept.
	b.write()
	stats, err := b.backup(t.Context(), "d", 2)
	require.NoError(t, err)
	require.Equal(t, 2, stats.Removed)
	names, _, err := backups(b.folder)
	require.NoError(t, err)
	require.Equal(t, []string{"c", "d"}, names)
	require.Equal(t, 4, b.restored("d"))
}

// TestBackupsThatAreRefused checks that a backup to a locked folder and a backup of a checkpoint with a subdirectory
// return errors and leave no files, and that a restore to a dangling link returns an error.
func TestBackupsThatAreRefused(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	require.NoError(t, os.MkdirAll(b.folder, 0o755))
	lock, err := LockFile(filepath.Join(b.folder, "lock"))
	require.NoError(t, err)
	_, err = b.backup(t.Context(), "a", 0)
	require.ErrorIs(t, err, errBackupBusy)
	require.ErrorContains(t, err, fmt.Sprintf("%s (locked by this process, %d)", b.folder, os.Getpid()))
	require.NoError(t, lock.Remove())
	require.NoError(t, os.Mkdir(filepath.Join(b.folder, "lock"), 0o755))
	_, err = b.backup(t.Context(), "a", 0)
	require.NotErrorIs(t, err, errBackupBusy)
	require.ErrorContains(t, err, "lock: is a directory", "the cause, whatever it is")
	require.NoError(t, os.Remove(filepath.Join(b.folder, "lock")))

	strange := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, b.e.Checkpoint(strange))
	require.NoError(t, os.Mkdir(filepath.Join(strange, "directory"), 0o755))
	_, err = Backup(t.Context(), strange, b.folder, "b", Keep{}, b.now)
	require.ErrorIs(t, err, ErrBackup)
	require.ErrorContains(t, err, "directory is not a file")
	require.Empty(t, mustSucceed(Backups(b.folder, b.store)), "none is left by half")

	_, err = b.backup(t.Context(), "c", 0)
	require.NoError(t, err)
	nowhere := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "none", "none"), nowhere))
	_, err = Restore(t.Context(), b.folder, "", nowhere)
	require.ErrorContains(t, err, "pebble: restoring")
	_, err = Restore(t.Context(), b.folder, "", filepath.Join(b.folder, "lock", "data"))
	require.ErrorContains(t, err, "not a directory")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.backup(gone, "d", 0)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, mustSucceed(Backups(b.folder, b.store)), 1)
}

func mustSucceed[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// TestBackupsOfDamagedFiles checks that a damaged directory is backed up and the backup is marked: it supersedes no
// other backup, and is restored only if it is named.
func TestBackupsOfDamagedFiles(t *testing.T) {
	b := newBackedUp(t)
	list := func() (list []DatedBackup) {
		list, err := Backups(b.folder, b.store)
		require.NoError(t, err)
		return list
	}
	require.Empty(t, list(), "there is no folder yet")
	b.write()
	b.now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	whole, err := b.backup(t.Context(), "a", 1)
	require.NoError(t, err)
	files, bytes, err := SizeOf(b.folder, "a")
	require.NoError(t, err)
	require.Equal(t, whole.Files, files)
	require.Equal(t, whole.Bytes, bytes)
	before := sortedFiles(t, b.dir)
	b.write()
	for _, path := range sortedFiles(t, b.dir) {
		if !slices.Contains(before, path) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			text[0] ^= 0xff // of the first block of rows
			require.NoError(t, os.WriteFile(path, text, 0o644))
		}
	}
	b.now = b.now.Add(time.Hour)
	stats, err := b.backup(t.Context(), "b", 1)
	require.NoError(t, err)
	require.Len(t, stats.Damaged, 1)
	require.Contains(t, stats.Damaged[0], "rows from")
	require.Equal(t, []DatedBackup{{Name: "a", Taken: b.now.Add(-time.Hour)}, {Name: "b", Taken: b.now, Damaged: true}}, list())
	require.Equal(t, 1, b.restored(""), "the newest in which nothing is damaged")

	require.NoError(t, os.RemoveAll(filepath.Join(b.folder, "a")))
	_, err = Restore(t.Context(), b.folder, "", filepath.Join(t.TempDir(), "restored"))
	require.ErrorIs(t, err, ErrNoBackup)
	require.ErrorContains(t, err, "that is undamaged; --backup=b is the newest damaged one")
	_, err = Restore(t.Context(), b.folder, "b", filepath.Join(t.TempDir(), "restored"))
	require.NoError(t, err)
	_, _, err = SizeOf(b.folder, "a")
	require.Error(t, err)
}

func sortedFiles(t *testing.T, dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	return paths
}

// TestUnfinishedBackup checks that an interrupted backup doesn't count, and that the next backup removes its files.
func TestUnfinishedBackup(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.backup(ctx, "a", 0)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Restore(t.Context(), b.folder, "", filepath.Join(t.TempDir(), "x"))
	require.ErrorIs(t, err, ErrNoBackup)

	const cut = "20260101T000000Z-stopped"
	left := filepath.Join(b.folder, cut+partialSuffix) // as kill -9 leaves it
	require.NoError(t, os.MkdirAll(left, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(left, "000001.sst"), []byte("half"), 0o644))
	foreign := filepath.Join(b.folder, "film"+partialSuffix)
	require.NoError(t, os.MkdirAll(foreign, 0o755))
	stats, err := b.backup(t.Context(), "c", 0)
	require.NoError(t, err)
	require.Equal(t, []string{cut}, stats.LeftOver)
	require.NoDirExists(t, left)
	require.DirExists(t, foreign, "somebody else's")
	require.Equal(t, 1, b.restored(""))
}

// TestBackupsOfSeveralStores makes backups of two stores in one folder. For each store, the configured number of
// backups is kept, and no store is restored from another store's backup.
func TestBackupsOfSeveralStores(t *testing.T) {
	a := newBackedUp(t)
	b := newBackedUp(t)
	b.folder = a.folder
	a.store, b.store = "a", "b"
	at := time.Unix(1e9, 0)
	for i, x := range []struct {
		of   *backedUpEngine
		name string
		gone int
	}{{a, "3", 0}, {a, "2", 0}, {b, "1", 0}, {a, "0", 1}, {b, "4", 0}} {
		x.of.write()
		x.of.now = at.Add(time.Duration(i) * time.Millisecond) // The names aren't sorted by time.
		stats, err := x.of.backup(t.Context(), x.name, 2)
		require.NoError(t, err)
		require.Equal(t, x.gone, stats.Removed, x.name)
	}
	names, _, err := backups(a.folder)
	require.NoError(t, err)
	require.Equal(t, []string{"2", "1", "0", "4"}, names)
	_, err = Restore(t.Context(), a.folder, "", filepath.Join(t.TempDir(), "x"))
	require.ErrorContains(t, err, "has backups of 2 stores; choose one with --backup. The newest of each store: 0, 4")
	require.Equal(t, 3, a.restored("0"))
	require.Equal(t, 2, a.restored("4"))
}

// TestRestoreIntoAnEmptyDirectory checks that a backup can be restored to a link to an empty directory, but not to a
// directory that has rows.
func TestRestoreIntoAnEmptyDirectory(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	empty := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(empty, "lost+found"), 0o755))
	link := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Symlink(empty, link))
	_, err = Restore(t.Context(), b.folder, "", link)
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays")
	require.Equal(t, 1, rowsIn(t, empty))
	_, err = Restore(t.Context(), b.folder, "", link)
	require.ErrorContains(t, err, "must be empty or not exist", "it has the rows")
	require.Equal(t, 1, rowsIn(t, empty))

	neighbor := filepath.Join(t.TempDir(), "data"+partialSuffix)
	require.NoError(t, os.MkdirAll(neighbor, 0o755))
	_, err = Restore(t.Context(), b.folder, "", strings.TrimSuffix(neighbor, partialSuffix))
	require.NoError(t, err)
	require.DirExists(t, neighbor, "somebody else's")
}

// TestRestoredFiles checks that files written by a restore appear in the directory only when all of them exist.
func TestRestoredFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r, err := BeginRestore(dir, []string{"a", "b"})
	require.NoError(t, err)
	require.NoError(t, r.Write("a", strings.NewReader("x")))
	_, err = Open(dir, DefaultOptions())
	require.ErrorIs(t, err, engine.ErrLocked)
	require.NoError(t, r.Write("b", strings.NewReader("y")))
	require.NoFileExists(t, filepath.Join(dir, "a"))
	require.NoError(t, r.Finish(nil))
	for name, want := range map[string]string{"a": "x", "b": "y"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
}

// TestUnfinishedRestore checks that after an interrupted restore, a directory can be restored to but not opened.
func TestUnfinishedRestore(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	list, err := readList(filepath.Join(b.folder, "a"))
	require.NoError(t, err)
	var names []string
	for _, f := range list.Files {
		names = append(names, f.Name)
	}
	for moved := range len(list.Files) + 1 {
		dir := filepath.Join(t.TempDir(), "data")
		to, err := BeginRestore(dir, names)
		require.NoError(t, err)
		require.NoError(t, to.lock.Close(), "its process is killed")
		for i, f := range list.Files {
			into := to.folder()
			if i < moved {
				into = dir
			}
			text, err := os.ReadFile(filepath.Join(b.folder, "a", f.Name))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(into, f.Name), text, 0o644))
		}
		_, err = Open(dir, DefaultOptions())
		require.ErrorIs(t, err, errUnfinishedRestore)
		_, err = Restore(t.Context(), b.folder, "", dir)
		require.NoError(t, err)
		require.Equal(t, 1, rowsIn(t, dir))
	}
}

// TestBackupOfARestoredStore checks that a backup doesn't share an earlier backup's file that has the same name but
// other rows.
func TestBackupOfARestoredStore(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	b.write()
	_, err = b.backup(t.Context(), "b", 0)
	require.NoError(t, err)

	other := &backedUpEngine{t: t, dir: filepath.Join(t.TempDir(), "data"), folder: b.folder}
	_, err = Restore(t.Context(), b.folder, "a", other.dir)
	require.NoError(t, err)
	other.e, err = Open(other.dir, DefaultOptions())
	require.NoError(t, err)
	defer func() { require.NoError(t, other.e.Close()) }()
	other.rows = 10
	other.write()
	other.write()
	_, err = other.backup(t.Context(), "c", 0)
	require.NoError(t, err)
	require.Equal(t, 3, b.restored("c"))
	require.Equal(t, 2, b.restored("b"))
}

// TestBackupSharesContent checks that backups of a restored directory and of a checkpoint share equal files.
func TestBackupSharesContent(t *testing.T) {
	b := newBackedUp(t)
	for range 3 {
		b.write()
	}
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	stats, err := b.backup(t.Context(), "b", 0)
	require.NoError(t, err)
	for _, name := range []string{"OPTIONS-*", "marker.format-version*"} {
		require.True(t, sameFile(t, b.folder, name), "%s is copied again", name)
	}
	require.LessOrEqual(t, stats.Copied, 2, "its manifest, and the ledger")

	restored := filepath.Join(t.TempDir(), "data")
	_, err = Restore(t.Context(), b.folder, "b", restored)
	require.NoError(t, err)
	stats, err = Backup(t.Context(), restored, b.folder, "c", Keep{}, b.now)
	require.NoError(t, err)
	require.Zero(t, stats.Copied)
	require.Equal(t, 3, b.restored("c"))

	// A stored file that has changed isn't shared.
	path := sortedFiles(t, filepath.Join(b.folder, "c"))[0]
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[len(text)/2] ^= 1
	require.NoError(t, os.WriteFile(path, text, 0o644))
	stats, err = Backup(t.Context(), restored, b.folder, "d", Keep{}, b.now)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Copied)
	require.NotEmpty(t, stats.Rotten)
	require.Equal(t, 3, b.restored("d"))
}

// sameFile reports whether backups a and b share the file that matches a pattern.
func sameFile(t *testing.T, folder, pattern string) bool {
	var infos []os.FileInfo
	for _, backup := range []string{"a", "b"} {
		found, err := filepath.Glob(filepath.Join(folder, backup, pattern))
		require.NoError(t, err)
		require.Len(t, found, 1)
		info, err := os.Stat(found[0])
		require.NoError(t, err)
		infos = append(infos, info)
	}
	return os.SameFile(infos[0], infos[1])
}

// TestFolderWithoutHardLinks checks that backups are complete copies if the file system has no hard links.
func TestFolderWithoutHardLinks(t *testing.T) {
	m := newMoments(t, 2)
	folder := m.folder(t)
	stats, err := m.backup(t, withoutLinks{faultless()}, folder, 1)
	require.Error(t, err, "it has that name already")
	require.NoError(t, os.Rename(filepath.Join(folder, momentName(1)), filepath.Join(folder, momentName(0)+"x")))
	stats, err = m.backup(t, withoutLinks{faultless()}, folder, 1)
	require.NoError(t, err)
	require.Equal(t, stats.Files, stats.Copied)
	require.Equal(t, m.contents[1], contentOf(t, filepath.Join(folder, momentName(1))))
}

type withoutLinks struct{ vfs.FS }

func (withoutLinks) Link(string, string) error { return syscall.EPERM }

func TestDamagedBackup(t *testing.T) {
	for about, damage := range map[string]func(path string) error{
		"changed": func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text[len(text)/2] ^= 1
			return os.WriteFile(path, text, 0o644)
		},
		"shorter": func(path string) error { return os.Truncate(path, 10) },
		"gone":    os.Remove,
	} {
		b := newBackedUp(t)
		b.write()
		_, err := b.backup(t.Context(), "a", 0)
		require.NoError(t, err, about)
		files, err := filepath.Glob(filepath.Join(b.folder, "a", "*.sst"))
		require.NoError(t, err)
		require.NoError(t, damage(files[0]), about)
		dir := filepath.Join(t.TempDir(), "restored")
		_, err = Restore(t.Context(), b.folder, "", dir)
		require.ErrorContains(t, err, filepath.Base(files[0]), about)
		require.ErrorContains(t, err, "there is no older backup", about)
		require.NoDirExists(t, dir, "nothing is restored by half")
	}
}

// TestDamagedNewestBackup checks that the error for a damaged newest backup has the name of the previous one.
func TestDamagedNewestBackup(t *testing.T) {
	b := newBackedUp(t)
	for _, name := range []string{"a", "b"} {
		b.write()
		_, err := b.backup(t.Context(), name, 0)
		require.NoError(t, err)
	}
	manifests, err := filepath.Glob(filepath.Join(b.folder, "b", "MANIFEST-*"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(manifests[0]))
	dir := filepath.Join(t.TempDir(), "restored")
	_, err = Restore(t.Context(), b.folder, "", dir)
	require.ErrorContains(t, err, "the previous backup is --backup=a")
	_, err = Restore(t.Context(), b.folder, "a", dir)
	require.NoError(t, err)
}

// TestBackupOfATakenName checks that a backup under an existing name fails and leaves the existing backup unchanged.
func TestBackupOfATakenName(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	_, err = b.backup(t.Context(), "a", 0)
	require.Error(t, err)
	require.NoDirExists(t, filepath.Join(b.folder, "a"+partialSuffix))
	require.Equal(t, 1, b.restored(""))
}

func TestRestoreRefuses(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	_, err = Restore(t.Context(), b.folder, "", b.dir)
	require.ErrorContains(t, err, "must be empty")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err = Restore(t.Context(), b.folder, "", file)
	require.ErrorContains(t, err, "is not a directory")
	_, err = Restore(t.Context(), b.folder, "z", filepath.Join(t.TempDir(), "x"))
	require.ErrorIs(t, err, ErrNoBackup)
	list := filepath.Join(b.folder, "a", backupList)
	for text, want := range map[string]string{
		"{": "unexpected end", `{"version":2}`: "version 2", `{"version":1,"files":[{"name":"../x"}]}`: "which is not a backup file",
	} {
		require.NoError(t, os.WriteFile(list, []byte(text), 0o644))
		_, err = Restore(t.Context(), b.folder, "", filepath.Join(t.TempDir(), "x"))
		require.ErrorIs(t, err, ErrBackup)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, 1, stageRows(t, b.e), "what was there stays")
}
