package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"

	"github.com/cassia-db/cassia/storage/soak"
)

// changesFS counts the changes made through it. Depending on its kind, only the change with index at fails, or also the
// changes after it.
type changesFS struct {
	vfs.FS
	kind changeFault
	at   int // index of the first change that fails

	mu   sync.Mutex
	made int
}

type changeFault string

const (
	killed   changeFault = "killed"    // nothing is changed any more, as after kill -9
	failed   changeFault = "failed"    // one change fails
	diskFull changeFault = "disk full" // nothing is added any more, but files may be removed
)

var changeFaults = []changeFault{killed, failed, diskFull}

// change counts a change and returns its error.
func (c *changesFS) change(adds bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.made
	c.made++
	switch {
	case c.kind == killed && n >= c.at:
		return errors.New("killed")
	case c.kind == failed && n == c.at:
		return syscall.EIO
	case c.kind == diskFull && n >= c.at && adds:
		return syscall.ENOSPC
	}
	return nil
}

func (c *changesFS) reached() bool { return c.made > c.at }

func (c *changesFS) Create(name string, w vfs.DiskWriteCategory) (vfs.File, error) {
	if err := c.change(true); err != nil {
		return nil, err
	}
	f, err := c.FS.Create(name, w)
	return changedFile{f, c}, err
}

func (c *changesFS) OpenDir(name string) (vfs.File, error) {
	f, err := c.FS.OpenDir(name)
	return changedFile{f, c}, err
}

func (c *changesFS) Link(from, to string) error {
	if err := c.change(true); err != nil {
		return err
	}
	return c.FS.Link(from, to)
}

func (c *changesFS) MkdirAll(dir string, perm os.FileMode) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := c.change(true); err != nil {
		return err
	}
	return c.FS.MkdirAll(dir, perm)
}

func (c *changesFS) Rename(from, to string) error {
	if err := c.change(true); err != nil {
		return err
	}
	return c.FS.Rename(from, to)
}

func (c *changesFS) Remove(name string) error {
	if err := c.change(false); err != nil {
		return err
	}
	return c.FS.Remove(name)
}

type changedFile struct {
	vfs.File
	c *changesFS
}

func (f changedFile) Write(p []byte) (int, error) {
	if err := f.c.change(true); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f changedFile) Sync() error {
	return f.c.change(false) // Syncing is slow, and not needed without power cuts.
}

// faultless returns a file system without faults.
func faultless() *changesFS { return &changesFS{FS: vfs.Default, kind: failed, at: math.MaxInt} }

// moments are copies of one store at successive times, and their content.
type moments struct {
	dirs     []string
	contents []map[string]string
}

func newMoments(t *testing.T, n int) (m moments) {
	b := newBackedUp(t)
	for range n {
		b.write()
		dir := filepath.Join(t.TempDir(), "checkpoint")
		require.NoError(t, b.e.Checkpoint(dir))
		require.NoError(t, NameLineage(dir, Lineage{Store: "store"}))
		m.dirs, m.contents = append(m.dirs, dir), append(m.contents, contentOf(t, dir))
	}
	return m
}

// contentOf returns the SHA-256 of the files of a store's copy, by name.
func contentOf(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != StoreFile && e.Name() != backupList && e.Name() != lockName {
			sum, _, err := SHA256Of(t.Context(), filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			out[e.Name()] = sum
		}
	}
	return out
}

func momentName(i int) string { return fmt.Sprintf("20261122T%06dZ-%x", i, i) }

func momentTime(i int) time.Time { return time.Date(2026, 11, 22, 0, 0, i, 0, time.UTC) }

// backup makes a backup of moment i and keeps two backups.
func (m moments) backup(t *testing.T, changes vfs.FS, folder string, i int) (BackupStats, error) {
	return backup(t.Context(), changes, m.dirs[i], folder, momentName(i), Keep{Last: 2}, momentTime(i))
}

