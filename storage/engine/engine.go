// Package engine defines the interface between the store and the engine that stores its rows: Pebble within the
// process, or a Cassandra cluster. An engine only has wide rows. Samples, slots and chunks are concepts of package
// storage and the packages below it, which call the engine.
//
//	           Write                    Scan
//	storage ───────────► partition ◄───────────── storage
//	                     ├ row  clustering key → value
//	                     ├ row
//	                     └ row      Drop(window) removes partitions
//
// The interface guarantees only what both kinds of engines can guarantee. Partitions have no order, no transaction
// covers two partitions, and the effect of a failed write is unknown. Package enginetest contains the tests that every
// engine must pass. Tables are declared in tables.go. Their IDs and key fields are part of the stored format and can't
// change.
package engine

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Limits that every engine checks before a write. They are within Cassandra's default limits.
const (
	// MaxValue is the max size of a row's value in bytes.
	MaxValue = 512 << 10
	// MaxBatch is the max size of a batch in bytes: its values plus its keys.
	MaxBatch = 1 << 20
	// MaxKeyText is the max size of a KindText field in bytes.
	MaxKeyText = 16 << 10
)

var (
	// ErrBadKey means that a key doesn't match the declaration of its table.
	ErrBadKey = errors.New("engine: the key doesn't match its table")
	// ErrBadWrite means that a table doesn't support this kind of write, which is a bug of the caller. Nothing was
	// written.
	ErrBadWrite = errors.New("engine: the table doesn't support this write")
	// ErrTooLarge means that a value or a batch exceeds its limit. Nothing was written.
	ErrTooLarge = errors.New("engine: too large")
	// ErrLocked means that another process has the engine's files open.
	ErrLocked = errors.New("engine: in use by another process")
	// ErrClosed means that the engine was closed.
	ErrClosed = errors.New("engine: closed")
	// ErrCorrupt means that stored bytes differ from the bytes that were written. The error contains their location.
	ErrCorrupt = errors.New("engine: stored data is damaged")
	// ErrExpired means that the expiry time of a batch has passed. Nothing was written.
	ErrExpired = errors.New("engine: the rows have expired")
	// ErrUnavailable means that the engine can't serve the request now. The caller may retry it later.
	ErrUnavailable = errors.New("engine: unavailable")
)

// Engine stores wide rows. Its methods may be called concurrently.
type Engine interface {
	// Write applies batches and returns nil when all of them are durable: on stable storage, or on as many nodes as the
	// consistency level requires. Each batch is applied atomically, but multiple batches are applied in any order and
	// not atomically together. Writing no batches returns nil. The engine keeps no reference to batches.
	//
	// After an error, each batch may have been applied, may be applied later, or may never be applied. To make sure
	// that a failed Put has no effect, the caller writes a Delete or DeleteRange with the same or a higher timestamp.
	// Once that Write has returned nil, the row doesn't exist and won't appear later.
	Write(ctx context.Context, batches []Batch) error

	// Scan yields the rows of one partition in the order of their clustering keys. It includes every write that had
	// returned nil before the iteration started. A partition without rows yields nothing. An error is yielded with a
	// zero Row and ends the iteration. A row's key and value are valid until the next row is yielded; the caller must
	// copy them to keep them.
	Scan(ctx context.Context, r Range) iter.Seq2[Row, error]

	// Partitions yields the partition keys of a table that start with prefix, in any order, some of them possibly more
	// than once. It yields all partitions that have rows throughout the iteration, and no partition that never had
	// rows. A key is valid until the next key is yielded. An error is yielded with a nil Key and ends the iteration.
	// damaged is called like Range.Damaged, with After and Before set to the keys of the partitions next to the
	// unreadable rows. The table must not be Conditional. An engine on a server reads the whole table.
	Partitions(ctx context.Context, t *Table, prefix Key, damaged func(Damage)) iter.Seq2[Key, error]

	// Drop removes all rows of the partitions whose keys start with prefix, immediately or in the background. Engines
	// in which rows expire do nothing.
	Drop(ctx context.Context, t *Table, prefix Key) error

	// CompareAndSet writes value to a row of a Conditional table if the row's current value is old. If old is nil, it
	// writes the row if the row doesn't exist. It returns whether it has written and, if not, the current value. After
	// an error the value may or may not have been written.
	CompareAndSet(ctx context.Context, t *Table, partition, clustering Key, old, value []byte) (ok bool,
		found []byte, err error)

	// Close releases all resources. Calls in progress may return ErrClosed. Closing twice is an error.
	Close() error
}

type makesRoom struct{}

// WithMakingRoom returns a context for writes that are needed to remove data, such as the tombstone of a delete. An
// engine that rejects other writes before the disk is full lets these writes use most of the remaining space.
func WithMakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makesRoom{}, true)
}

// MakesRoom reports whether a context was returned by WithMakingRoom.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makesRoom{}) != nil }

// Batch is an atomic write to one partition. Its max size is MaxBatch.
type Batch struct {
	Table     *Table
	Partition Key
	Mutations []Mutation
	// Expires is the time after which the rows that the batch puts may expire, in seconds since 1970. 0 means never. If
	// this time has passed by the engine's clock, engines in which rows expire return ErrExpired and write nothing.
	Expires int64
}

// Op is the kind of a mutation.
type Op uint8

