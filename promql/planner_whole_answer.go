package promql

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/cassia-db/cassia/storage/labelorder"
)

// wholeAnswer is the answer to a query that consists of a single fragment or operation. The evaluator would copy the
// answer step by step. Instead, it reads no series, and complete puts the answer into its result at the end.
type wholeAnswer struct {
	grid steps
	// isInstant is true if the answer is a vector, else it is a matrix.
	isInstant bool
	vector    promengine.Vector
	matrix    promengine.Matrix
	points    []promengine.FPoint // preallocated
	// asStored is true if series have their stored labels. isSorted is true if the matrix is sorted by labels.
	asStored, isSorted bool
	sizes              []int // by step, as the evaluator counts them
}

// newWholeAnswer returns an empty answer if the candidate is the whole query, else nil.
func (p *plan) newWholeAnswer(c candidate) *wholeAnswer {
	if c.at != &p.stmt.Expr || p.stmt.Interval == 0 && !isInstant(p.stmt) {
		return nil
	}
	return &wholeAnswer{grid: c.eval, sizes: make([]int, c.eval.n), isInstant: isInstant(p.stmt),
		asStored: c.over == nil && c.keepsName()}
}

// makeRoom makes room for one more series.
func (w *wholeAnswer) makeRoom(r readProgress) {
	if w.isInstant {
		w.vector = makeRoom(w.vector, r)
	} else {
		w.matrix = makeRoom(w.matrix, r)
	}
}

// grow makes room for n more series.
func (w *wholeAnswer) grow(n int) {
	if w.isInstant {
		w.vector = slices.Grow(w.vector, n)
	} else {
		w.matrix = slices.Grow(w.matrix, n)
	}
}

// add adds a series. from is the step of its first value. v contains its values at consecutive steps, h its histograms
// or nil. floats and hists are upper bounds of the numbers of floats and histograms.
func (w *wholeAnswer) add(metric labels.Labels, from int, v []float64, h []*histogram.FloatHistogram,
	floats, hists int) {
	if w.isInstant {
		w.addSample(metric, v[0], h)
		return
	}
	s := promengine.Series{Metric: metric}
	if floats > 0 {
		s.Floats = allocateFrom(&w.points, floats, len(w.matrix)*floats)[:0]
	}
	if hists > 0 {
		s.Histograms = make([]promengine.HPoint, 0, hists)
	}
	t := w.grid.timeAt(from)
	sizes := w.sizes[from : from+len(v)]
	for k, f := range v {
		switch {
		case !isMissingValue(f):
			s.Floats = append(s.Floats, promengine.FPoint{T: t, F: f})
			sizes[k]++
		case k < len(h) && h[k] != nil:
			s.Histograms = append(s.Histograms, promengine.HPoint{T: t, H: h[k]})
			sizes[k] += histogramSize(h[k])
		}
		t += w.grid.step
	}
	w.matrix = append(w.matrix, s)
}

// addSample adds the series' value, or its histogram if there is one, at the only step.
func (w *wholeAnswer) addSample(metric labels.Labels, v float64, h []*histogram.FloatHistogram) {
	s := promengine.Sample{T: w.grid.first, Metric: metric, F: v}
	size := 1
	if isMissingValue(v) {
		s.F, s.H = 0, h[0]
		size = histogramSize(s.H)
	}
	w.sizes[0] += size
	w.vector = append(w.vector, s)
}

// sort sorts the series, given by their positions in the fragment, by their stored labels. It leaves a matrix unsorted
// if the order isn't in the cache, because complete sorts it as fast.
func (w *wholeAnswer) sort(order *labelOrder, places []uint32) {
	switch {
	case w.isInstant:
		w.vector = elementsAt(w.vector, order.sortedIndices(places))
	case order.hasRanks(len(places)):
		w.matrix, w.isSorted = elementsAt(w.matrix, order.sortedIndices(places)), w.asStored
	}
}

// complete moves the answer into the evaluator's result.
func (w *wholeAnswer) complete(result *promengine.Result, samples *stats.QuerySamples) {
	if result.Value = w.vector; !w.isInstant {
		if !w.isSorted {
			labelorder.Sort(w.matrix, func(s promengine.Series) labels.Labels { return s.Metric })
		}
		result.Value = w.matrix
	}
	total := 0
	for i, size := range w.sizes {
		samples.IncrementSamplesAtStep(i, int64(size))
		samples.IncrementSamplesReadAtStep(i, int64(size))
		total += size
	}
	samples.UpdatePeak(total)
}