// folder returns a folder with backups of the first two moments.
func (m moments) folder(t *testing.T) string {
	folder := filepath.Join(t.TempDir(), "backups")
	for i := range 2 {
		_, err := m.backup(t, faultless(), folder, i)
		require.NoError(t, err)
	}
	return folder
}

// verify requires that a folder has at least two complete backups, and that each has the content of its moment. It
// returns their names.
func (m moments) verify(t *testing.T, folder string) []string {
	names, _, err := backups(folder)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(names), 2)
	for _, name := range names {
		_, number, _ := strings.Cut(name, "-")
		i, err := strconv.Atoi(number)
		require.NoError(t, err)
		require.Equal(t, m.contents[i], contentOf(t, filepath.Join(folder, name)))
	}
	return names
}

// drawnChanges returns the index of the first change that a test makes fail, and the distance to the next such change.
// A soak test makes each change fail.
func drawnChanges(t *testing.T) (first, step int) {
	step = max(1, 4/soak.Times(t, 1))
	return int(soak.Seed(t) % uint64(step)), step
}

// TestBackupsThatAreCut interrupts a backup, which also removes an older one, at each change that it makes. After that,
// all existing backups are intact, and the next backup succeeds and removes leftovers.
func TestBackupsThatAreCut(t *testing.T) {
	m := newMoments(t, 4)
	first, step := drawnChanges(t)
	for _, kind := range changeFaults {
		for at := first; ; at += step {
			about := fmt.Sprintf("%s at change %d", kind, at)
			folder := m.folder(t)
			changes := &changesFS{FS: vfs.Default, kind: kind, at: at}
			_, err := m.backup(t, changes, folder, 2)
			if !changes.reached() {
				require.NoError(t, err, about)
				require.Greater(t, at, 20)
				break
			}
			names := m.verify(t, folder)
			made := slices.Contains(names, momentName(2))
			var retention *RetentionError
			if err == nil || errors.As(err, &retention) {
				require.True(t, made, "%s: %v", about, err)
			}
			if kind != killed && !made {
				require.Empty(t, partialIn(t, folder), about)
			}
			_, err = m.backup(t, faultless(), folder, 3)
			require.NoError(t, err, about)
			names = m.verify(t, folder)
			require.Len(t, names, 2, about)
			require.Equal(t, momentName(3), names[1], about)
			left, err := os.ReadDir(folder)
			require.NoError(t, err)
			require.Len(t, left, 3, "%s: two backups and the lock", about)
			require.NoError(t, os.RemoveAll(folder))
		}
	}
}

func partialIn(t *testing.T, folder string) []string {
	found, err := filepath.Glob(filepath.Join(folder, "*"+partialSuffix))
	require.NoError(t, err)
	return found
}

// TestRestoresThatAreCut interrupts a restore at each change that it makes. After that, the directory is empty,
// complete, or can't be opened, and another backup can be restored to it.
func TestRestoresThatAreCut(t *testing.T) {
	m := newMoments(t, 2)
	folder := m.folder(t)
	first, step := drawnChanges(t)
	for _, kind := range changeFaults {
		for at := first; ; at += step {
			about := fmt.Sprintf("%s at change %d", kind, at)
			dir := filepath.Join(t.TempDir(), "data")
			changes := &changesFS{FS: vfs.Default, kind: kind, at: at}
			_, err := restore(t.Context(), changes, folder, momentName(1), dir, nil)
			if !changes.reached() {
				require.NoError(t, err, about)
				require.Equal(t, m.contents[1], contentOf(t, dir))
				require.Greater(t, at, 20)
				break
			}
			complete := m.openable(t, dir, 1)
			// The second restore is also interrupted, each time at another change.
			changes = &changesFS{FS: vfs.Default, kind: kind, at: at * 7 % 40}
			_, err = restore(t.Context(), changes, folder, momentName(0), dir, nil)
			if complete {
				require.ErrorContains(t, err, "must be empty", about)
				continue
			}
			complete = m.openable(t, dir, 0)
			_, err = restore(t.Context(), faultless(), folder, momentName(0), dir, nil)
			if complete {
				require.ErrorContains(t, err, "must be empty", about)
			} else {
				require.NoError(t, err, about)
			}
			require.Equal(t, m.contents[0], contentOf(t, dir), about)
		}
	}
}

