package pebble

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CrashableFS is a file system in memory that can simulate a power failure, for tests. Set as Options.FS, it tracks
// which bytes were synced.
type CrashableFS struct {
	*vfs.MemFS
	before atomic.Pointer[func(op, path string)]
}

// NewCrashableFS returns an empty file system.
func NewCrashableFS() *CrashableFS { return &CrashableFS{MemFS: vfs.NewCrashableMem()} }

// Crash returns the files as a power failure at this moment might leave them: everything that was synced, and each
// unsynced piece with a probability of unsynced percent. The file system itself continues to work, so that an engine on
// it can be closed.
func (f *CrashableFS) Crash(unsynced int, rng *rand.Rand) *CrashableFS {
	return &CrashableFS{MemFS: f.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng})}
}

// Before makes the file system call do before each operation, with the operation's name and path: "stat", "mkdir",
// "create", or "link" with the new path. A later call replaces do; nil stops the calls.
func (f *CrashableFS) Before(do func(op, path string)) {
	if do == nil {
		do = func(string, string) {}
	}
	f.before.Store(&do)
}

func (f *CrashableFS) callHook(op, path string) {
	if do := f.before.Load(); do != nil {
		(*do)(op, path)
	}
}

func (f *CrashableFS) Stat(name string) (vfs.FileInfo, error) {
	f.callHook("stat", name)
	return f.MemFS.Stat(name)
}

func (f *CrashableFS) MkdirAll(path string, perm os.FileMode) error {
	f.callHook("mkdir", path)
	return f.MemFS.MkdirAll(path, perm)
}

func (f *CrashableFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.callHook("create", name)
	return f.MemFS.Create(name, category)
}

func (f *CrashableFS) Link(oldname, newname string) error {
	f.callHook("link", newname)
	return f.MemFS.Link(oldname, newname)
}

// ReuseForWrite implements vfs.FS. MemFS's own method takes a lock twice, which deadlocks with a concurrent Crash.
func (f *CrashableFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, fmt.Errorf("pebble: reuse %s: %w", oldname, err)
	}
	return f.OpenReadWrite(newname, category)
}
