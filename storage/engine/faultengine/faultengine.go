// Package faultengine wraps an engine for tests, so that its calls fail by a rule. A rule is a function from an
// operation to an action:
//
//	e := faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
//		if op.Kind == faultengine.Write && op.Table == engine.Staged && op.N == 3 {
//			return faultengine.Lose(nil) // the third row of the list is written, but its writer gets an error
//		}
//		return faultengine.Pass()
//	})
//
// Faults don't depend on time: withheld writes are applied when ApplyWithheld is called, and a waiting operation
// continues when its channel is closed.
package faultengine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
)

// ErrFault is the error of a failed operation if its action has no other error.
var ErrFault = fmt.Errorf("faultengine: a fault by rule: %w", engine.ErrUnavailable)

// Kind is the method of the engine that an Op calls.
type Kind uint8

const (
	Write Kind = iota
	Scan
	Drop
	CompareAndSet
)

// Op describes an operation before it is executed. A rule must not retain or change it.
type Op struct {
	Kind  Kind
	Table *engine.Table
	// N is the number of this operation among the operations of the same kind and table, starting at 1.
	N int
	// Batch is the batch of a Write. A Write with multiple batches has an Op per batch.
	Batch *engine.Batch
	// Range is the range of a Scan.
	Range *engine.Range
	// Partition is the partition key, or the prefix for Drop. Clustering is the row's key for CompareAndSet.
	Partition, Clustering engine.Key
}

type outcome uint8

const (
	pass outcome = iota
	fail
	lose
	withhold
)

// Action determines the result of an operation.
type Action struct {
	outcome outcome
	err     error
	rows    int // of a failing scan: rows yielded before the error
	wait    <-chan struct{}
}

// Pass executes the operation.
func Pass() Action { return Action{} }

// Fail returns err (nil: ErrFault) without executing the operation.
func Fail(err error) Action { return Action{outcome: fail, err: orFault(err)} }

// FailAfter is like Fail, but a Scan yields rows rows before the error.
func FailAfter(rows int, err error) Action {
	return Action{outcome: fail, err: orFault(err), rows: rows}
}

// Lose executes the operation, but returns err (nil: ErrFault). A Scan yields all rows before the error.
func Lose(err error) Action { return Action{outcome: lose, err: orFault(err)} }

// Withhold returns err (nil: ErrFault) immediately. ApplyWithheld executes the operation later. A Scan just fails.
func Withhold(err error) Action { return Action{outcome: withhold, err: orFault(err)} }

// After makes the operation wait until the channel is closed or its context ends.
func (a Action) After(wait <-chan struct{}) Action {
	a.wait = wait
	return a
}

func orFault(err error) error {
	if err == nil {
		return ErrFault
	}
	return err
}

// Engine wraps an engine and fails calls by a rule.
type Engine struct {
	inner engine.Engine

	mu       sync.Mutex
	rule     func(Op) Action
	counts   map[count]int
	withheld []func(context.Context) error
}

type count struct {
	kind  Kind
	table byte
}

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Versioned = (*Engine)(nil)
	_ engine.Clearing  = (*Engine)(nil)
)

// Wrap returns an engine that calls rule before each operation. Calls of rule are serialized. rule must not call the
// engine.
func Wrap(inner engine.Engine, rule func(Op) Action) *Engine {
	return &Engine{inner: inner, rule: rule, counts: map[count]int{}}
}

// Withheld returns the number of operations that wait for ApplyWithheld.
func (e *Engine) Withheld() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.withheld)
}

