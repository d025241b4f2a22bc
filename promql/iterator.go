package promql

import (
	"math"
	"sort"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/cassia-db/cassia/storage/chunk"
)

// iterator iterates over the samples of one series, floats and histograms merged by time. It implements
// chunkenc.Iterator and behaves as Prometheus' own: before the first Next or Seek, AtT returns the lowest time. After
// the last sample, it returns the time of the last sample.
type iterator struct {
	samples chunk.Samples
	// floats and hists are the numbers of samples passed, including the current sample.
	floats, hists int
	typ           chunkenc.ValueType
	t             int64
	err           error

	// hint is the counter reset hint of samples.H[hintOf]. hintOf is -1 if no hint was derived.
	hint   histogram.CounterResetHint
	hintOf int
}

// iteratorFor returns an iterator over the samples that read appends, starting at mint. Earlier samples are used only
// to detect counter resets. If the given iterator is an *iterator, its buffers are reused.
func iteratorFor(it chunkenc.Iterator, mint int64, read func(*chunk.Samples) error) chunkenc.Iterator {
	i, ok := it.(*iterator)
	if !ok {
		i = &iterator{}
	}
	i.samples.Reset()
	i.err = read(&i.samples)
	i.rewind(mint)
	return i
}

func (i *iterator) rewind(mint int64) {
	i.typ, i.t, i.hintOf = chunkenc.ValNone, math.MinInt64, -1
	if i.err != nil {
		i.floats, i.hists = len(i.samples.T), len(i.samples.H)
		return
	}
	i.floats = searchFrom(len(i.samples.T), 0, func(k int) bool { return i.samples.T[k] >= mint })
	i.hists = searchFrom(len(i.samples.H), 0, func(k int) bool { return i.samples.H[k].T >= mint })
}

// Next implements chunkenc.Iterator.
func (i *iterator) Next() chunkenc.ValueType {
	s := &i.samples
	switch {
	case i.floats < len(s.T) && (i.hists == len(s.H) || s.T[i.floats] < s.H[i.hists].T):
		i.t, i.typ = s.T[i.floats], chunkenc.ValFloat
		i.floats++
	case i.hists < len(s.H):
		i.t, i.typ = s.H[i.hists].T, chunkenc.ValHistogram
		if s.H[i.hists].Int == nil {
			i.typ = chunkenc.ValFloatHistogram
		}
		i.hists++
	default:
		i.typ = chunkenc.ValNone
	}
	return i.typ
}

// milliseconds is another name for int64. With int64, go vet would report a chunkenc.Iterator's Seek as a wrong
// implementation of io.Seeker.
type milliseconds = int64

// Seek implements chunkenc.Iterator.
func (i *iterator) Seek(t milliseconds) chunkenc.ValueType {
	if i.typ != chunkenc.ValNone && i.t >= t {
		return i.typ
	}
	i.floats = searchFrom(len(i.samples.T), i.floats, func(k int) bool { return i.samples.T[k] >= t })
	i.hists = searchFrom(len(i.samples.H), i.hists, func(k int) bool { return i.samples.H[k].T >= t })
	return i.Next()
}

// searchFrom returns the first index in [start, n) for which reached returns true, or n. reached must be monotonic. The
// search gallops, because queries mostly seek a few samples forward and rarely many.
func searchFrom(n, start int, reached func(int) bool) int {
	if start == n || reached(start) {
		return start
	}
	low, step := start, 1 // reached(low) is false
	for low+step < n && !reached(low+step) {
		low += step
		step *= 2
	}
	high := min(low+step, n)
	return low + 1 + sort.Search(high-low-1, func(k int) bool { return reached(low + 1 + k) })
}

// At implements chunkenc.Iterator.
func (i *iterator) At() (int64, float64) { return i.t, i.samples.V[i.floats-1] }

// AtT implements chunkenc.Iterator.
func (i *iterator) AtT() int64 { return i.t }

// AtST implements chunkenc.Iterator.
func (i *iterator) AtST() int64 {
	switch {
	case i.typ == chunkenc.ValNone:
		return 0
	case i.typ != chunkenc.ValFloat:
		return i.samples.H[i.hists-1].ST
	case len(i.samples.ST) == 0:
		return 0
	}
	return i.samples.ST[i.floats-1]
}

// Err implements chunkenc.Iterator.
func (i *iterator) Err() error { return i.err }

// AtHistogram implements chunkenc.Iterator. The caller owns the result except for its custom bounds, which are shared
// and must not be changed.
func (i *iterator) AtHistogram(into *histogram.Histogram) (int64, *histogram.Histogram) {
	h := i.samples.H[i.hists-1].Int
	if value.IsStaleNaN(h.Sum) {
		return i.t, &histogram.Histogram{Sum: h.Sum}
	}
	if into == nil {
		into = &histogram.Histogram{}
	}
	h.CopyTo(into)
	into.CounterResetHint = i.resetHint()
	if isFinerThanKnown(into.Schema) {
		i.setError(into.ReduceResolution(histogram.ExponentialSchemaMax))
	}
	return i.t, into
}

// AtFloatHistogram implements chunkenc.Iterator, for both kinds of histograms.
func (i *iterator) AtFloatHistogram(into *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	h := &i.samples.H[i.hists-1]
	if sum := sumOf(h); value.IsStaleNaN(sum) {
		return i.t, &histogram.FloatHistogram{Sum: sum}
	}
	if into == nil {
		into = &histogram.FloatHistogram{}
	}
	if h.Int != nil {
		h.Int.ToFloat(into)
	} else {
		h.Float.CopyTo(into)
	}
	into.CounterResetHint = i.resetHint()
	if isFinerThanKnown(into.Schema) {
		i.setError(into.ReduceResolution(histogram.ExponentialSchemaMax))
	}
	return i.t, into
}

func (i *iterator) setError(err error) {
	if err != nil && i.err == nil {
		i.err = err
		i.floats, i.hists = len(i.samples.T), len(i.samples.H)
	}
}

// isFinerThanKnown reports whether a histogram was written by a newer Prometheus with a resolution that the evaluator
// doesn't support yet. The iterator returns such a histogram at a lower resolution, as Prometheus does.
func isFinerThanKnown(schema int32) bool {
	return schema > histogram.ExponentialSchemaMax && schema <= histogram.ExponentialSchemaMaxReserved
}

func sumOf(h *chunk.Histogram) float64 {
	if h.Int != nil {
		return h.Int.Sum
	}
	return h.Float.Sum
}

// resetHint derives the hint of the current histogram.
func (i *iterator) resetHint() histogram.CounterResetHint {
	current := i.hists - 1
	if i.hintOf == current {
		return i.hint
	}
	var before *chunk.Histogram
	if current > 0 {
		before = &i.samples.H[current-1]
		// A float between two histograms starts a new sequence. All floats passed are older than the current histogram.
		if i.floats > 0 && i.samples.T[i.floats-1] > before.T {
			before = nil
		}
	}
	i.hint, i.hintOf = deriveHint(before, &i.samples.H[current]), current
	return i.hint
}
