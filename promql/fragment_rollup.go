package promql

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/expand"
	"github.com/cassia-db/cassia/storage/rollup/layouts"
)

// rollupReader computes a segment's values from buckets. Where buckets aren't enough, a rawReader computes values from
// stored samples or, if a function requires expired samples, from samples reconstructed from buckets.
type rollupReader struct {
	segment *segment
	ctx     context.Context
	store   *storage.Store
	warn    func(error)
	// evaluator evaluates the function on buckets. If evaluator is nil, raw evaluates the function on samples
	// reconstructed from the buckets.
	evaluator *bucketfn.Evaluator
	raw       *rawReader

	bucketExpander
	pieces     rollup.Buckets  // buckets, cut by edges
	whole      *rollup.Buckets // a series' buckets with all columns
	own        rollup.Buckets  // storage of whole, if it is read separately
	ownBuffers query.BucketBuffers
	answers    bucketfn.Result
	// aside are values from stored samples, made are values from samples reconstructed from buckets.
	aside, made values

	annotations annotations.Annotations
	decoded     int64
	// asked is the number of stored samples that were read because buckets weren't enough.
	asked int64
	// leftOut is set if some steps have no value because samples are missing. approximated is set if some steps have
	// values of samples that were reconstructed from buckets.
	leftOut, approximated bool
	// bounds are the error bounds of values whose windows were moved or whose buckets were cut.
	bounds bucketfn.Bounds
}

func newRollupReader(ctx context.Context, store *storage.Store, l *segment, b *budget, warn func(error)) *rollupReader {
	r := &rollupReader{segment: l, ctx: ctx, store: store, warn: warn, raw: newRawReader(l.fragment, b)}
	r.raw.ctx = ctx
	if r.evaluator = bucketfn.New(l.function); r.evaluator != nil {
		r.evaluator.UsesStarts, r.evaluator.OnlyCounts = l.usesStarts, l.onlyStats
	}
	r.UsesStarts = l.usesStarts
	if l.function == "predict_linear" {
		p := bucketfn.Prediction{First: l.eval.first, Step: l.eval.step, Seconds: math.NaN()}
		if len(l.scalars) > 0 {
			p.Seconds = l.scalars[0][0].F
		}
		r.evaluator.SetPrediction(p)
	}
	return r
}

func (r *rollupReader) notes() annotations.Annotations {
	all := annotations.New()
	all.Merge(r.annotations)
	all.Merge(r.raw.notes())
	return *all
}

func (r *rollupReader) samples() int64 { return r.decoded + r.raw.samples() }

// loaded implements fragmentReader. It counts buckets, and not the samples reconstructed from them.
func (r *rollupReader) loaded() int64 { return r.decoded + r.asked }

// read implements fragmentReader.
func (r *rollupReader) read(s *query.SelectedSeries, out *values) error {
	if err := s.Buckets(&r.buckets, &r.buffers); err != nil {
		return asPrometheus(err)
	}
	r.decoded += int64(r.buckets.Len())
	if err := r.raw.budget.checkSamples(r.buckets.Len()); err != nil {
		return err
	}
	if r.evaluator == nil {
		for _, flags := range r.buckets.Flags {
			r.leftOut = r.leftOut || flags&rollup.NotSimple != 0
		}
		return r.raw.compute(s.Labels, out, math.MinInt64, func(into *chunk.Samples) error {
			if r.segment.Sketched {
				r.appendSketches(into)
			} else {
				r.appendRange(into, &r.buckets, math.MinInt64, math.MaxInt64)
			}
			return nil
		})
	}
	buckets := &r.buckets
	if r.segment.Approximate {
		buckets = &r.pieces
		r.Cut(buckets, &r.buckets, r.segment.cuts)
		if r.hasUnknownMoments() { // The moments of the pieces are estimates.
			r.approximated, r.bounds.Unknown = true, true
		}
		if err := r.raw.budget.checkSamples(buckets.Len()); err != nil {
			return err
		}
	}
	r.answers.Reset()
	r.evaluator.Evaluate(buckets, r.segment.Windows, &r.answers)
	a := &r.answers
	if !r.segment.IsExact() {
		if r.bounds.Steps == nil {
			r.bounds.Steps = make([]float64, r.segment.Windows.Steps)
		}
		r.evaluator.ComputeBounds(&r.buckets, r.segment.requestedWindows(), r.segment.Windows, a, &r.bounds)
	}
	for i, step := range a.Step {
		if i < len(a.Histogram) && a.Histogram[i] != nil {
			if !isGauge(a.Histogram[i]) && (r.segment.keepsName() || r.segment.usesStarts && r.segment.IsExact()) &&
				r.hasRawSamples(step) {
				// The value is a sample's histogram. Its hint depends on the sample before it, which may be in another
				// bucket.
				a.Unanswered = append(a.Unanswered, step)
			} else {
				out.setHistogram(int(step), a.Histogram[i])
			}
			continue
		}
		out.v[step] = a.Value[i]
		out.floats++
		out.size++
	}
	if len(a.Unanswered) > 0 {
		if err := r.readUnanswered(s.Labels, out); err != nil {
			return err
		}
	}
	noteCounter(r.segment.fragment, s.Labels, out, &r.annotations)
	noteHistograms(r.segment.fragment, s.Labels, a.Notes, &r.annotations)
	if len(a.Unanswered) == 0 || !r.hasRawSamples(0) { // Otherwise the raw reader has noted the overlaps.
		noteOverlaps(r.segment.fragment, s.Labels, a.Overlaps, &r.annotations)
	}
	return nil
}