// TestRestoreToADiskWithoutRoom checks that the error of a restore to a full disk names the required space, and doesn't
// suggest another backup.
func TestRestoreToADiskWithoutRoom(t *testing.T) {
	m := newMoments(t, 2)
	folder := m.folder(t)
	_, bytes, err := SizeOf(folder, momentName(1))
	require.NoError(t, err)
	for _, kind := range []changeFault{diskFull, failed} {
		for _, at := range []int{0, 1, 5, 11} {
			_, err := restore(t.Context(), &changesFS{FS: vfs.Default, kind: kind, at: at}, folder, momentName(1),
				filepath.Join(t.TempDir(), "data"), nil)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "older backup", "%s at %d", kind, at)
			require.NotContains(t, err.Error(), "previous backup", "%s at %d", kind, at)
			if kind == diskFull {
				require.ErrorContains(t, err, fmt.Sprintf("(%d bytes)", bytes))
				require.ErrorContains(t, err, "free disk space, or restore to another disk")
			}
		}
	}
	require.NoError(t, NoRoom(nil, "data", 1))
	require.Equal(t, syscall.EIO, NoRoom(syscall.EIO, "data", 1))
}

// openable reports whether the directory of a restore of moment i can be opened. If it can, it must be complete.
func (m moments) openable(t *testing.T, dir string, i int) bool {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 || len(entries) == 1 && entries[0].Name() == lockName {
		return false
	}
	require.NoError(t, err)
	if err := checkRestored(dir); err != nil {
		require.ErrorIs(t, err, errUnfinishedRestore)
		return false
	}
	require.Equal(t, m.contents[i], contentOf(t, dir))
	return true
}

// TestClockStepsBack sets the clock back between backups: the newest backup is the last one made, regardless of its
// time.
func TestClockStepsBack(t *testing.T) {
	m := newMoments(t, 4)
	folder := filepath.Join(t.TempDir(), "backups")
	for i, at := range []int{0, 5, 2, 1} { // seconds
		_, err := backup(t.Context(), faultless(), m.dirs[i], folder, momentName(at), Keep{Last: 1}, momentTime(at))
		require.NoError(t, err)
		dir := filepath.Join(t.TempDir(), "data")
		stats, err := restore(t.Context(), faultless(), folder, "", dir, nil)
		require.NoError(t, err)
		require.Equal(t, momentName(at), stats.Name)
		require.Equal(t, m.contents[i], contentOf(t, dir), "that of the last one made")
	}
}

// TestRestoreChangesBeforeAnyoneOpens checks that change is called while the directory can't be opened, that its writes
// are kept, and that no files are left if it fails.
func TestRestoreChangesBeforeAnyoneOpens(t *testing.T) {
	b := newBackedUp(t)
	b.write()
	_, err := b.backup(t.Context(), "a", 0)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "data")
	full := errors.New("full")
	_, err = RestoreAndChange(t.Context(), b.folder, "", dir, func(string, string) error { return full })
	require.ErrorIs(t, err, full)
	require.NoDirExists(t, dir)
	_, err = RestoreAndChange(t.Context(), b.folder, "", dir, func(inside, _ string) error {
		_, err := Open(dir, DefaultOptions())
		require.ErrorIs(t, err, engine.ErrLocked)
		e, err := Open(inside, DefaultOptions())
		require.NoError(t, err)
		return errors.Join(e.Write(t.Context(), stageBatch(7, "v")), e.Close())
	})
	require.NoError(t, err)
	require.Equal(t, 2, rowsIn(t, dir))
}

