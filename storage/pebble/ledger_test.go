package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// logFiller is a value of at least a sixth of the smallest log.
var logFiller = strings.Repeat("0123456789abcdef", 16<<10)

// TestNoPowerCutIsTakenForDamage cuts the power before operations of the file system that write, while logs and
// manifests are created and removed. Before each operation on a noted file, the note is rewritten. No resulting
// directory is rejected, and all acknowledged rows exist.
func TestNoPowerCutIsTakenForDamage(t *testing.T) {
	t.Parallel()
	const cutAtMost = 400
	type cut struct {
		disk *CrashableFS
		op   string
		want int64
	}
	var (
		acknowledged atomic.Int64
		running      atomic.Pointer[Engine]
		mu           sync.Mutex
		cuts         []cut
		ops          int
	)
	disk, rng := NewCrashableFS(), rand.New(rand.NewPCG(7, 7))
	watched := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if e := running.Load(); e != nil && isNoted(filepath.Base(op.Path)) {
			e.ledger.noting.Lock()
			err := e.ledger.write()
			e.ledger.noting.Unlock()
			if err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if ops++; ops%3 == 0 && len(cuts) < cutAtMost {
			want := acknowledged.Load()
			left := disk.Crash([]int{0, 30, 100}[rng.IntN(3)], rng)
			cuts = append(cuts, cut{left, fmt.Sprintf("operation %d of %s", op.Kind, op.Path), want})
		}
		return nil
	}))
	for range 3 {
		e := openOn(t, watched)
		running.Store(e)
		for range 8 {
			require.NoError(t, e.Write(ctx, stageBatch(acknowledged.Load(), logFiller)))
			acknowledged.Add(1)
		}
		require.NoError(t, e.db.Flush())
		running.Store(nil)
		require.NoError(t, e.Close())
	}
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(cuts), cutAtMost/4)
	for _, c := range cuts {
		opts := smallOptions()
		_, err := readExisting(c.disk, "data", &opts)
		require.NoError(t, err, "before %s", c.op)
	}
	for range 25 {
		c := cuts[rng.IntN(len(cuts))]
		e := openOn(t, c.disk)
		require.GreaterOrEqual(t, int64(stageRows(t, e)), c.want, "before %s", c.op)
		require.NoError(t, e.Close())
	}
}

// TestNoteOfNewName checks that a note isn't written before the files that it lists exist on the disk.
func TestNoteOfNewName(t *testing.T) {
	t.Parallel()
	disk, rng := NewCrashableFS(), rand.New(rand.NewPCG(3, 3))
	require.NoError(t, disk.MkdirAll("data", 0o755))
	var left []*CrashableFS
	watched := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		for range 5 {
			left = append(left, disk.Crash(50, rng))
		}
		return nil
	}))
	require.NoError(t, syncDirectory(disk, "/"))
	l := newLedger(watched, "data")
	require.NoError(t, l.releaseNotes())
	left = nil
	files := &vitalFS{FS: watched, ledger: l}
	for i := range 5 {
		f, err := files.Create(fmt.Sprintf("data/MANIFEST-%06d", i), vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = f.Write([]byte("v"))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
		require.NoError(t, l.writeIfChanged())
	}
	for _, d := range left {
		_, problems := readLedger(d, "data")
		require.Empty(t, problems)
	}
}

// TestWritesDoNotWaitForNotes checks that recording synced bytes doesn't slow down writes: there is no additional sync
// per write, and writes don't wait for the sync of a note.
func TestWritesDoNotWaitForNotes(t *testing.T) {
	t.Parallel()
	var notes atomic.Int64
	held, release := make(chan struct{}, 1), make(chan struct{})
	var hold atomic.Bool
	_, osFS := faultyFS(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && strings.HasSuffix(op.Path, ledgerName+".tmp") {
			notes.Add(1)
			if hold.Load() {
				held <- struct{}{}
				<-release
			}
		}
		return nil
	})
	e := openOn(t, osFS)
	began, before := time.Now(), notes.Load()
	for seq := range int64(100) {
		require.NoError(t, e.Write(ctx, stageBatch(seq, "v")))
	}
	require.LessOrEqual(t, notes.Load()-before, int64(time.Since(began)/ledgerEvery)+1)

	hold.Store(true)
	require.NoError(t, e.Write(ctx, stageBatch(100, "v")))
	<-held
	hold.Store(false)
	done := make(chan error, 1)
	go func() { done <- e.Write(ctx, stageBatch(101, "v")) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(waitAtMost):
		require.Fail(t, "a write waits for a note")
	}
	close(release)
	require.NoError(t, e.Close())
	_, problems := readLedger(osFS, "data")
	require.Empty(t, problems)
}

