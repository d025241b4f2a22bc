package pebble

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CrashableFS is a file system in memory that can lose its power, for tests: given as Options.FS, it knows
// what was synced and what wasn't.
type CrashableFS struct{ *vfs.MemFS }

// NewCrashableFS returns an empty file system.
func NewCrashableFS() *CrashableFS { return &CrashableFS{vfs.NewCrashableMem()} }

// Crash returns the files as a power cut at this moment might leave them: everything that was synced, and
// of what wasn't, each piece with a probability of unsynced percent. The file system itself goes on, so
// that an engine on it can be closed.
func (f *CrashableFS) Crash(unsynced int, rng *rand.Rand) *CrashableFS {
	return &CrashableFS{f.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng})}
}
