// Package faultfs is the operating system's files for tests, with operations that fail by rule.
package faultfs

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// FileOp is a kind of operation on a file or directory.
type FileOp = errorfs.OpKind

// Kinds of operations.
const (
	Create   = errorfs.OpCreate
	Link     = errorfs.OpLink
	Open     = errorfs.OpOpen
	OpenDir  = errorfs.OpOpenDir
	Remove   = errorfs.OpRemove
	Rename   = errorfs.OpRename
	Reuse    = errorfs.OpReuseForWrite
	MkdirAll = errorfs.OpMkdirAll
	Lock     = errorfs.OpLock
	List     = errorfs.OpList
	Read     = errorfs.OpFileRead
	ReadAt   = errorfs.OpFileReadAt
	Write    = errorfs.OpFileWrite
	Sync     = errorfs.OpFileSync
	SyncData = errorfs.OpFileSyncData
	SyncTo   = errorfs.OpFileSyncTo
)

// Faults determines which operations fail.
type Faults struct {
	// Fail is called before each operation, and returns its error; nil: it takes place.
	Fail func(op FileOp, path string) error
	// Free returns the bytes that are free; ok is false where the disk's own are. nil: they always are.
	Free func() (bytes uint64, ok bool)
}

// New returns the operating system's files with failing operations.
func New(r Faults) vfs.FS {
	return errorfs.Wrap(freeFS{vfs.Default, r.Free}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		return r.Fail(op.Kind, op.Path)
	}))
}

type freeFS struct {
	vfs.FS
	free func() (uint64, bool)
}

// GetDiskUsage implements vfs.FS.
func (f freeFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	usage, err := f.FS.GetDiskUsage(path)
	if f.free != nil {
		if free, ok := f.free(); ok {
			usage.AvailBytes = free
		}
	}
	return usage, err
}
