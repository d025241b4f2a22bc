package pebble

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CrashableFS is a file system in memory that can lose its power, for tests: given as Options.FS, it tracks
// which bytes were synced and which weren't.
type CrashableFS struct {
	*vfs.MemFS
	before atomic.Pointer[func(op, path string)]
}

// NewCrashableFS returns an empty file system.
func NewCrashableFS() *CrashableFS { return &CrashableFS{MemFS: vfs.NewCrashableMem()} }

// Crash returns the files as a power cut at this moment might leave them: everything that was synced, and
// of what wasn't, each piece with a probability of unsynced percent. The file system itself goes on, so
// that an engine on it can be closed.
func (f *CrashableFS) Crash(unsynced int, rng *rand.Rand) *CrashableFS {
	return &CrashableFS{MemFS: f.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng})}
}

// Before calls do with the name and path of each operation before it: "stat", "mkdir", "create", or "link" with the new path; until
// Before is called again. nil calls nothing.
func (f *CrashableFS) Before(do func(op, path string)) {
	if do == nil {
		do = func(string, string) {}
	}
	f.before.Store(&do)
}

func (f *CrashableFS) call(op, path string) {
	if do := f.before.Load(); do != nil {
		(*do)(op, path)
	}
}

// Stat implements vfs.FS.
func (f *CrashableFS) Stat(name string) (vfs.FileInfo, error) {
	f.call("stat", name)
	return f.MemFS.Stat(name)
}

// MkdirAll implements vfs.FS.
func (f *CrashableFS) MkdirAll(path string, perm os.FileMode) error {
	f.call("mkdir", path)
	return f.MemFS.MkdirAll(path, perm)
}

// Create implements vfs.FS.
func (f *CrashableFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.call("create", name)
	return f.MemFS.Create(name, category)
}

// Link implements vfs.FS.
func (f *CrashableFS) Link(oldname, newname string) error {
	f.call("link", newname)
	return f.MemFS.Link(oldname, newname)
}

// ReuseForWrite implements vfs.FS. MemFS' own takes a lock twice, which a Crash between waits for, and is waited for.
func (f *CrashableFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, fmt.Errorf("pebble: reuse %s: %w", oldname, err)
	}
	return f.OpenReadWrite(newname, category)
}
