package pebble

import (
	"context"
	"fmt"
	"iter"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// cancelEvery is the number of rows after which a scan checks whether its context has ended.
const cancelEvery = 64

// Scan implements engine.Engine with one iterator.
func (e *Engine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		if err := e.scan(ctx, &r, yield); err != nil {
			yield(engine.Row{}, err)
		}
	}
}

// scan returns nil if yield returned false.
func (e *Engine) scan(ctx context.Context, r *engine.Range, yield func(engine.Row, error) bool) (err error) {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.release()
	if err := engine.CheckRange(r); err != nil {
		return err
	}
	s := scanner{e: e, ctx: ctx, r: r, yield: yield, d: keyDecoder{key: make(engine.Key, 0, len(r.Table.Clustering))}}
	var lower, upper []byte
	s.partition, lower, upper = rangeBounds(r)
	if r.Damaged != nil {
		return s.yieldReadable(lower, upper)
	}
	_, err = s.yieldRows(lower, upper)
	return err
}

// scanner is a scan under way.
type scanner struct {
	e         *Engine
	ctx       context.Context
	r         *engine.Range
	yield     func(engine.Row, error) bool
	d         keyDecoder
	partition int // the length of the partition's prefix in every key
	n         int // rows yielded
	skip      skip
}

// yieldRows yields the rows from lower (included) to upper (excluded). It returns false if yield returned false.
func (s *scanner) yieldRows(lower, upper []byte) (wanted bool, err error) {
	it, err := s.e.db.NewIterWithContext(s.ctx, &pebbledb.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return true, s.wrap(err)
	}
	wanted = true
	defer func() {
		if cerr := it.Close(); cerr != nil && err == nil && wanted {
			err = s.wrap(cerr)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		if s.r.Limit > 0 && s.n == s.r.Limit {
			return false, nil
		}
		if s.n%cancelEvery == 0 {
			if err := s.ctx.Err(); err != nil {
				return true, err
			}
		}
		if s.e.closed.Load() {
			return true, engine.ErrClosed
		}
		row, err := decodeRow(&s.d, s.r, it, s.partition)
		if s.r.Damaged != nil {
			s.setPosition(it.Key(), row, err)
		}
		if err != nil {
			return true, err
		}
		s.n++
		if !s.yield(row, nil) {
			return false, nil
		}
	}
	return true, s.wrap(it.Error())
}

func (s *scanner) wrap(err error) error { return translateError("scan "+s.r.Table.Name, err) }

// rangeBounds returns the length of the partition's prefix in keys, the first key of r, and the first key after r.
func rangeBounds(r *engine.Range) (partition int, lower, upper []byte) {
	buf := appendPartition(make([]byte, 0, 256), r.Table, r.Partition)
	partition = len(buf)
	lower = appendKey(buf, r.Table.Clustering, r.From)
	upper = append(make([]byte, 0, 256), lower[:partition]...)
	upper = appendKey(upper, r.Table.Clustering, r.To)
	return partition, lower, afterPrefix(upper[:0], upper)
}

func decodeRow(d *keyDecoder, r *engine.Range, it *pebbledb.Iterator, partition int) (row engine.Row, err error) {
	key := it.Key()
	if row.Clustering, err = d.decode(r.Table.Clustering, key[partition:]); err != nil {
		return engine.Row{}, fmt.Errorf("pebble: scan %s: %w: %w", r.Table, engine.ErrCorrupt, err)
	}
	if r.KeysOnly {
		return row, nil
	}
	if row.Value, err = it.ValueAndErr(); err != nil {
		return engine.Row{}, translateError("scan "+r.Table.Name, err)
	}
	if !r.Table.Converging {
		return row, nil
	}
	if len(row.Value) < timestampLen {
		return engine.Row{}, fmt.Errorf("pebble: scan %s: %w: no timestamp in the value of %x",
			r.Table, engine.ErrCorrupt, key)
	}
	row.Value = row.Value[timestampLen:]
	return row, nil
}