// TestNoteOnFullDisk checks that logs are removed, which frees space, although the disk is too full to write the note:
// the note is withdrawn, and written again later.
func TestNoteOnFullDisk(t *testing.T) {
	t.Parallel()
	mem, osFS, broken := failingFS(func(op errorfs.Op) bool {
		return strings.HasSuffix(op.Path, ledgerName+".tmp") && op.Kind != errorfs.OpRemove
	})
	e := openOn(t, osFS)
	require.NoError(t, e.Write(ctx, stageBatch(0, "v")))
	require.NoError(t, e.ledger.writeIfChanged())
	logs := func() (names []string) {
		all, err := mem.List("data")
		require.NoError(t, err)
		for _, name := range all {
			if strings.HasSuffix(name, ".log") {
				names = append(names, name)
			}
		}
		return names
	}
	first := logs()
	broken.Store(true)
	for seq := range int64(40) {
		require.NoError(t, e.Write(ctx, stageBatch(seq, logFiller)))
	}
	require.NoError(t, e.db.Flush())
	require.Eventually(t, func() bool { return !slices.Contains(logs(), first[0]) }, waitAtMost, pollEvery)
	require.NoError(t, e.failedErr())
	_, err := mem.Stat("data/" + ledgerName)
	require.ErrorIs(t, err, fs.ErrNotExist)
	killed := NewCrashableFS()
	cloned, err := vfs.Clone(mem, killed, "data", "data", vfs.CloneSync)
	require.NoError(t, err)
	require.True(t, cloned)
	again := openOn(t, killed)
	require.Equal(t, 40, stageRows(t, again))
	require.NoError(t, again.Close())
	_, err = killed.Stat("data/" + ledgerName + withdrawnSuffix)
	require.ErrorIs(t, err, fs.ErrNotExist)

	broken.Store(false)
	require.NoError(t, e.Write(ctx, stageBatch(40, "v")))
	require.Eventually(t, func() bool {
		_, err := mem.Stat("data/" + ledgerName)
		_, old := mem.Stat("data/" + ledgerName + withdrawnSuffix)
		return err == nil && errors.Is(old, fs.ErrNotExist)
	}, waitAtMost, pollEvery)
	require.NoError(t, e.Close())
	e = openOn(t, osFS)
	require.Equal(t, 41, stageRows(t, e))
	require.NoError(t, e.Close())
}

// TestVerifyWhileWriting checks that verify reports no damage while logs are written, created and removed.
func TestVerifyWhileWriting(t *testing.T) {
	t.Parallel()
	e := openOn(t, vfs.NewMem())
	var writing sync.WaitGroup
	var ended atomic.Bool
	writing.Go(func() {
		defer ended.Store(true)
		for seq := range int64(60) {
			if err := e.Write(ctx, stageBatch(seq, logFiller)); err != nil {
				panic(err)
			}
		}
	})
	for looked := 0; !ended.Load() || looked == 0; looked++ {
		require.Empty(t, e.ledger.verify())
	}
	writing.Wait()
	require.NoError(t, e.Close())
}

// TestNotedFileUnreadable checks that a noted file that can't be read is reported as an error of the disk, not as
// damage.
func TestNotedFileUnreadable(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	_, osFS := faultyFS(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind == errorfs.OpFileRead {
			return &os.PathError{Op: "read", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	})
	e := openOn(t, osFS)
	require.NoError(t, e.Write(ctx, stageBatch(0, "v")))
	require.NoError(t, e.Close())
	broken.Store(true)
	opts := smallOptions()
	opts.FS = osFS
	_, err := Open("data", opts)
	require.ErrorIs(t, err, syscall.EIO)
	require.False(t, errors.Is(err, engine.ErrCorrupt))
	broken.Store(false)
	e = openOn(t, osFS)
	require.NoError(t, e.Close())
}

// TestDamagedNote checks that a directory with a damaged note isn't opened, because such a note proves nothing about
// other files.
func TestDamagedNote(t *testing.T) {
	t.Parallel()
	sum := func(text string) string {
		return fmt.Sprintf("%08x %s", crc32.Checksum([]byte(text), castagnoli), text)
	}
	for about, text := range map[string]string{
		"empty": "", "no sum": "{}", "another sum": "00000000 {}", "no JSON": sum("{"),
		"no number":                    sum(`{"version":2,"files":[{"name":"000002.log","bytes":1,"crc32c":"x"}]}`),
		"a file that none is noted of": sum(`{"version":2,"files":[{"name":"../secret","bytes":1,"crc32c":"0"}]}`),
	} {
		mem := vfs.NewMem()
		e := openOn(t, mem)
		require.NoError(t, e.Write(ctx, stageBatch(0, "v")))
		require.NoError(t, e.Close())
		f, err := mem.Create("data/"+ledgerName, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = f.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		opts := smallOptions()
		opts.FS = mem
		_, err = Open("data", opts)
		require.ErrorIs(t, err, engine.ErrCorrupt, about)
		require.ErrorContains(t, err, "the other files can't be verified", about)
	}
}
