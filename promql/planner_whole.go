package promql

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/cassia-db/cassia/storage/labelorder"
)

// whole is the answer to a query that is one fragment and nothing else: the evaluator, which would go through it step by step, is shown
// none of its series, and gets them into its result at the end.
type whole struct {
	grid steps
	// isInstant: the answer is a vector, else a matrix.
	isInstant bool
	vector    promengine.Vector
	matrix    promengine.Matrix
	points    []promengine.FPoint // memory for the next ones
	// asStored: the labels are those that are stored. isSorted: the matrix is in their order.
	asStored, isSorted bool
	sizes              []int // by step, as the evaluator counts
}

// wholeOf returns an empty answer if the candidate is all of its query, else nil.
func (p *plan) wholeOf(c candidate) *whole {
	if c.at != &p.stmt.Expr || p.stmt.Interval == 0 && !isInstant(p.stmt) {
		return nil
	}
	return &whole{grid: c.eval, sizes: make([]int, c.eval.n), isInstant: isInstant(p.stmt), asStored: c.over == nil && c.keepsName()}
}

// makeRoom makes room for a series more.
func (w *whole) makeRoom(r room) {
	if w.isInstant {
		w.vector = makeRoom(w.vector, r)
	} else {
		w.matrix = makeRoom(w.matrix, r)
	}
}

// grow makes room for n series more.
func (w *whole) grow(n int) {
	if w.isInstant {
		w.vector = slices.Grow(w.vector, n)
	} else {
		w.matrix = slices.Grow(w.matrix, n)
	}
}

// add adds a series whose values, and histograms if there are any, are those of the steps from a given one on.
// floats and hists are at least how many of each there are.
func (w *whole) add(metric labels.Labels, from int, v []float64, h []*histogram.FloatHistogram, floats, hists int) {
	if w.isInstant {
		w.addSample(metric, v[0], h)
		return
	}
	s := promengine.Series{Metric: metric}
	if floats > 0 {
		s.Floats = take(&w.points, floats, len(w.matrix)*floats)[:0]
	}
	if hists > 0 {
		s.Histograms = make([]promengine.HPoint, 0, hists)
	}
	t := w.grid.at(from)
	sizes := w.sizes[from : from+len(v)]
	for k, f := range v {
		switch {
		case !isNone(f):
			s.Floats = append(s.Floats, promengine.FPoint{T: t, F: f})
			sizes[k]++
		case k < len(h) && h[k] != nil:
			s.Histograms = append(s.Histograms, promengine.HPoint{T: t, H: h[k]})
			sizes[k] += sizeOf(h[k])
		}
		t += w.grid.step
	}
	w.matrix = append(w.matrix, s)
}

// addSample adds the value, or the histogram if there is any, that a series has at the only step.
func (w *whole) addSample(metric labels.Labels, v float64, h []*histogram.FloatHistogram) {
	s := promengine.Sample{T: w.grid.first, Metric: metric, F: v}
	size := 1
	if isNone(v) {
		s.F, s.H = 0, h[0]
		size = sizeOf(s.H)
	}
	w.sizes[0] += size
	w.vector = append(w.vector, s)
}

// sort puts the series, which are those of a fragment at these places, into the order of the labels that are stored, unless complete does it as quickly.
func (w *whole) sort(order *labelOrder, places []uint32) {
	switch {
	case w.isInstant:
		w.vector = permuted(w.vector, order.sorted(places))
	case order.knowsRanks(len(places)):
		w.matrix, w.isSorted = permuted(w.matrix, order.sorted(places)), w.asStored
	}
}

// complete puts the answer into the evaluator's result.
func (w *whole) complete(result *promengine.Result, samples *stats.QuerySamples) {
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
