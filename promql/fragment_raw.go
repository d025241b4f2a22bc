package promql

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rawReader computes a fragment's values from samples. It copies the samples of a series into arrays once, and passes
// the part of the arrays in each window to Prometheus' implementation of the function, so that results and annotations
// are the same as the evaluator's.
//
//	floats      [ . . . . . . . . . . . . . ]
//	step i          └────────┘
//	step i+1              └────────┘             both edges only move forward
type rawReader struct {
	fragment *fragment
	budget   *budget
	call     promengine.FunctionCall
	enh      promengine.EvalNodeHelper
	in       promengine.Matrix // the one series, in the form that the function expects

	it *iterator
	// stats, if not nil, returns only the count and the sum of histograms, as the evaluator reads them for
	// histogram_count and similar functions. From whole histograms, a function would detect different resets.
	stats    *promengine.HistogramStatsIterator
	memoized *promstorage.MemoizedSeriesIterator // the evaluator's iterator for the lookback

	floats []promengine.FPoint
	hists  []promengine.HPoint
	// starts are the start timestamps of floats and hists, if the function uses them.
	starts promengine.StartTimestamps

	// quick is the function's entry in floatFuncs, or nil. The following fields belong to it.
	quick    floatFunc
	fold     bucketfn.Fold[float64]
	sorted   sortedWindow
	zeros    []float64 // scratch
	times    []int64
	begins   []int64
	values   []float64
	resets   []int // indices of values that are counter resets
	overlaps []int // indices of samples whose start overlaps, see rollup.IsStartOverlap

	ctx context.Context // context of the query; nil: not cancellable

	// from and to are the range of steps that are computed.
	from, to int

	annotations annotations.Annotations
	decoded     int64
	// counted is the number of samples that loaded returns.
	counted int64
}

func newRawReader(p *fragment, b *budget) *rawReader {
	r := &rawReader{
		fragment: p, budget: b, call: promengine.FunctionCalls[p.function],
		enh: promengine.EvalNodeHelper{Out: make(promengine.Vector, 0, 1)},
		in:  make(promengine.Matrix, 1), it: iteratorPool.Get().(*iterator),
		quick:    floatFuncOf(p),
		to:       p.edges.n,
		memoized: promstorage.NewMemoizedEmptyIterator(p.width),
	}
	if p.onlyStats {
		r.stats = promengine.NewHistogramStatsIterator(r.it)
	}
	return r
}

// histograms returns an iterator over the histograms: whole, or only their statistics if these are enough.
func (r *rawReader) histograms() chunkenc.Iterator {
	if r.stats == nil {
		return r.it
	}
	r.stats.Reset(r.it)
	return r.stats
}

// iteratorPool is a pool of sample buffers that readers have released.
var iteratorPool = sync.Pool{New: func() any { return &iterator{} }}

// maxPooledSamples is the max capacity of a sample buffer that is returned to the pool. It is enough for a series over
// a week at 10 s.
const maxPooledSamples = 1 << 16

// release returns the sample buffer to the pool. Neither the reader nor the samples that it has read may be used
// afterwards.
func (r *rawReader) release() {
	s := &r.it.samples
	if cap(s.T) <= maxPooledSamples && cap(s.ST) == 0 && cap(s.H) == 0 {
		*r.it = iterator{samples: chunk.Samples{T: s.T[:0], V: s.V[:0]}}
		iteratorPool.Put(r.it)
	}
	r.it = nil
}

func (r *rawReader) notes() annotations.Annotations { return r.annotations }
func (r *rawReader) samples() int64                 { return r.decoded }

// loaded implements fragmentReader. A function counts each sample once, and a selector counts the samples that it
// returns, as the evaluator does.
func (r *rawReader) loaded() int64 { return r.counted }

// hasStarts reports whether any of the samples has a start timestamp.
func hasStarts(s *chunk.Samples) bool {
	return len(s.ST) > 0 || slices.ContainsFunc(s.H, func(h chunk.Histogram) bool { return h.ST != 0 })
}

// errGaps means that there are gaps between the windows. The evaluator doesn't read histograms in these gaps, so the
// hints of later histograms differ from the hints that this package derives.
var errGaps = fmt.Errorf(
	"%w: native histograms are read only in part, and the step is wider than the range", errNeedsEvaluator,
)