// ApplyWithheld applies withheld writes, the oldest first, and returns the first error. It doesn't call the rule.
func (e *Engine) ApplyWithheld(ctx context.Context) error {
	e.mu.Lock()
	withheld := e.withheld
	e.withheld = nil
	e.mu.Unlock()
	var first error
	for _, apply := range withheld {
		if err := apply(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (e *Engine) withhold(apply func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withheld = append(e.withheld, apply)
}

// decide calls the rule, and waits if the action requires it.
func (e *Engine) decide(ctx context.Context, op Op) (Action, error) {
	e.mu.Lock()
	c := count{kind: op.Kind, table: op.Table.ID}
	e.counts[c]++
	op.N = e.counts[c]
	a := e.rule(op)
	e.mu.Unlock()
	if a.wait == nil {
		return a, nil
	}
	select {
	case <-a.wait:
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	}
}

// Write implements engine.Engine. The rule decides about each batch separately. Batches that pass are written together.
func (e *Engine) Write(ctx context.Context, batches []engine.Batch) error {
	if err := e.check(batches); err != nil {
		return err
	}
	var now []engine.Batch
	var first error
	for i := range batches {
		b := &batches[i]
		a, err := e.decide(ctx, Op{Kind: Write, Table: b.Table, Batch: b, Partition: b.Partition})
		if err != nil {
			return err
		}
		if first == nil {
			first = a.err
		}
		switch a.outcome {
		case pass, lose:
			now = append(now, *b)
		case withhold:
			kept := []engine.Batch{cloneBatch(b)}
			e.withhold(func(ctx context.Context) error { return e.inner.Write(ctx, kept) })
		case fail:
		}
	}
	if err := e.inner.Write(ctx, now); err != nil {
		return err
	}
	return first
}

func (e *Engine) check(batches []engine.Batch) error {
	if e.TakesClear() {
		return engine.CheckClearing(batches)
	}
	return engine.CheckBatches(batches)
}

// TakesClear implements engine.Clearing if the inner engine does.
func (e *Engine) TakesClear() bool {
	c, is := e.inner.(engine.Clearing)
	return is && c.TakesClear()
}

// Scan implements engine.Engine. The rule is called when the iteration starts.
func (e *Engine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		if r.Table == nil {
			e.inner.Scan(ctx, r)(yield)
			return
		}
		a, err := e.decide(ctx, Op{Kind: Scan, Table: r.Table, Range: &r, Partition: r.Partition})
		if err != nil {
			yield(engine.Row{}, err)
			return
		}
		left := a.rows
		for row, err := range e.inner.Scan(ctx, r) {
			if (a.outcome == fail || a.outcome == withhold) && err == nil {
				if left == 0 {
					break
				}
				left--
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
		if a.err != nil {
			yield(engine.Row{}, a.err)
		}
	}
}

// Partitions implements engine.Engine. The rule is called with an Op of kind Scan whose Partition is the prefix. If the
// rule makes the Op fail, no partition is yielded.
func (e *Engine) Partitions(ctx context.Context, t *engine.Table, prefix engine.Key,
	damaged func(engine.Damage)) iter.Seq2[engine.Key, error] {
	return func(yield func(engine.Key, error) bool) {
		if t == nil {
			e.inner.Partitions(ctx, t, prefix, damaged)(yield)
			return
		}
		a, err := e.decide(ctx, Op{Kind: Scan, Table: t,
			Range: &engine.Range{Table: t, Partition: prefix, KeysOnly: true}, Partition: prefix})
		if err == nil && a.outcome != pass && a.outcome != lose {
			err = a.err
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for key, err := range e.inner.Partitions(ctx, t, prefix, damaged) {
			if !yield(key, err) || err != nil {
				return
			}
		}
		if a.err != nil {
			yield(nil, a.err)
		}
	}
}

func (e *Engine) Drop(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	if err := engine.CheckDrop(t, prefix); err != nil {
		return err
	}
	a, err := e.decide(ctx, Op{Kind: Drop, Table: t, Partition: prefix})
	if err != nil {
		return err
	}
	prefix = prefix.Clone()
	return e.apply(ctx, a, func(ctx context.Context) error { return e.inner.Drop(ctx, t, prefix) })
}

func (e *Engine) CompareAndSet(ctx context.Context, t *engine.Table, partition, clustering engine.Key, old,
	value []byte) (ok bool, found []byte, err error) {
	if err := engine.CheckCompareAndSet(t, partition, clustering, value); err != nil {
		return false, nil, err
	}
	a, err := e.decide(ctx, Op{Kind: CompareAndSet, Table: t, Partition: partition, Clustering: clustering})
	if err != nil {
		return false, nil, err
	}
	partition, clustering = partition.Clone(), clustering.Clone()
	old, value = slices.Clone(old), slices.Clone(value)
	err = e.apply(ctx, a, func(ctx context.Context) error {
		var err error
		if a.outcome == withhold {
			_, _, err = e.inner.CompareAndSet(ctx, t, partition, clustering, old, value)
		} else {
			ok, found, err = e.inner.CompareAndSet(ctx, t, partition, clustering, old, value)
		}
		return err
	})
	if err != nil {
		return false, nil, err
	}
	return ok, found, nil
}

// apply executes an action on an operation.
func (e *Engine) apply(ctx context.Context, a Action, do func(context.Context) error) error {
	switch a.outcome {
	case pass, lose:
		if err := do(ctx); err != nil {
			return err
		}
	case withhold:
		e.withhold(do)
	case fail:
	}
	return a.err
}

// Version implements engine.Versioned if the inner engine does. A lost or withheld write counts when it is applied.
func (e *Engine) Version(t *engine.Table, partition engine.Key) (version uint64, ok bool) {
	v, is := e.inner.(engine.Versioned)
	if !is {
		return 0, false
	}
	return v.Version(t, partition)
}

// Close implements engine.Engine. Withheld writes are never applied.
func (e *Engine) Close() error { return e.inner.Close() }

func cloneBatch(b *engine.Batch) engine.Batch {
	clone := engine.Batch{Table: b.Table, Partition: b.Partition.Clone(), Mutations: slices.Clone(b.Mutations)}
	for i := range clone.Mutations {
		m := &clone.Mutations[i]
		m.Clustering, m.To, m.Value = m.Clustering.Clone(), m.To.Clone(), slices.Clone(m.Value)
	}
	return clone
}
