package storage

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/cassia-db/cassia/storage/engine"
)

// cuttingEngine calls a function at one step. A step is the start of a scan, a row before it is yielded, or the start
// or the end of a write.
type cuttingEngine struct {
	engine.Engine
	left atomic.Int64
	end  atomic.Pointer[context.CancelFunc]
}

// cutAt calls end at the given step, counted from now. If step is 0, it never calls end.
func (e *cuttingEngine) cutAt(step int, end context.CancelFunc) {
	e.end.Store(&end)
	e.left.Store(int64(step))
}

func (e *cuttingEngine) step() {
	if e.left.Load() > 0 && e.left.Add(-1) == 0 {
		(*e.end.Load())()
	}
}

// Scan implements engine.Engine.
func (e *cuttingEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		e.step()
		for row, err := range e.Engine.Scan(ctx, r) {
			e.step()
			if !yield(row, err) {
				return
			}
		}
	}
}

// Write implements engine.Engine.
func (e *cuttingEngine) Write(ctx context.Context, batches []engine.Batch) error {
	e.step()
	defer e.step()
	return e.Engine.Write(ctx, batches)
}

// Version implements engine.Versioned.
func (e *cuttingEngine) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	return e.Engine.(engine.Versioned).Version(t, partition)
}