// noteOverlaps adds one warning of overlapping start timestamps per step.
func noteOverlaps(p *fragment, stored labels.Labels, steps int, into *annotations.Annotations) {
	for range steps { // Prometheus counts the warnings.
		into.Add(annotations.NewStartTimeOverlapWarning(stored.Get(labels.MetricName), p.args[0].PositionRange()))
	}
}

// hasUnknownMoments reports whether the function needs moments or lines that are missing in a bucket of the series.
func (r *rollupReader) hasUnknownMoments() bool {
	columns := bucketfn.Columns(r.segment.function)
	isUnknown := func(v float64) bool { return v < 0 }
	return columns&rollup.ColumnMoment != 0 && slices.ContainsFunc(r.buckets.Moment, isUnknown) ||
		columns&rollup.ColumnLine != 0 && slices.ContainsFunc(r.buckets.TimeSquares, func(v int64) bool {
			return v < 0
		})
}

// noteHistograms adds the annotations that Prometheus' functions add for a series' histograms.
func noteHistograms(p *fragment, stored labels.Labels, notes bucketfn.Note, into *annotations.Annotations) {
	if notes == 0 {
		return
	}
	name, at := stored.Get(labels.MetricName), p.args[0].PositionRange()
	for _, n := range []struct {
		note bucketfn.Note
		make func() error
	}{
		{
			bucketfn.NoteFloatsAndHistograms,
			func() error { return annotations.NewMixedFloatsHistogramsWarning(name, at) },
		},
		{
			bucketfn.NoteHistogramsIgnored,
			func() error { return annotations.NewHistogramIgnoredInMixedRangeInfo(name, at) },
		},
		{
			bucketfn.NoteMixedKinds,
			func() error { return annotations.NewMixedExponentialCustomHistogramsWarning(name, at) },
		},
		{bucketfn.NoteNotCounter, func() error { return annotations.NewNativeHistogramNotCounterWarning(name, at) }},
		{bucketfn.NoteNotGauge, func() error { return annotations.NewNativeHistogramNotGaugeWarning(name, at) }},
		{bucketfn.NoteBoundsReconciledAdd, func() error {
			return annotations.NewMismatchedCustomBucketsHistogramsInfo(at, annotations.HistogramAdd)
		}},
		{bucketfn.NoteBoundsReconciledSub, func() error {
			return annotations.NewMismatchedCustomBucketsHistogramsInfo(at, annotations.HistogramSub)
		}},
		{bucketfn.NoteBoundsReconciledSum, func() error {
			return annotations.NewMismatchedCustomBucketsHistogramsInfo(at, annotations.HistogramAgg)
		}},
	} {
		if notes&n.note != 0 {
			into.Add(n.make())
		}
	}
}

// appendSketches appends samples reconstructed from sketches. For buckets without a sketch, it appends the samples
// reconstructed from the bucket.
func (r *rollupReader) appendSketches(into *chunk.Samples) {
	for i := range r.buckets.End {
		if !expand.AppendSketch(into, &r.buckets, i) {
			r.Expand(into, &r.buckets, i)
			r.approximated = r.approximated || r.buckets.Count[i] > 0
		}
	}
}

