package promql

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// fragmentSet implements promstorage.SeriesSet over a fragment's result.
type fragmentSet struct {
	result *fragmentResult
	next   int
	rows   []fragmentRow // preallocated
}

// Next implements promstorage.SeriesSet.
func (s *fragmentSet) Next() bool {
	s.next++
	if s.result.readErr != nil { // The evaluator expects a read error when it reads the samples of a series.
		return s.next == 1
	}
	return s.next <= len(s.result.series)
}

// At implements promstorage.SeriesSet.
func (s *fragmentSet) At() promstorage.Series {
	if err := s.result.readErr; err != nil {
		return &fragmentRow{fragmentSeries: &fragmentSeries{}, err: err}
	}
	if len(s.rows) == 0 {
		s.rows = make([]fragmentRow, min(rowsAtOnce, len(s.result.series)-s.next+1))
	}
	row := &s.rows[0]
	s.rows = s.rows[1:]
	*row = fragmentRow{fragmentSeries: s.result.series[s.next-1], grid: s.result.grid}
	return row
}

// rowsAtOnce is the number of rows that are allocated at once. The evaluator keeps all of them.
const rowsAtOnce = 64

// Err implements promstorage.SeriesSet.
func (s *fragmentSet) Err() error { return s.result.selectErr }

// Warnings implements promstorage.SeriesSet.
func (s *fragmentSet) Warnings() annotations.Annotations { return s.result.notes }

// fragmentRow implements promstorage.Series.
type fragmentRow struct {
	*fragmentSeries
	grid steps
	err  error
}

func (r *fragmentRow) Labels() labels.Labels { return r.metric }

// Iterator implements promstorage.SampleIterable.
func (r *fragmentRow) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	i, ok := it.(*fragmentIterator)
	if !ok {
		i = &fragmentIterator{}
	}
	*i = fragmentIterator{fragmentRow: *r, at: -1, first: r.grid.timeAt(r.from), t: math.MinInt64}
	i.n = len(r.v)
	if r.from+i.n < r.grid.n && i.n > 0 {
		i.n++ // A stale marker follows the last value of a series.
	}
	return i
}

// fragmentIterator implements chunkenc.Iterator. It returns one sample per step, and a stale marker at steps without a
// value. The histograms belong to the fragment, and the evaluator doesn't change them.
type fragmentIterator struct {
	fragmentRow
	first int64 // time of the first value
	at    int
	n     int
	t     int64 // keeps its last value at the end
}

// Next implements chunkenc.Iterator.
func (i *fragmentIterator) Next() chunkenc.ValueType { return i.move(min(i.at+1, i.n)) }

// Seek implements chunkenc.Iterator.
func (i *fragmentIterator) Seek(t milliseconds) chunkenc.ValueType {
	at := max(i.at, 0)
	if t > i.first {
		at = max(at, int(min(int64(i.n), (t-i.first+i.grid.step-1)/i.grid.step)))
	}
	return i.move(at)
}

func (i *fragmentIterator) move(at int) chunkenc.ValueType {
	i.at = at
	if at >= i.n {
		return chunkenc.ValNone
	}
	i.t = i.first + int64(at)*i.grid.step
	if at < len(i.h) && i.h[at] != nil {
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// AtT implements chunkenc.Iterator.
func (i *fragmentIterator) AtT() int64 { return i.t }

// At implements chunkenc.Iterator.
func (i *fragmentIterator) At() (int64, float64) {
	if i.at == len(i.v) {
		return i.t, missingValue
	}
	return i.t, i.v[i.at]
}

// AtFloatHistogram implements chunkenc.Iterator.
func (i *fragmentIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return i.t, i.h[i.at]
}

// AtHistogram implements chunkenc.Iterator. Fragments have no integer histograms.
func (i *fragmentIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	return i.t, nil
}

// AtST implements chunkenc.Iterator.
func (i *fragmentIterator) AtST() int64 { return 0 }

// Err implements chunkenc.Iterator.
func (i *fragmentIterator) Err() error { return i.err }
