// Package memory is an engine that keeps wide rows in sorted slices in memory. Tests compare other engines with it, and
// use it where they need no files. It implements the guarantees of package engine exactly, including the timestamps of
// deletes, and is written for readability, not for speed.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// Engine keeps wide rows in memory.
type Engine struct {
	mu     sync.RWMutex
	tables map[byte][]*partition // by table ID; partitions sorted by their keys
	closed bool
	drops  uint64 // the number of drops
	// now is the clock by which rows expire. If it is nil, rows don't expire.
	now func() time.Time
}

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Versioned = (*Engine)(nil)
	_ engine.Clearing  = (*Engine)(nil)
)

type partition struct {
	key    engine.Key
	rows   []row  // sorted by their keys
	writes uint64 // the number of writes
	// ranges are the deleted ranges. A later write to a deleted range has no effect unless its timestamp is higher than
	// the timestamp of the delete.
	ranges []deletedRange
}

type row struct {
	key       engine.Key
	value     []byte
	timestamp int64
	deleted   bool // at timestamp
	expires   int64
}

type deletedRange struct {
	from, to  engine.Key
	timestamp int64
}

// New returns an empty engine.
func New() *Engine { return &Engine{tables: map[byte][]*partition{}} }

func (e *Engine) Write(ctx context.Context, batches []engine.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	if err := e.check(batches); err != nil {
		return err
	}
	for i := range batches {
		if e.now != nil && batches[i].Expires != 0 && batches[i].Expires <= e.now().Unix() {
			return fmt.Errorf("%w: a batch for %s", engine.ErrExpired, batches[i].Table)
		}
	}
	for _, b := range batches {
		p := e.partition(b.Table, b.Partition)
		p.writes++
		for _, m := range b.Mutations {
			if m.Op == engine.Clear {
				p.clear(m.Clustering, m.To)
			}
		}
		for _, m := range b.Mutations {
			if m.Op != engine.Clear {
				p.apply(m, e.expiry(&b))
			}
		}
	}
	return nil
}

func (e *Engine) check(batches []engine.Batch) error {
	if e.TakesClear() {
		return engine.CheckClearing(batches)
	}
	return engine.CheckBatches(batches)
}

// TakesClear implements engine.Clearing. An engine whose rows expire imitates a server, which doesn't support Clear.
func (e *Engine) TakesClear() bool { return e.now == nil }

// clear removes the rows from one key to another. It keeps the records of deletes, so that a write that a delete has
// removed can't appear later.
func (p *partition) clear(from, to engine.Key) {
	p.rows = slices.DeleteFunc(p.rows, func(r row) bool {
		return !r.deleted && engine.Compare(from, r.key) <= 0 && engine.Compare(r.key, to) <= 0
	})
}

// expiry returns the time at which the rows of a batch expire, or 0 if they don't.
func (e *Engine) expiry(b *engine.Batch) int64 {
	if e.now == nil {
		return 0
	}
	return b.Expires
}

func (p *partition) apply(m engine.Mutation, expires int64) {
	if m.Op == engine.DeleteRange {
		d := deletedRange{from: m.Clustering.Clone(), to: m.To.Clone(), timestamp: m.Timestamp}
		p.ranges = append(p.ranges, d)
		p.rows = slices.DeleteFunc(p.rows, d.covers)
		return
	}
	written := row{key: m.Clustering.Clone(), timestamp: m.Timestamp, deleted: m.Op == engine.Delete}
	if !written.deleted {
		written.expires = expires
		written.value = append([]byte{}, m.Value...)
	}
	for _, d := range p.ranges {
		if d.covers(written) {
			return
		}
	}
	i, found := p.find(m.Clustering)
	switch {
	case !found:
		p.rows = slices.Insert(p.rows, i, written)
	case written.wins(p.rows[i]):
		p.rows[i] = written
	}
}

// wins reports whether r replaces other, in any order of their writes.
func (r row) wins(other row) bool {
	switch {
	case r.timestamp != other.timestamp:
		return r.timestamp > other.timestamp
	case r.deleted != other.deleted:
		return r.deleted
	}
	if wins, same := r.outlives(other); !same {
		return wins
	}
	return bytes.Compare(r.value, other.value) > 0
}

func (d deletedRange) covers(r row) bool {
	return r.timestamp <= d.timestamp && engine.Compare(d.from, r.key) <= 0 && engine.Compare(r.key, d.to) <= 0
}

// find returns the index at which a row is or would be inserted, and whether it exists.
func (p *partition) find(key engine.Key) (int, bool) {
	return sort.Find(len(p.rows), func(i int) int { return engine.Compare(key, p.rows[i].key) })
}