func isGauge(h *histogram.FloatHistogram) bool { return h.CounterResetHint == histogram.GaugeType }

// hasRawSamples reports whether all raw samples of a step's window are stored.
func (r *rollupReader) hasRawSamples(step int32) bool {
	return max(r.segment.edges.timeAt(int(step))-r.segment.width, r.segment.oldest-1) >= r.segment.rawBoundary
}

// readUnanswered computes the steps that buckets don't answer: from stored samples if these are kept, otherwise from
// samples reconstructed from buckets.
func (r *rollupReader) readUnanswered(series labels.Labels, out *values) error {
	s, err := r.segment.samples.findSeries(series, func() ([]*query.SelectedSeries, error) {
		return r.segment.fragment.open(r.ctx, r.store, r.segment.tenant, r.warn)
	})
	if err != nil {
		return asPrometheus(err)
	}
	r.aside.reset(len(out.v))
	if s != nil {
		before := r.raw.loaded()
		if err := r.raw.read(s, &r.aside); err != nil {
			return err
		}
		r.asked += r.raw.loaded() - before
	}
	made := false
	for _, step := range r.answers.Unanswered {
		if r.hasRawSamples(step) {
			r.aside.copyStep(out, int(step))
			continue
		}
		if !made {
			made = true
			if err := r.computeFromBuckets(series, len(out.v)); err != nil {
				return err
			}
		}
		if !r.canReconstruct(int(step)) {
			r.leftOut = true
			continue
		}
		r.made.copyStep(out, int(step))
		r.approximated, r.bounds.Unknown = true, true
	}
	return nil
}

// computeFromBuckets computes a series' values at n steps from samples reconstructed from all its buckets.
func (r *rollupReader) computeFromBuckets(series labels.Labels, n int) error {
	r.made.reset(n)
	if ok, err := r.readAllColumns(series); err != nil || !ok {
		return err
	}
	return r.raw.compute(series, &r.made, math.MinInt64, func(into *chunk.Samples) error {
		r.appendRange(into, r.whole, math.MinInt64, math.MaxInt64)
		return nil
	})
}

// readAllColumns sets r.whole to the series' buckets with all columns, and reports whether the series was found.
func (r *rollupReader) readAllColumns(series labels.Labels) (bool, error) {
	if r.segment.Approximate { // r.buckets has all columns, cut where raw samples are kept.
		r.whole = &r.buckets
		return true, nil
	}
	r.whole = &r.own
	r.own.Reset()
	s, err := r.segment.whole.findSeries(series, func() ([]*query.SelectedSeries, error) {
		return r.segment.openAllColumns(r.ctx, r.store, r.warn, nil)
	})
	if err != nil || s == nil {
		return false, asPrometheus(err)
	}
	return true, asPrometheus(s.Buckets(&r.own, &r.ownBuffers))
}

// canReconstruct reports whether the function can be computed from samples reconstructed from the buckets of a step's
// window.
func (r *rollupReader) canReconstruct(step int) bool {
	complexFlags := bucketfn.ComplexFlags(r.segment.function)
	from, to := r.segment.fragment.window(step)
	b := r.whole
	for i := sort.Search(b.Len(), func(i int) bool { return b.End[i] > from }); i < b.Len() && b.Start[i] < to; i++ {
		flags := b.Flags[i]
		if b.Min[i] == b.Max[i] && b.Sum[i] == b.Sum[i] { // Reconstructed samples have the same values, in any order.
			flags &^= rollup.Large
		}
		isLarge := complexFlags&rollup.Large != 0 && flags&rollup.HasHistograms != 0 && b.Count[i] > 1 &&
			b.Histograms[i].Layouts&layouts.Large != 0
		if flags&complexFlags != 0 || isLarge {
			return false
		}
	}
	return true
}

// copyStep copies the value of a step to other. It does nothing if the step has no value.
func (v *values) copyStep(other *values, step int) {
	switch {
	case len(v.h) > 0 && v.h[step] != nil:
		other.setHistogram(step, v.h[step])
	case !isMissingValue(v.v[step]):
		other.v[step] = v.v[step]
		other.floats++
		other.size++
	}
}
