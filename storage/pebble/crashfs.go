package pebble

import (
	"fmt"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CrashableFS is a file system in memory that can lose its power, for tests: given as Options.FS, it tracks
// which bytes were synced and which weren't.
type CrashableFS struct{ *vfs.MemFS }

// NewCrashableFS returns an empty file system.
func NewCrashableFS() *CrashableFS { return &CrashableFS{vfs.NewCrashableMem()} }

// Crash returns the files as a power cut at this moment might leave them: everything that was synced, and
// of what wasn't, each piece with a probability of unsynced percent. The file system itself goes on, so
// that an engine on it can be closed.
func (f *CrashableFS) Crash(unsynced int, rng *rand.Rand) *CrashableFS {
	return &CrashableFS{f.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng})}
}

// ReuseForWrite implements vfs.FS. MemFS' own takes a lock twice, which a Crash between waits for, and is waited for.
func (f *CrashableFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, fmt.Errorf("pebble: reuse %s: %w", oldname, err)
	}
	return f.OpenReadWrite(newname, category)
}
