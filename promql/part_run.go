package promql

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/annotations"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage"
)

const (
	// batchSeries is how many neighbouring series are computed by one goroutine in one go.
	batchSeries = 32
	// batchSteps bounds a batch's series times steps.
	batchSteps = 1 << 16
	// batchesPerWorker bounds the batches that are computed, or wait to be used.
	batchesPerWorker = 3
)

// batch is what some neighbouring series have at the steps of a part. Its memory is used again.
type batch struct {
	metrics []labels.Labels
	values  []values
}

// errPanicked says that a function panicked. The evaluator knows better how to tell its caller.
var errPanicked = fmt.Errorf("%w: a function panicked", errLeave)

// partRun computes a part of some series, and hands the values on in the order of the series: what is made of
// them doesn't depend on how many goroutines there were.
//
//	series   [ 0 … 31 | 32 … 63 | 64 … ]
//	workers      0         1        0        each batch at a time
//	use          └─────────┴────────┴──►     one by one, in order
type partRun struct {
	part    *part
	series  []*storage.SelectedSeries
	budget  *budget
	workers int
	readers []partReader
}

// do calls use for every series that has values. Values are only valid during the call.
func (r *partRun) do(ctx context.Context, use func(labels.Labels, *values) error) error {
	size := min(batchSeries, max(1, batchSteps/r.part.eval.n))
	n := (len(r.series) + size - 1) / size
	workers := max(1, min(r.workers, n))
	r.readers = make([]partReader, workers)
	for i := range r.readers {
		r.readers[i] = r.part.reader(r.budget)
	}
	batches := make([]batch, min(n, workers*batchesPerWorker))
	compute := func(worker, i int) error {
		return r.compute(ctx, r.readers[worker], r.series[i*size:min(len(r.series), (i+1)*size)], &batches[i%len(batches)])
	}
	return inOrder(ctx, workers, len(batches), n, compute, func(i int) error {
		b := &batches[i%len(batches)]
		for k := range b.values {
			if b.values[k].size == 0 {
				continue
			}
			if err := use(b.metrics[k], &b.values[k]); err != nil {
				return err
			}
		}
		return nil
	})
}

// compute fills b.
func (r *partRun) compute(ctx context.Context, reader partReader, series []*storage.SelectedSeries, b *batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanicked, p)
		}
	}()
	if cap(b.values) < len(series) {
		b.values = make([]values, len(series))
	}
	b.metrics, b.values = b.metrics[:0], b.values[:len(series)]
	for k, s := range series {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := &b.values[k]
		v.reset(r.part.eval.n)
		if err := reader.read(s, v); err != nil {
			return err
		}
		if err := r.budget.allow(v.size); err != nil {
			return err
		}
		b.metrics = append(b.metrics, r.part.metric(s.Labels))
	}
	return nil
}

func (r *partRun) notes() annotations.Annotations {
	var out annotations.Annotations
	for _, reader := range r.readers {
		out.Merge(reader.notes())
	}
	return out
}

func (r *partRun) samples() (n int64) {
	for _, reader := range r.readers {
		n += reader.samples()
	}
	return n
}

// inOrder calls compute for 0 to n-1 from several goroutines, and use for each in order from its own, at most
// ahead calls of compute later. It returns the first error.
func inOrder(ctx context.Context, workers, ahead, n int, compute func(worker, i int) error, use func(i int) error) error {
	if workers == 1 {
		for i := range n {
			if err := compute(0, i); err != nil {
				return err
			}
			if err := use(i); err != nil {
				return err
			}
		}
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	// Invariant: i is computed only once i-ahead was used, so each has its place in a ring.
	free, done := make(chan struct{}, ahead), make([]chan struct{}, ahead)
	for i := range done {
		free <- struct{}{}
		done[i] = make(chan struct{}, 1)
	}
	for worker := range workers {
		g.Go(func() error {
			for {
				select {
				case <-free:
				case <-ctx.Done():
					return ctx.Err()
				}
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := compute(worker, i); err != nil {
					return err
				}
				done[i%ahead] <- struct{}{}
			}
		})
	}
	g.Go(func() error {
		for i := range n {
			select {
			case <-done[i%ahead]:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := use(i); err != nil {
				return err
			}
			free <- struct{}{}
		}
		return nil
	})
	return g.Wait()
}
