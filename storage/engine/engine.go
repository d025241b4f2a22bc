// Package engine defines the interface between the store and the engine that keeps its rows: Pebble in the process, or
// a Cassandra cluster. The interface has only wide rows. Samples, slots and chunks are concepts of package storage,
// whose packages are the callers.
//
//	           Write                    Scan
//	storage ───────────► partition ◄───────────── storage
//	                     ├ row  clustering key → value
//	                     ├ row
//	                     └ row      Drop(window) removes partitions
//
// The guarantees are those that both kinds of engines can give. There is no order between partitions, no transaction
// over two of them, and after a failed write its effect is unknown. Package enginetest has the tests that every engine
// must pass. Tables are declared in tables.go; their IDs and key fields are part of the stored format and can't change.
package engine

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Limits that every engine checks before a write. They fit Cassandra's defaults.
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
	// ErrCorrupt means that stored bytes differ from the written ones. The error contains their location.
	ErrCorrupt = errors.New("engine: stored data is damaged")
	// ErrExpired means that the expiry time of a batch has passed. Nothing was written.
	ErrExpired = errors.New("engine: the rows have expired")
	// ErrUnavailable means that the engine can't serve the request now. The caller may retry it later.
	ErrUnavailable = errors.New("engine: unavailable")
)

// Engine stores wide rows. Its methods may be called concurrently.
type Engine interface {
	// Write applies batches and returns nil when all of them are durable: on stable storage, or on as many nodes as the
	// consistency level requires. Each batch is applied atomically. Batches are applied in any order, and not
	// atomically together. After an error each batch may have been applied, may be applied later, or never. To settle
	// that for a Put, the caller writes a Delete or DeleteRange with the same or a higher timestamp. After that Write
	// has returned nil, the row doesn't exist and will not appear later. Writing no batches returns nil. The engine
	// keeps no reference to batches.
	Write(ctx context.Context, batches []Batch) error

	// Scan yields the rows of one partition in the order of their clustering keys. It sees every write that had
	// returned nil before the iteration started. A partition without rows yields nothing. An error comes with a zero
	// Row and ends the iteration. A row's key and value are valid until the next row is yielded; the caller must copy
	// them to keep them.
	Scan(ctx context.Context, r Range) iter.Seq2[Row, error]

	// Partitions yields the partition keys of a table that start with prefix, in any order. A key may be yielded more
	// than once. It yields all partitions that have rows throughout the iteration, and no partitions that never had
	// rows. A key is valid until the next one is yielded. An error comes with a nil Key and ends the iteration. damaged
	// is called like Range.Damaged, with the keys of the partitions next to the unreadable rows as After and Before.
	// The table must not be Conditional. An engine on a server reads the whole table.
	Partitions(ctx context.Context, t *Table, prefix Key, damaged func(Damage)) iter.Seq2[Key, error]

	// Drop removes all rows of the partitions whose keys start with prefix, immediately or in the background. Engines
	// in which rows expire do nothing.
	Drop(ctx context.Context, t *Table, prefix Key) error

	// CompareAndSet writes value to a row of a Conditional table if the row's current value is old (nil: the row
	// doesn't exist). It returns whether it did and, if not, the current value. After an error the value may have been
	// set or not.
	CompareAndSet(ctx context.Context, t *Table, partition, clustering Key, old, value []byte) (ok bool,
		found []byte, err error)

	// Close releases all resources. Calls under way may return ErrClosed. Closing twice is an error.
	Close() error
}

type makesRoom struct{}

// MakingRoom returns a context for writes that are needed to remove data, such as the tombstone of a delete. An engine
// that rejects writes before the disk is full lets these writes use most of the remaining space.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makesRoom{}, true)
}

// MakesRoom reports whether a context was returned by MakingRoom.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makesRoom{}) != nil }

// Batch is an atomic write to one partition. Its max size is MaxBatch.
type Batch struct {
	Table     *Table
	Partition Key
	Mutations []Mutation
	// Expires is the time from which the rows put by the batch may expire, in seconds since 1970; 0: never. If this
	// time has passed by the engine's clock, engines in which rows expire return ErrExpired and write nothing.
	Expires int64
}

