package promql

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/annotations"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/panics"
)

const (
	// batchSeries is the number of consecutive series that one goroutine computes as a batch.
	batchSeries = 32
	// batchSteps is the maximum number of series times steps in a batch.
	batchSteps = 1 << 16
	// maxSmallWork is the maximum work that one goroutine computes alone, about a millisecond. Work is the number of
	// series times the number of steps, or times the number of smallSpans that the steps cover if this number is
	// larger.
	maxSmallWork = 1536
	smallSpan    = 3_600_000 // milliseconds
	// batchesPerWorker is the maximum number of batches per worker that are being computed or wait to be used.
	batchesPerWorker = 3
)

// batch holds the values of some consecutive series at the steps of a fragment. Its memory is reused.
type batch struct {
	metrics []labels.Labels
	values  []values
	segment values // buffer
}

// errPanicked means that a function panicked. The evaluator then computes the fragment and reports the panic to its
// caller.
var errPanicked = fmt.Errorf("%w: a function panicked", errNeedsEvaluator)

// fragmentRun computes a fragment of some series, and passes the values on in the order of the series, so that the
// result doesn't depend on the number of goroutines.
//
//	series   [ 0 … 31 | 32 … 63 | 64 … ]
//	workers      0         1        0        each batch at a time
//	use          └─────────┴────────┴──►     one by one, in order
type fragmentRun struct {
	fragment *fragment
	segments []*segment
	series   []foundSeries
	budget   *budget
	workers  int
	gate     *gate
	// newReader creates the reader of a segment. Each goroutine has its own.
	newReader func(*segment) fragmentReader
	readers   [][]fragmentReader
}

// eachSeries calls use for every series that has values, with its position and the labels of the result. Values are
// valid only during the call.
func (r *fragmentRun) eachSeries(ctx context.Context,
	use func(at uint32, metric labels.Labels, v *values) error) error {
	size := min(batchSeries, max(1, batchSteps/r.fragment.eval.n))
	n := (len(r.series) + size - 1) / size
	workers := max(1, min(r.workers, n))
	if r.isSmall() {
		workers = 1
	}
	r.readers = make([][]fragmentReader, workers)
	for i := range r.readers {
		for _, l := range r.segments {
			r.readers[i] = append(r.readers[i], r.newReader(l))
		}
	}
	batches := make([]batch, min(n, workers*batchesPerWorker))
	metered := make([]int64, workers)
	compute := func(worker, i int) error {
		err := r.gate.withWorker(ctx, func() error {
			return r.compute(ctx, r.readers[worker], r.series[i*size:min(len(r.series), (i+1)*size)],
				&batches[i%len(batches)])
		})
		if more := bufferedBytes(r.readers[worker]) - metered[worker]; err == nil && more > 0 {
			// Metering may wait for memory, so it is done here, after the worker has released its place.
			metered[worker] += more
			err = r.budget.meterBytes(more)
		}
		return err
	}
	return computeInOrder(ctx, workers, len(batches), n, compute, func(i int) error {
		b := &batches[i%len(batches)]
		for k := range b.values {
			if b.values[k].size == 0 {
				continue
			}
			if err := use(uint32(i*size+k), b.metrics[k], &b.values[k]); err != nil {
				return err
			}
		}
		return nil
	})
}

// isSmall reports whether the work is so small that sharing it among goroutines would cost more than it saves.
func (r *fragmentRun) isSmall() bool {
	p := r.fragment
	return int64(len(r.series))*max(int64(p.eval.n), (p.edges.last()-p.edges.first+p.width)/smallSpan) <= maxSmallWork
}

// compute computes the values of batch b.
func (r *fragmentRun) compute(ctx context.Context, readers []fragmentReader, series []foundSeries,
	b *batch) (err error) {
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
		v.reset(r.fragment.eval.n)
		if err := r.read(readers, &s, v, &b.segment); err != nil {
			return err
		}
		if err := r.budget.checkSamples(v.size); err != nil {
			return err
		}
		b.metrics = append(b.metrics, r.fragment.metric(s.labels))
	}
	return nil
}

// read computes the values of a series, segment by segment. v is empty and segment is a buffer.
func (r *fragmentRun) read(readers []fragmentReader, s *foundSeries, v, segment *values) error {
	if len(readers) == 1 {
		return readers[0].read(s.segments[0], v)
	}
	for i, reader := range readers {
		if s.segments[i] == nil {
			continue
		}
		segment.reset(r.segments[i].edges.n)
		if err := reader.read(s.segments[i], segment); err != nil {
			return err
		}
		v.copySteps(r.segments[i].FromStep, segment)
	}
	return nil
}

func (r *fragmentRun) notes() annotations.Annotations {
	var out annotations.Annotations
	for _, readers := range r.readers {
		for _, reader := range readers {
			out.Merge(reader.notes())
		}
	}
	return out
}

// maxUnmeteredBuffer is the max size of a buffer of decoded samples that isn't metered, in bytes. Buffers of this size
// are pooled, so their memory isn't counted for the read.
const maxUnmeteredBuffer = maxPooledSamples * meteredValue

// bufferedBytes returns the memory of the buffers of decoded samples of all readers, in bytes. Buffers of up to
// maxUnmeteredBuffer count as 0.
func bufferedBytes(readers []fragmentReader) (bytes int64) {
	for _, reader := range readers {
		switch reader := reader.(type) {
		case *rawReader:
			bytes += bufferBytes(&reader.it.samples)
		case *rollupReader:
			bytes += bufferBytes(&reader.raw.it.samples)
		}
	}
	return bytes
}

func bufferBytes(s *chunk.Samples) int64 {
	if bytes := int64(cap(s.T)) * meteredValue; bytes > maxUnmeteredBuffer {
		return bytes
	}
	return 0
}

// release releases the readers. eachSeries must have returned.
func (r *fragmentRun) release() {
	for _, readers := range r.readers {
		for _, reader := range readers {
			switch reader := reader.(type) {
			case *rawReader:
				reader.release()
			case *rollupReader:
				reader.raw.release()
			}
		}
	}
}

func (r *fragmentRun) samples() (n int64) {
	for _, readers := range r.readers {
		for _, reader := range readers {
			n += reader.samples()
		}
	}
	return n
}

// loaded adds up the samples for the query's statistics.
func (r *fragmentRun) loaded() (n int64) {
	for _, readers := range r.readers {
		for _, reader := range readers {
			n += reader.loaded()
		}
	}
	return n
}

// computeInOrder calls compute for 0 to n-1 from multiple goroutines, and use for each in order from the caller's
// goroutine. compute is at most ahead calls ahead of use. It returns the first error.
func computeInOrder(
	ctx context.Context, workers, ahead, n int, compute func(worker, i int) error, use func(i int) error,
) error {
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
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	defer func() { _ = g.Wait() }() // even if use panics
	defer cancel()
	// Invariant: i is computed only after i-ahead has been used, so that the elements being computed fit into a ring.
	free, done := make(chan struct{}, ahead), make([]chan struct{}, ahead)
	for i := range done {
		free <- struct{}{}
		done[i] = make(chan struct{}, 1)
	}
	var next atomic.Int64
	for worker := range workers {
		g.Go(panics.WrapError("evaluating a query", func() error {
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
		}))
	}
	for i := range n {
		select {
		case <-done[i%ahead]:
		case <-ctx.Done():
			return cmp.Or(g.Wait(), ctx.Err())
		}
		if err := use(i); err != nil {
			return err
		}
		free <- struct{}{}
	}
	return nil
}