// read implements fragmentReader.
func (r *rawReader) read(s *query.SelectedSeries, out *values) error {
	return r.compute(s.Labels, out, r.fragment.minT, func(into *chunk.Samples) error {
		return asPrometheus(s.Samples(into))
	})
}

// compute computes the values from the samples that fill appends, starting at minT.
func (r *rawReader) compute(stored labels.Labels, out *values, minT int64, fill func(*chunk.Samples) error) error {
	iteratorFor(r.it, minT, fill)
	if r.it.err != nil {
		return r.it.err
	}
	r.decoded += int64(r.it.samples.Len())
	if err := r.budget.checkSamples(r.it.samples.Len()); err != nil {
		return err
	}
	if r.fragment.function == "" {
		err := r.computeLatest(out)
		r.counted += int64(out.size)
		return err
	}
	r.counted += int64(r.it.samples.Len() - r.it.floats - r.it.hists)
	usesStarts := r.fragment.usesStarts && hasStarts(&r.it.samples)
	if r.quick != nil && r.it.hists == len(r.it.samples.H) {
		if usesStarts && len(r.it.samples.ST) > 0 {
			noteOverlaps(r.fragment, stored, r.computeSlopesWithStarts(out), &r.annotations)
		} else {
			r.quick(r, out)
		}
		noteCounter(r.fragment, stored, out, &r.annotations)
		return nil
	}
	if err := r.copySamples(usesStarts); err != nil {
		return err
	}
	r.computeWindows(stored, usesStarts, out)
	return nil
}

// copySamples copies the samples, without stale markers, into the columns that functions read.
func (r *rawReader) copySamples(usesStarts bool) error {
	samples := &r.it.samples
	r.floats, r.hists = r.floats[:0], r.hists[:0]
	r.starts.Reset()
	t := samples.T[r.it.floats:]
	for i, v := range samples.V[r.it.floats:] {
		if value.IsStaleNaN(v) {
			continue
		}
		r.floats = append(r.floats, promengine.FPoint{T: t[i], F: v})
		switch {
		case !usesStarts:
		case len(samples.ST) == 0:
			r.starts.Floats = append(r.starts.Floats, 0)
		default:
			r.starts.Floats = append(r.starts.Floats, samples.ST[r.it.floats+i])
		}
	}
	if r.it.hists == len(samples.H) {
		return nil
	}
	if r.stats != nil && r.fragment.edges.step > r.fragment.width {
		return errGaps
	}
	size := len(r.floats)
	it := r.histograms()
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		if typ == chunkenc.ValFloat {
			continue
		}
		n := len(r.hists)
		// Functions keep no reference to the histograms, so their memory is reused.
		r.hists = slices.Grow(r.hists, 1)[:n+1]
		t, h := it.AtFloatHistogram(r.hists[n].H)
		if value.IsStaleNaN(h.Sum) {
			r.hists = r.hists[:n]
			continue
		}
		r.hists[n] = promengine.HPoint{T: t, H: h}
		if usesStarts {
			r.starts.Histograms = append(r.starts.Histograms, it.AtST())
		}
		size += histogramSize(h)
		if err := r.budget.checkSamples(size); err != nil {
			return err
		}
	}
	return r.it.err
}

// hasEnded reports whether the query has ended, so that its result isn't needed. It checks the context at every eighth
// step. It is called because one series may have many steps with many samples each.
func (r *rawReader) hasEnded(step int) bool { return step%8 == 0 && r.ctx != nil && r.ctx.Err() != nil }