const (
	// Put writes the row.
	Put Op = iota
	// Delete removes the row with key Clustering, unless the row's timestamp is higher than the delete's.
	Delete
	// DeleteRange removes the rows from Clustering to To, both included, except rows whose timestamps are higher than
	// the mutation's. The two keys differ only in their last field, which must be an integer.
	DeleteRange
	// Clear removes the rows from Clustering to To, both included and compared as in Range, regardless of their
	// timestamps, including rows of converging tables. Each of the two keys has at least one field. Clear is applied
	// before the other mutations of its batch and atomically with them, so rows that the batch puts exist afterwards,
	// even if Clear has removed newer rows. Its Timestamp and Value are ignored. Only engines within the process
	// support Clear, see Clearing. Others return ErrBadWrite.
	Clear
)

// Mutation writes or deletes rows in a batch's partition.
type Mutation struct {
	Op         Op
	Clustering Key
	To         Key
	// Timestamp, in microseconds, decides between writes to the same row: the highest wins. At the same timestamp a
	// delete wins.
	Timestamp int64
	Value     []byte
}

// Range selects the rows of one partition whose clustering keys are between From and To, both included. Keys are
// compared field by field up to the end of the shorter one: To = (1) includes every row whose first field is 1. An
// empty From or To means no bound.
type Range struct {
	Table     *Table
	Partition Key
	From, To  Key
	// KeysOnly allows the engine to leave the values of rows nil, if it can then avoid reading them.
	KeysOnly bool
	// Limit is the max number of rows to yield. 0 means all.
	Limit int
	// Damaged, if set, is called for each range of keys whose rows are unreadable, and the scan continues after the
	// range. If Damaged is nil, an unreadable range ends the scan with ErrCorrupt. Damaged is called in the order of
	// the keys, on the goroutine that iterates. Engines whose servers handle damage of their disks never call Damaged.
	Damaged func(Damage)
}

// Damage is a range of keys whose rows can't be read, because stored bytes differ from the bytes that were written. The
// range may contain any number of rows, including none.
type Damage struct {
	// After and Before are the complete clustering keys of the readable rows next to the range (in Partitions, the keys
	// of the partitions next to it). If one of them is nil, the range extends to the start or the end of the scan. The
	// callee may keep them.
	After, Before Key
	// Err is an ErrCorrupt that contains the name of the file.
	Err error
}

// Row is a row yielded by Scan.
type Row struct {
	// Clustering is the complete clustering key.
	Clustering Key
	Value      []byte
}

// Versioned is implemented by engines whose rows are changed only through the engine: no other process writes rows, and
// rows don't expire.
type Versioned interface {
	// Version returns the version of a partition of a table with Remembered set. If two calls return the same version,
	// no write was applied between them, completely or in part, even if the writer got an error or didn't wait. Rows
	// scanned after the first call are then still current. ok is false if the version is unknown, for example while a
	// write is in progress.
	Version(t *Table, partition Key) (version uint64, ok bool)
}

// Clearing is implemented by engines that may support Clear.
type Clearing interface {
	// TakesClear reports whether the engine supports Clear.
	TakesClear() bool
}

// Measured is implemented by engines that can estimate the size of rows.
type Measured interface {
	// Usage estimates the bytes of the rows whose partition keys start with prefix.
	Usage(ctx context.Context, t *Table, prefix Key) (bytes uint64, err error)
}

// Described is implemented by engines that store a description of the store. A release that doesn't support the store
// can reject it by its description before it opens the files.
type Described interface {
	// DescribeStore replaces the description of the store, a JSON text, and returns when it is durable. When the engine
	// is opened, the description is checked before anything is written. The caller must therefore call DescribeStore
	// before it writes the first row that an older release may not support.
	DescribeStore(ctx context.Context, description []byte) error
}

// Caching is implemented by engines with a cache of rows.
type Caching interface {
	// ReadOnce is a hint that most of the rows that are read from now until done is called won't be read again. The
	// engine then doesn't evict other rows from the cache in favor of these rows.
	ReadOnce() (done func())
}

// Prober is implemented by engines that can check whether multiple partitions have rows at a lower cost than by one
// Scan per partition.
type Prober interface {
	// Occupied reports for each partition in the list whether a Scan of it would yield a row. The keys of the
	// partitions must differ in exactly one field, an integer. Otherwise Occupied returns ErrBadKey. The table must not
	// be Conditional.
	Occupied(ctx context.Context, t *Table, partitions []Key) ([]bool, error)
}

// SeveralScanner is implemented by engines that can scan multiple partitions at a lower cost than by one Scan per
// partition.
type SeveralScanner interface {
	// ScanSeveral yields the rows that a Scan of each partition would yield: the rows of one partition in the order of
	// their keys, and the partitions in any order. The partitions must be distinct, and their keys must differ in
	// exactly one field, a text. Otherwise ScanSeveral yields ErrBadKey. The table must not be Conditional. r, without
	// Partition, is the range in each partition. r.Limit applies to each partition, and r.Damaged isn't called.
	ScanSeveral(ctx context.Context, r Range, partitions []Key) iter.Seq2[RowOf, error]
}

// RowOf is a row that ScanSeveral yields, with the index of its partition in the list of partitions.
type RowOf struct {
	Row
	At int
}

// Clock is implemented by engines that run on other machines with clocks of their own.
type Clock interface {
	// Clock returns the time on the engine's machine.
	Clock(ctx context.Context) (time.Time, error)
}
