// Package engine is the seam between the store and what keeps its rows: Pebble in the process, or a
// Cassandra cluster. It speaks of wide rows only; samples, slots and chunks are the store's words.
//
//	           Write                    Scan
//	storage ───────────► partition ◄───────────── storage
//	                     ├ row  clustering key → value
//	                     ├ row
//	                     └ row      Drop(window) removes partitions
//
// An engine promises little, so that both kinds can keep it: no order between partitions, no transaction
// over two of them, no answer about what a failed write has left behind.
package engine

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Limits, checked by every engine before a write. They fit Cassandra's defaults.
const (
	// MaxValue is the greatest size of a row's value, bytes.
	MaxValue = 512 << 10
	// MaxBatch is the greatest size of a batch, bytes: its values plus its keys.
	MaxBatch = 1 << 20
	// MaxKeyText is the greatest size of one KindText field, bytes.
	MaxKeyText = 16 << 10
)

var (
	// ErrBadKey means that a key doesn't fit its table's declaration.
	ErrBadKey = errors.New("engine: the key doesn't match its table")
	// ErrBadWrite means that a table doesn't take this kind of write: a bug of the caller. Nothing was written.
	ErrBadWrite = errors.New("engine: the table doesn't support this write")
	// ErrTooLarge means that a value or a batch is over its limit; nothing was written.
	ErrTooLarge = errors.New("engine: too large")
	// ErrLocked means that another process has the engine's files open.
	ErrLocked = errors.New("engine: in use by another process")
	// ErrClosed means that the engine was closed.
	ErrClosed = errors.New("engine: closed")
	// ErrCorrupt means that stored bytes aren't those that were written. The error names where they are.
	ErrCorrupt = errors.New("engine: stored data is damaged")
	// ErrExpired means that the time at which the rows of a batch expire has passed; nothing was written.
	ErrExpired = errors.New("engine: the rows have expired")
	// ErrUnavailable means that the engine can't answer now; trying again later makes sense.
	ErrUnavailable = errors.New("engine: unavailable")
)

// Engine keeps wide rows. All methods may be called from many goroutines at once.
type Engine interface {
	// Write applies batches and returns nil when every one of them is durable: on stable storage, or on
	// as many nodes as the consistency level asks for. Each batch is applied atomically; between
	// batches nothing is promised. After an error every batch may have been applied, may be applied
	// later, or never. A Delete or DeleteRange that is written after that, with the timestamp of a Put among
	// them or a greater one, settles it when Write has returned nil: the row isn't there, and never comes to be.
	// Writing nothing returns nil. The engine keeps no reference to batches.
	Write(ctx context.Context, batches []Batch) error

	// Scan yields the rows of one partition in the order of their clustering keys. It sees every write
	// that had returned nil before Scan began to be iterated. A partition without rows yields nothing.
	// After an error, which comes with a zero Row, nothing more is yielded. A row's key and value are
	// valid until the next one is asked for: keep copies.
	Scan(ctx context.Context, r Range) iter.Seq2[Row, error]

	// Partitions yields the partition keys of a table that start with prefix, in any order; a key may come more than once. Partitions that
	// have rows throughout the iteration are yielded, partitions that never had rows are not. A key is valid until the next one is asked
	// for. After an error, which comes with a nil Key, nothing more is yielded. damaged is called as Range.Damaged is, with the
	// keys of the partitions next to the unreadable rows as After and Before. The table isn't Conditional. A server reads the whole table.
	Partitions(ctx context.Context, t *Table, prefix Key, damaged func(Damage)) iter.Seq2[Key, error]

	// Drop removes all rows of the partitions whose keys start with prefix, at once or in the
	// background; engines that expire rows by themselves do nothing.
	Drop(ctx context.Context, t *Table, prefix Key) error

	// CompareAndSet writes value in a row of a Conditional table if the row's value is old (nil: there
	// is no row). It returns whether it did, and the row's value as found when it did not. After an
	// error the value may have been set or not.
	CompareAndSet(ctx context.Context, t *Table, partition, clustering Key, old, value []byte) (ok bool, found []byte, err error)

	// Close releases everything. Calls under way may return ErrClosed. Closing twice is an error.
	Close() error
}

type makesRoom struct{}

// MakingRoom returns a context for writes that are needed to remove data, such as the tombstone of a delete: an engine that refuses to fill
// its disk to the end lets them have most of the space that is left.
func MakingRoom(ctx context.Context) context.Context {
	return context.WithValue(ctx, makesRoom{}, true)
}

// MakesRoom reports whether a context is one of MakingRoom's.
func MakesRoom(ctx context.Context) bool { return ctx.Value(makesRoom{}) != nil }

// Batch is an atomic write to one partition, at most MaxBatch bytes.
type Batch struct {
	Table     *Table
	Partition Key
	Mutations []Mutation
	// Expires is when the rows that the batch puts may expire, seconds since 1970; 0: never. Engines that expire rows by themselves return
	// ErrExpired where it has passed by their clock, and write nothing.
	Expires int64
}