// partition returns a partition, and creates it if necessary. The caller must hold e.mu for writing.
func (e *Engine) partition(t *engine.Table, key engine.Key) *partition {
	partitions := e.tables[t.ID]
	i, found := findPartition(partitions, key)
	if !found {
		partitions = slices.Insert(partitions, i, &partition{key: key.Clone()})
		e.tables[t.ID] = partitions
	}
	return partitions[i]
}

func findPartition(partitions []*partition, key engine.Key) (int, bool) {
	return sort.Find(len(partitions), func(i int) int { return engine.Compare(key, partitions[i].key) })
}

// ForgetDeletes removes all records of deletes, as Cassandra does after some time. Later writes are then applied even
// if an earlier delete has a higher timestamp.
func (e *Engine) ForgetDeletes() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, partitions := range e.tables {
		for _, p := range partitions {
			p.ranges = nil
			p.rows = slices.DeleteFunc(p.rows, func(r row) bool { return r.deleted })
		}
	}
}

func (e *Engine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return yieldEach(ctx, func() ([]engine.Row, error) { return e.read(&r) })
}

// yieldEach yields the elements that list returns, until ctx ends.
func yieldEach[T any](ctx context.Context, list func() ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		all, err := list()
		for i := 0; err == nil && i < len(all); i++ {
			if err = ctx.Err(); err == nil && !yield(all[i], nil) {
				return
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

// read returns the rows of a range. It doesn't copy keys and values, because they are never modified in place.
func (e *Engine) read(r *engine.Range) ([]engine.Row, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	if err := engine.CheckRange(r); err != nil {
		return nil, err
	}
	partitions := e.tables[r.Table.ID]
	i, found := findPartition(partitions, r.Partition)
	if !found {
		return nil, nil
	}
	var rows []engine.Row
	for _, row := range partitions[i].rows {
		if r.Limit > 0 && len(rows) == r.Limit {
			break
		}
		if row.deleted || e.expired(row) || engine.Compare(row.key, r.From) < 0 || engine.Compare(row.key, r.To) > 0 {
			continue
		}
		out := engine.Row{Clustering: row.key, Value: row.value}
		if r.KeysOnly {
			out.Value = nil
		}
		rows = append(rows, out)
	}
	return rows, nil
}

func (e *Engine) Partitions(ctx context.Context, t *engine.Table, prefix engine.Key,
	_ func(engine.Damage)) iter.Seq2[engine.Key, error] {
	return yieldEach(ctx, func() ([]engine.Key, error) { return e.occupied(t, prefix) })
}

// occupied returns the keys of the partitions that have rows and whose keys start with prefix. It doesn't copy keys,
// because they are never modified in place.
func (e *Engine) occupied(t *engine.Table, prefix engine.Key) (keys []engine.Key, err error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	if err := engine.CheckPartitions(t, prefix); err != nil {
		return nil, err
	}
	for _, p := range e.tables[t.ID] {
		if engine.Compare(p.key, prefix) == 0 &&
			slices.ContainsFunc(p.rows, func(r row) bool { return !r.deleted && !e.expired(r) }) {
			keys = append(keys, p.key)
		}
	}
	return keys, nil
}

func (e *Engine) Drop(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	if err := engine.CheckDrop(t, prefix); err != nil {
		return err
	}
	if e.now != nil {
		return nil
	}
	e.drops++
	e.tables[t.ID] = slices.DeleteFunc(e.tables[t.ID], func(p *partition) bool {
		return engine.Compare(p.key, prefix) == 0
	})
	return nil
}

func (e *Engine) CompareAndSet(ctx context.Context, t *engine.Table, key, clustering engine.Key, old,
	value []byte) (bool, []byte, error) {
	if err := ctx.Err(); err != nil {
		return false, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, nil, engine.ErrClosed
	}
	if err := engine.CheckCompareAndSet(t, key, clustering, value); err != nil {
		return false, nil, err
	}
	p := e.partition(t, key)
	i, found := p.find(clustering)
	written := row{key: clustering.Clone(), value: append([]byte{}, value...)}
	switch {
	case !found && old == nil:
		p.rows = slices.Insert(p.rows, i, written)
	case found && old != nil && bytes.Equal(p.rows[i].value, old):
		p.rows[i] = written
	case found:
		return false, bytes.Clone(p.rows[i].value), nil
	default:
		return false, nil, nil
	}
	return true, nil, nil
}

func (e *Engine) Version(t *engine.Table, partition engine.Key) (version uint64, ok bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !t.Remembered || e.now != nil || engine.CheckKey(t.Partition, partition, false) != nil {
		return 0, false
	}
	version = e.drops << 32
	if i, found := findPartition(e.tables[t.ID], partition); found {
		version += e.tables[t.ID][i].writes
	}
	return version, true
}

func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	e.closed = true
	return nil
}