// Op is the kind of a mutation.
type Op uint8

const (
	// Put writes the row.
	Put Op = iota
	// Delete removes the row Clustering if its timestamp isn't higher than this one.
	Delete
	// DeleteRange removes the rows from Clustering to To, both included, whose timestamps aren't higher than this one.
	// The two keys differ only in their last field, which must be an integer.
	DeleteRange
	// Clear removes the rows from Clustering to To, both included and compared as in Range, regardless of their
	// timestamps, including rows of converging tables. Each key has at least one field. It is applied before the other
	// mutations of its batch and atomically with them, so the rows that these put exist afterwards, even if Clear has
	// removed newer ones. Its Timestamp and Value are ignored. Only engines in the process support it, see Clearing;
	// others return ErrBadWrite.
	Clear
)

// Mutation writes or deletes rows in a batch's partition.
type Mutation struct {
	Op         Op
	Clustering Key
	To         Key
	// Timestamp decides between writes to the same row, in microseconds. At the same timestamp a delete wins.
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
	// KeysOnly leaves the values of rows nil if the engine can then avoid reading them.
	KeysOnly bool
	// Limit is the max number of rows to yield; 0: all.
	Limit int
	// Damaged, if set, is called with ranges of rows that can't be read and may exist, and the scan continues after
	// them. If it is nil, such a range ends the scan with ErrCorrupt. It is called in the order of the keys, on the
	// goroutine that iterates. Engines whose servers handle damage of their disks never call it.
	Damaged func(Damage)
}

// Damage is a range of keys whose rows can't be read, because stored bytes differ from the written ones. The range may
// have no rows or many.
type Damage struct {
	// After and Before are the complete clustering keys (for Partitions, the partition keys) of the readable rows next
	// to the gap; nil: the gap extends to the start or the end of the scan's range. The callee may keep them.
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
	// then no write was applied between them, completely or in part, whether or not its caller waited for it. So rows
	// scanned after the first call are still current. ok is false if the version is unknown, for example while a write
	// is under way.
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

// Described is implemented by engines that store a description with which an incompatible release can reject the files
// before it opens them.
type Described interface {
	// DescribeStore replaces the description of the store, a JSON text, and returns when it is durable. When the engine
	// is opened, the description is presented before anything is written. It must therefore be written before the first
	// row that an older release may not support.
	DescribeStore(ctx context.Context, description []byte) error
}

// Caching is implemented by engines with a cache of rows.
type Caching interface {
	// ReadOnce is a hint that most rows read until done is called are read only once, so that they don't
	// displace others from the cache.
	ReadOnce() (done func())
}

// Prober is implemented by engines that can check whether multiple partitions have rows at a lower cost than a Scan of
// each.
type Prober interface {
	// Occupied reports per partition of a table whether a Scan of it would yield a row. The keys of the
	// partitions must differ in exactly one field, an integer; otherwise it returns ErrBadKey. The table must not be
	// Conditional.
	Occupied(ctx context.Context, t *Table, partitions []Key) ([]bool, error)
}

// SeveralScanner is implemented by engines that can scan multiple partitions at a lower cost than a Scan of each.
type SeveralScanner interface {
	// ScanSeveral yields the rows that a Scan of each partition would yield: rows of one partition in the order of
	// keys, and the partitions in any order. The partitions must be distinct, and their keys must differ in exactly one
	// field, a text; otherwise it yields ErrBadKey. The table must not be Conditional. r is the range in each
	// partition, without Partition. r.Limit applies to each partition, and r.Damaged isn't called.
	ScanSeveral(ctx context.Context, r Range, partitions []Key) iter.Seq2[RowOf, error]
}

// RowOf is a row of one of multiple partitions, with the partition's index in their list.
type RowOf struct {
	Row
	At int
}

// Clock is implemented by engines on other machines with their own clock.
type Clock interface {
	// Clock returns the time on the engine's machine.
	Clock(ctx context.Context) (time.Time, error)
}