// TestBackupWithoutItsList checks that a restore reports a backup without a list instead of using an older backup.
func TestBackupWithoutItsList(t *testing.T) {
	m := newMoments(t, 3)
	for about, damage := range map[string]func(list string) error{
		"missing": os.Remove,
		// The list exists but can't be opened.
		"no right": func(list string) error { return errors.Join(os.Remove(list), os.Symlink(list, list)) },
	} {
		folder := m.folder(t)
		list := filepath.Join(folder, momentName(1), backupList)
		require.NoError(t, damage(list), about)
		_, err := Restore(t.Context(), folder, "", filepath.Join(t.TempDir(), "data"))
		require.ErrorContains(t, err, list, about)
		_, err = backup(t.Context(), faultless(), m.dirs[2], folder, momentName(2), Keep{Last: 3}, momentTime(2))
		require.NoError(t, err, about)
		dir := filepath.Join(t.TempDir(), "data")
		_, err = Restore(t.Context(), folder, "", dir)
		require.NoError(t, err, about)
		require.Equal(t, m.contents[2], contentOf(t, dir), about)
		require.DirExists(t, filepath.Dir(list), about)
		require.NoError(t, os.RemoveAll(filepath.Join(folder, momentName(1))))
	}
}

// TestRestoreOfABackupThatIsRemoved checks that the error of a restore names the cause if the backup is removed during
// the restore.
func TestRestoreOfABackupThatIsRemoved(t *testing.T) {
	m := newMoments(t, 2)
	folder := m.folder(t)
	removing := &removingFS{
		FS: faultless(), remove: func() error { return removeBackup(vfs.Default, folder, momentName(0)) },
	}
	dir := filepath.Join(t.TempDir(), "data")
	_, err := restore(t.Context(), removing, folder, momentName(0), dir, nil)
	require.ErrorIs(t, err, ErrNoBackup)
	require.ErrorContains(t, err, "it was removed by a concurrent backup (--keep)")
	require.NoDirExists(t, dir)
}

// removingFS removes a directory before it creates the second file.
type removingFS struct {
	vfs.FS
	made   int
	remove func() error
}

func (r *removingFS) Create(name string, w vfs.DiskWriteCategory) (vfs.File, error) {
	if r.made++; r.made == 2 {
		if err := r.remove(); err != nil {
			return nil, err
		}
	}
	return r.FS.Create(name, w)
}

// TestRestoresAtOneMoment checks that two concurrent restores to one directory don't mix their files, and that no store
// is created there during a restore.
func TestRestoresAtOneMoment(t *testing.T) {
	m := newMoments(t, 2)
	folder, dir := m.folder(t), t.TempDir()
	_, err := RestoreAndChange(t.Context(), folder, momentName(0), dir, func(string, string) error {
		_, err := Restore(t.Context(), folder, momentName(1), dir)
		require.ErrorIs(t, err, ErrLockHeld)
		require.ErrorContains(t, err, dir+" is in use by another restore or a server (locked by this process")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, m.contents[0], contentOf(t, dir))

	empty := t.TempDir()
	e, err := Open(empty, DefaultOptions())
	require.NoError(t, err)
	_, err = Restore(t.Context(), folder, momentName(1), empty)
	require.ErrorContains(t, err, "must be empty")
	require.NoError(t, e.Close())
}

// TestRestoreLeavesOthersFiles checks that a restore doesn't remove other files in a directory with the files of an
// interrupted restore.
func TestRestoreLeavesOthersFiles(t *testing.T) {
	m := newMoments(t, 2)
	folder := m.folder(t)
	for _, name := range []string{"notes.txt", "snapshots/"} {
		dir := t.TempDir()
		r, err := BeginRestore(dir, nil)
		require.NoError(t, err)
		require.NoError(t, r.lock.Close(), "its process is killed")
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.Mkdir(path, 0o755))
		} else {
			require.NoError(t, os.WriteFile(path, []byte("mine"), 0o644))
		}
		_, err = Restore(t.Context(), folder, "", dir)
		require.ErrorContains(t, err, filepath.Base(path)+" doesn't belong to it; move it away, then restore again")
		require.NoError(t, os.RemoveAll(path))
		_, err = Restore(t.Context(), folder, "", dir)
		require.NoError(t, err)
		require.Equal(t, m.contents[1], contentOf(t, dir))
	}
}