// computeWindows calls the function for each step that has samples.
func (r *rawReader) computeWindows(stored labels.Labels, usesStarts bool, out *values) {
	p, in := r.fragment, &r.in[0]
	in.Metric = stored
	if r.enh.StartTimestamps = nil; usesStarts {
		r.enh.StartTimestamps = &promengine.StartTimestamps{}
	}
	var floatsFrom, floatsTo, histsFrom, histsTo int
	for i := r.from; i < r.to && !r.hasEnded(i); i++ {
		left, right := p.window(i)
		floatsFrom, floatsTo = slidePoints(r.floats, floatsFrom, floatsTo, left, right, floatTime)
		if len(r.hists) > 0 {
			histsFrom, histsTo = slidePoints(r.hists, histsFrom, histsTo, left, right, histTime)
		}
		if floatsFrom == floatsTo && histsFrom == histsTo {
			continue
		}
		in.Floats, in.Histograms = r.floats[floatsFrom:floatsTo:floatsTo], r.hists[histsFrom:histsTo:histsTo]
		if usesStarts {
			r.enh.StartTimestamps.Floats, r.enh.StartTimestamps.Histograms = r.starts.Floats[floatsFrom:floatsTo],
				r.starts.Histograms[histsFrom:histsTo]
		}
		r.enh.Ts = p.eval.timeAt(i)
		vector, notes := r.call(p.scalars, r.in, p.args, &r.enh)
		if len(notes) > 0 {
			r.annotations.Merge(notes)
		}
		r.enh.Out = vector[:0]
		switch {
		case len(vector) == 0:
		case vector[0].H != nil:
			out.setHistogram(i, vector[0].H)
		default:
			out.v[i] = vector[0].F
			out.floats++
			out.size++
		}
	}
	noteCounter(p, stored, out, &r.annotations)
}

func floatTime(p *promengine.FPoint) int64 { return p.T }
func histTime(p *promengine.HPoint) int64  { return p.T }

// slidePoints moves [from, to), a range of indices of points, forward to the points with after < t <= until.
func slidePoints[P any](points []P, from, to int, after, until int64, at func(*P) int64) (int, int) {
	for to < len(points) && at(&points[to]) <= until {
		to++
	}
	for from < to && at(&points[from]) <= after {
		from++
	}
	return from, to
}

// noteCounter adds an annotation, as the evaluator does, if a rate is computed from a metric that may not be a counter.
func noteCounter(p *fragment, stored labels.Labels, out *values, into *annotations.Annotations) {
	if (p.function != "rate" && p.function != "increase") || out.floats == 0 {
		return
	}
	name := stored.Get(labels.MetricName)
	if name == "" || rollup.IsCounterName(name) {
		return
	}
	into.Add(annotations.NewPossibleNonCounterInfo(name, p.args[0].PositionRange()))
}

// computeLatest finds, for each step, the newest sample that isn't too old.
func (r *rawReader) computeLatest(out *values) error {
	samples := &r.it.samples
	if r.it.hists < len(samples.H) {
		return r.computeLatestMixed(out)
	}
	p := r.fragment
	t, v := samples.T[r.it.floats:], samples.V[r.it.floats:]
	next := 0 // index of the first sample after the edge
	for i := r.from; i < r.to; i++ {
		edge := p.edges.timeAt(i)
		for next < len(t) && t[next] <= edge {
			next++
		}
		if next == 0 || t[next-1] <= edge-p.width || value.IsStaleNaN(v[next-1]) {
			continue
		}
		out.v[i] = v[next-1]
		out.floats++
	}
	out.size = out.floats
	return nil
}

// computeLatestMixed is computeLatest for series that contain histograms. It uses the evaluator's own iterator.
func (r *rawReader) computeLatestMixed(out *values) error {
	r.memoized.Reset(r.histograms())
	for i := r.from; i < r.to; i++ {
		v, h, ok := r.latestSampleAt(r.fragment.edges.timeAt(i))
		switch {
		case !ok:
		case h == nil && !value.IsStaleNaN(v):
			out.v[i] = v
			out.floats++
			out.size++
		case h != nil && !value.IsStaleNaN(h.Sum):
			out.setHistogram(i, h)
		}
	}
	return r.it.err
}

func (r *rawReader) latestSampleAt(edge int64) (v float64, h *histogram.FloatHistogram, ok bool) {
	typ := r.memoized.Seek(edge)
	if typ == chunkenc.ValNone || r.memoized.AtT() > edge {
		_, t, v, h, ok := r.memoized.PeekPrev()
		return v, h, ok && t > edge-r.fragment.width
	}
	if typ == chunkenc.ValFloat {
		_, v = r.memoized.At()
	} else {
		_, h = r.memoized.AtFloatHistogram()
	}
	return v, h, true
}
