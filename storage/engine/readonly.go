package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// ErrReadOnly means that the engine or the store is open for reading only. Nothing was written.
var ErrReadOnly = errors.New("engine: opened read-only")

// ReadOnly returns an engine that reads from e and rejects all changes with ErrReadOnly. Its Close doesn't close e.
func ReadOnly(e Engine) Engine {
	if r, ok := e.(readOnly); ok {
		return r
	}
	return readOnly{e}
}

type readOnly struct{ from Engine }

// Write rejects all writes. Writing no batches is allowed.
func (r readOnly) Write(_ context.Context, batches []Batch) error {
	for i := range batches {
		if len(batches[i].Mutations) > 0 {
			return fmt.Errorf("%w: a write to table %s", ErrReadOnly, batches[i].Table)
		}
	}
	return nil
}

func (r readOnly) Scan(ctx context.Context, rows Range) iter.Seq2[Row, error] {
	return r.from.Scan(ctx, rows)
}

func (r readOnly) Partitions(ctx context.Context, t *Table, prefix Key, damaged func(Damage)) iter.Seq2[Key, error] {
	return r.from.Partitions(ctx, t, prefix, damaged)
}

func (r readOnly) Drop(_ context.Context, t *Table, _ Key) error {
	return fmt.Errorf("%w: a drop in table %s", ErrReadOnly, t)
}

func (r readOnly) CompareAndSet(_ context.Context, t *Table, _, _ Key, _, _ []byte) (bool, []byte, error) {
	return false, nil, fmt.Errorf("%w: compare and set in table %s", ErrReadOnly, t)
}

func (r readOnly) Close() error { return nil }

// As returns e, or the engine below a ReadOnly engine, as a T if it implements T. The methods of T must not change
// rows.
func As[T any](e Engine) (T, bool) {
	if r, ok := e.(readOnly); ok {
		e = r.from
	}
	t, ok := e.(T)
	return t, ok
}
