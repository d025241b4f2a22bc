package promql

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrTooManyQueries says that so many queries wait that another wouldn't be answered in time.
var ErrTooManyQueries = errors.New("promql: too many queries are waiting")

// waitingPerRunning bounds the queue: so many queries may wait for each one that may run.
const waitingPerRunning = 50

// gate bounds the queries that run at once, and those that wait. It implements Prometheus'
// promql.QueryTracker.
type gate struct {
	running chan struct{}
	waiting atomic.Int64
}

func newGate(maxConcurrency int) *gate {
	return &gate{running: make(chan struct{}, max(1, maxConcurrency))}
}

// GetMaxConcurrent implements promql.QueryTracker.
func (g *gate) GetMaxConcurrent() int { return cap(g.running) }

// Insert implements promql.QueryTracker: it waits for a place. It returns ErrTooManyQueries, or the
// context's error.
func (g *gate) Insert(ctx context.Context, _ string) (int, error) {
	select {
	case g.running <- struct{}{}:
		return 0, nil
	default:
	}
	limit := int64(cap(g.running)) * waitingPerRunning
	if g.waiting.Add(1) > limit {
		g.waiting.Add(-1)
		return notInserted, fmt.Errorf("%w: %d already; see --query.max-concurrency", ErrTooManyQueries, limit)
	}
	defer g.waiting.Add(-1)
	select {
	case g.running <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return notInserted, ctx.Err()
	}
}

// notInserted is what Insert returns beside an error.
const notInserted = -1

// Delete implements promql.QueryTracker.
func (g *gate) Delete(inserted int) {
	if inserted != notInserted {
		<-g.running
	}
}

// Close implements promql.QueryTracker.
func (g *gate) Close() error { return nil }
