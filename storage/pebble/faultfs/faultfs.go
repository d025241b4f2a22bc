// Package faultfs provides the operating system's file system with injected faults, for tests.
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
	// Fail is called before each operation. If it returns an error, the operation fails with that error.
	Fail func(op FileOp, path string) error
	// Free returns the number of free bytes. If Free is nil or ok is false, the disk's own number is used.
	Free func() (bytes uint64, ok bool)
}

// New returns the operating system's file system with the faults of r.
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
