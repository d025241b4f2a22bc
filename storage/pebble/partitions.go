package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// Partitions implements engine.Engine. It reads the first row of each partition, and then seeks to the first key after
// the partition.
func (e *Engine) Partitions(ctx context.Context, t *engine.Table, prefix engine.Key,
	damaged func(engine.Damage)) iter.Seq2[engine.Key, error] {
	return func(yield func(engine.Key, error) bool) {
		if err := e.partitions(ctx, t, prefix, damaged, yield); err != nil {
			yield(nil, err)
		}
	}
}

// partitions lists the partitions. It returns nil if yield returned false.
func (e *Engine) partitions(ctx context.Context, t *engine.Table, prefix engine.Key, damaged func(engine.Damage),
	yield func(engine.Key, error) bool) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.release()
	if err := engine.CheckPartitions(t, prefix); err != nil {
		return err
	}
	lower := appendPartition(nil, t, prefix)
	l := partitionLister{e: e, ctx: ctx, t: t, yield: yield, damaged: damaged}
	return l.listRange(lower, afterPrefix(nil, lower))
}

// partitionLister lists the partitions of a table.
type partitionLister struct {
	e       *Engine
	ctx     context.Context
	t       *engine.Table
	yield   func(engine.Key, error) bool
	damaged func(engine.Damage)

	d    keyDecoder
	last []byte         // the prefix of the keys of the last yielded partition; nil: none
	gap  *engine.Damage // to be reported when the next partition is known
}

// listRange yields the partitions with keys from lower (included) to upper (excluded), and reports gaps between them;
// see scanner.yieldReadable.
func (l *partitionLister) listRange(lower, upper []byte) error {
	end := upper
	var ahead badRange // the range that starts at end, if end isn't upper
	for {
		wanted, err := l.yieldRange(lower, end)
		corrupt := errors.Is(err, engine.ErrCorrupt) && l.damaged != nil
		switch {
		case !wanted || err != nil && !corrupt:
			return err
		case corrupt:
			next := lower
			if after := l.afterLast(); bytes.Compare(after, lower) > 0 {
				next = after
			}
			found, lookErr := l.e.damagedWithin(l.ctx, next, end)
			switch {
			case lookErr != nil:
				return lookErr
			case len(found) > 0 && bytes.Compare(next, found[0].start) < 0:
				lower, end, ahead = next, found[0].start, found[0]
				continue
			case len(found) > 0:
				ahead = found[0]
			// The damage is inside the last partition: an iterator may read more of a partition than its first row.
			case bytes.Compare(lower, next) < 0:
				lower = next
				continue
			case bytes.Equal(end, upper):
				return err // The position after the damage is unknown.
			}
		case bytes.Equal(end, upper):
			l.reportGap(nil)
			return nil
		}
		l.recordMissing(ahead.cause())
		if ahead.end == nil || bytes.Compare(ahead.end, upper) >= 0 {
			l.reportGap(nil)
			return nil
		}
		lower, end = ahead.end, upper
	}
}

// yieldRange yields the partitions with keys from lower (included) to upper (excluded). It returns false if yield
// returned false.
func (l *partitionLister) yieldRange(lower, upper []byte) (wanted bool, err error) {
	it, err := l.e.db.NewIterWithContext(l.ctx, &pebbledb.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return true, l.wrap(err)
	}
	wanted = true
	defer func() {
		if cerr := it.Close(); cerr != nil && err == nil && wanted {
			err = l.wrap(cerr)
		}
	}()
	for ok := it.First(); ok; ok = it.SeekGE(l.afterLast()) {
		if err := l.ctx.Err(); err != nil {
			return true, err
		}
		if l.e.closed.Load() {
			return true, engine.ErrClosed
		}
		key, err := l.decode(it.Key())
		if err != nil {
			return true, err
		}
		l.reportGap(key)
		if !l.yield(key, nil) {
			return false, nil
		}
	}
	return true, l.wrap(it.Error())
}

// decode returns the partition of a row's key, and makes it the last one.
func (l *partitionLister) decode(row []byte) (engine.Key, error) {
	l.d.key, l.d.scratch = l.d.key[:0], l.d.scratch[:0]
	l.last = append(l.last[:0], row...) // The texts of the key refer to it.
	rest := l.last[1:]
	for _, f := range l.t.Partition {
		v, after, err := l.d.cutValue(f.Kind, rest)
		if err != nil {
			return nil, fmt.Errorf("pebble: list partitions of %s: %w: the key %x: %w", l.t,
				engine.ErrCorrupt, row, err)
		}
		l.d.key, rest = append(l.d.key, v), after
	}
	l.last = l.last[:len(l.last)-len(rest)]
	return l.d.key, nil
}

// afterLast returns the first key after the last partition, or nil if there is no last partition.
func (l *partitionLister) afterLast() []byte {
	if l.last == nil {
		return nil
	}
	return afterPrefix(nil, l.last)
}

// recordMissing records that partitions may be missing after the last yielded partition.
func (l *partitionLister) recordMissing(err error) {
	if l.gap != nil {
		return
	}
	l.gap = &engine.Damage{Err: err}
	if l.last != nil {
		l.gap.After = l.d.key.Clone() // l.d.key is the key of the last partition.
	}
}

// reportGap reports the gap before a partition. If before is nil, the gap extends to the end.
func (l *partitionLister) reportGap(before engine.Key) {
	if l.gap == nil {
		return
	}
	l.gap.Before = before.Clone()
	l.damaged(*l.gap)
	l.gap = nil
}

func (l *partitionLister) wrap(err error) error {
	return translateError("list partitions of "+l.t.Name, err)
}