// Op is what a mutation does.
type Op uint8

const (
	// Put writes the row.
	Put Op = iota
	// Delete removes the row Clustering, if it was written with this Timestamp or an earlier one.
	Delete
	// DeleteRange removes the rows from Clustering to To, both included, which differ in the last field
	// only (an integer), if they were written with this Timestamp or an earlier one.
	DeleteRange
	// Clear removes the rows from Clustering to To, both included and, as in Range, compared as far as they go, whatever
	// their timestamps are and of converging tables, too. Each has at least one field. It is applied before the other mutations
	// of its batch, all at once with them: their rows stand also where it has removed newer ones. Its Timestamp and Value don't
	// count. Only engines within the process take it, see Clearing: others return ErrBadWrite.
	Clear
)

// Mutation writes or deletes within a batch's partition.
type Mutation struct {
	Op         Op
	Clustering Key
	To         Key
	// Timestamp decides between writes to one row, microseconds. At one timestamp a delete wins.
	Timestamp int64
	Value     []byte
}

// Range names the rows of one partition whose clustering keys lie between From and To, both included
// and compared field by field as far as they go: To = (1) includes every row whose first field is 1.
// An empty From or To sets no bound.
type Range struct {
	Table     *Table
	Partition Key
	From, To  Key
	// KeysOnly leaves the rows' values nil where that saves reading them.
	KeysOnly bool
	// Limit is the greatest number of rows to yield; 0: all.
	Limit int
	// Damaged, if set, is called with ranges of rows that may be there and can't be read, and the scan goes on after them;
	// otherwise they end it with ErrCorrupt. It is called between the rows that it names, on the goroutine that iterates. Engines
	// whose servers answer for their own disks never call it.
	Damaged func(Damage)
}

// Damage is a range of keys whose rows can't be read, because stored bytes aren't those that were written: there may be none, or
// many.
type Damage struct {
	// After and Before are the whole clustering keys, of Partitions the partition keys, of the rows next to the gap that can be read; nil: the gap reaches
	// the beginning or the end of the scan's range. The callee may keep them.
	After, Before Key
	// Err is an ErrCorrupt that names the file.
	Err error
}

// Row is what Scan yields.
type Row struct {
	// Clustering is the row's whole clustering key.
	Clustering Key
	Value      []byte
}

// Versioned is implemented by engines whose rows change through them alone: no other process writes them, and none vanishes by
// itself.
type Versioned interface {
	// Version returns a number of a partition of a table that is Remembered. Where it returns the same one again, what was
	// scanned since it returned it first is what a scan would find now: no write was applied meanwhile, wholly or in part, whether its
	// caller waited for it or not. ok is false if that isn't known, as while a write is under way.
	Version(t *Table, partition Key) (version uint64, ok bool)
}

// Clearing is implemented by engines that may take Clear; others don't.
type Clearing interface {
	// TakesClear reports whether the engine does.
	TakesClear() bool
}

// Measured is implemented by engines that can estimate how many bytes rows take.
type Measured interface {
	// Usage estimates the bytes of the rows of which the partition keys begin with prefix.
	Usage(ctx context.Context, t *Table, prefix Key) (bytes uint64, err error)
}

// Described is implemented by engines whose files can be refused before they are opened.
type Described interface {
	// DescribeStore replaces the description of the rows as a whole, JSON, and returns once it is durable. Opening the engine presents
	// the description before anything is written, so it must be there before rows are that a release may not know.
	DescribeStore(ctx context.Context, description []byte) error
}

// Caching is implemented by engines with a cache of rows that were read.
type Caching interface {
	// ReadOnce announces that most rows that are read until done is called are read once: the cache hardly grows by them.
	ReadOnce() (done func())
}

// Prober is implemented by engines that find out whether several partitions have rows for less than a Scan of each takes.
type Prober interface {
	// Occupied reports of each of some partitions of a table whether a Scan of it would yield a row. They differ in one
	// field of their keys, an integer: else it returns ErrBadKey. The table isn't Conditional.
	Occupied(ctx context.Context, t *Table, partitions []Key) ([]bool, error)
}

// SeveralScanner is implemented by engines that scan several partitions for less than a Scan of each takes.
type SeveralScanner interface {
	// ScanSeveral yields what a Scan of each of some partitions of a table would yield: of one partition in the order of keys, and the partitions
	// in any order. They are different ones, and differ in one field of their keys, a text: else it yields ErrBadKey. The table isn't Conditional. r is the
	// range of each, but for its Partition, and its Limit that of the rows of each; its Damaged isn't called.
	ScanSeveral(ctx context.Context, r Range, partitions []Key) iter.Seq2[RowOf, error]
}

// RowOf is a row of one of several partitions: the one at this place of their list.
type RowOf struct {
	Row
	At int
}

// Clock is implemented by engines on other machines, whose clock is not this process'.
type Clock interface {
	// Clock returns what time it is there.
	Clock(ctx context.Context) (time.Time, error)
}
