package promql

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
)

// missingValue marks a step without a value. It is a stale marker, which no function or aggregation returns.
var missingValue = math.Float64frombits(value.StaleNaN)

func isMissingValue(v float64) bool { return math.Float64bits(v) == value.StaleNaN }

// values are the values of one series at the steps of a fragment: each is a float, a histogram or missing.
type values struct {
	// v has one entry per step: missingValue if the step has a histogram or no value.
	v []float64
	// h has one entry per step, or is empty if hists is 0.
	h []*histogram.FloatHistogram
	// floats and hists are the numbers of steps with a float or a histogram. size is the number of samples charged to a
	// budget.
	floats, hists, size int
}

// reset sets v to n steps without values.
func (v *values) reset(n int) {
	if cap(v.v) < n {
		v.v = make([]float64, n)
	}
	v.v = v.v[:n]
	for i := range v.v {
		v.v[i] = missingValue
	}
	clear(v.h)
	v.h, v.floats, v.hists, v.size = v.h[:0], 0, 0, 0
}

func (v *values) setHistogram(i int, h *histogram.FloatHistogram) {
	if len(v.h) == 0 {
		if cap(v.h) < len(v.v) {
			v.h = make([]*histogram.FloatHistogram, len(v.v))
		}
		v.h = v.h[:len(v.v)]
	}
	v.h[i] = h
	v.hists++
	v.size += histogramSize(h)
}

// copySteps copies the values of other to consecutive steps, starting at the step from.
func (v *values) copySteps(from int, other *values) {
	copy(v.v[from:], other.v)
	for i, h := range other.h {
		if h != nil {
			v.setHistogram(from+i, h)
		}
	}
	v.floats += other.floats
	v.size += other.floats
}

// histogramSize returns the size of a histogram as the evaluator counts it, in floats.
func histogramSize(h *histogram.FloatHistogram) int { return (h.Size() + 8) / 16 }

// span returns the range of steps from the first value to the last: [from, to).
func (v *values) span() (from, to int) {
	has := func(i int) bool { return !isMissingValue(v.v[i]) || (len(v.h) > 0 && v.h[i] != nil) }
	to = len(v.v)
	for from < to && !has(from) {
		from++
	}
	for to > from && !has(to-1) {
		to--
	}
	return from, to
}

// fragmentSeries is a series of a fragment's result.
type fragmentSeries struct {
	metric labels.Labels
	// from is the step of the first value.
	from int
	v    []float64
	h    []*histogram.FloatHistogram // as long as v, or empty
}

// arena allocates values in few large pieces, because many series have only one value.
type arena struct {
	series     []fragmentSeries
	floats     []float64
	roomSeries int // size of the last allocation, in series
	roomFloats int
}

// Sizes of an arena's allocations. The first allocation is small because many queries read only one series.
const (
	arenaFloats, firstFloats = 512, 8
	arenaSeries, firstSeries = 64, 1
)

// copySeries copies values, which must not be empty.
func (a *arena) copySeries(metric labels.Labels, v *values) *fragmentSeries {
	from, to := v.span()
	n := to - from
	if len(a.floats) < n {
		a.roomFloats = min(arenaFloats, max(firstFloats, 4*a.roomFloats))
		a.floats = make([]float64, max(n, a.roomFloats))
	}
	if len(a.series) == 0 {
		a.roomSeries = min(arenaSeries, max(firstSeries, 4*a.roomSeries))
		a.series = make([]fragmentSeries, a.roomSeries)
	}
	s := &a.series[0]
	a.series = a.series[1:]
	*s = fragmentSeries{metric: metric, from: from, v: a.floats[:n:n]}
	a.floats = a.floats[n:]
	copy(s.v, v.v[from:to])
	if v.hists > 0 {
		s.h = append(make([]*histogram.FloatHistogram, 0, n), v.h[from:to]...)
	}
	return s
}

// budget bounds the samples that a query's fragments hold. It is safe for concurrent use.
type budget struct {
	limit int64
	held  atomic.Int64
	// read meters the memory of the query. nil: memory isn't metered.
	read *read
	ctx  context.Context
}

// Sizes that are metered, in bytes.
const (
	meteredValue  = 16  // a value or point
	meteredResult = 160 // a series or group of a result: its labels and its entry in the evaluator's result
	meteredFound  = 128 // a series that was found: its entries in the lists of a fragment

	meteredFragment = 1 << 10 // a fragment: its report and its placeholder
)

// meterBytes counts n bytes that are about to be allocated. It may wait until memory is available.
func (b *budget) meterBytes(n int64) error {
	if b.read == nil {
		return nil
	}
	return b.read.Grow(b.ctx, n)
}

// errTooManySamples is the evaluator's error for too many samples.
const errTooManySamples = promengine.ErrTooManySamples("query execution")

// chargeSamples counts n samples that the query keeps. It returns promql.ErrTooManySamples if the bound is exceeded.
func (b *budget) chargeSamples(n int) error {
	if b.held.Add(int64(n)) > b.limit {
		return errTooManySamples
	}
	return b.meterBytes(int64(n)*meteredValue + meteredResult)
}

// checkSamples returns an error if n more temporary samples would exceed the bound.
func (b *budget) checkSamples(n int) error {
	if b.held.Load()+int64(n) > b.limit {
		return errTooManySamples
	}
	return nil
}
