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
)

// rollupReader computes a segment's values from buckets. What these can't answer it leaves to a rawReader over the
// samples, and where a function needs samples, it makes some of the buckets.
type rollupReader struct {
	segment *segment
	ctx     context.Context
	store   *storage.Store
	warn    func(error)
	// over computes from buckets; nil: raw does, from the samples they keep.
	over *bucketfn.Evaluator
	raw  *rawReader

	bucketExpander
	pieces     rollup.Buckets  // buckets, cut by edges
	whole      *rollup.Buckets // those of a series with all columns
	own        rollup.Buckets  // these, where they are read apart
	ownBuffers query.BucketBuffers
	answers    bucketfn.Result
	// aside are values from samples, made those from samples that are made of buckets.
	aside, made values

	annotations annotations.Annotations
	decoded     int64
	// asked counts samples that were read where buckets weren't enough.
	asked int64
	// leftOut: steps have no value for want of samples. approximated: they have one from samples made of buckets.
	leftOut, approximated bool
	// bounds are by how much values are off where windows were moved or buckets cut.
	bounds bucketfn.Bounds
}

func newRollupReader(ctx context.Context, store *storage.Store, l *segment, b *budget, warn func(error)) *rollupReader {
	r := &rollupReader{segment: l, ctx: ctx, store: store, warn: warn, raw: newRawReader(l.fragment, b)}
	r.raw.ctx = ctx
	if r.over = bucketfn.New(l.function); r.over != nil {
		r.over.UsesStarts = l.starts
	}
	r.UsesStarts = l.starts
	if l.function == "predict_linear" {
		p := bucketfn.Prediction{First: l.eval.first, Step: l.eval.step, Seconds: math.NaN()}
		if len(l.scalars) > 0 {
			p.Seconds = l.scalars[0][0].F
		}
		r.over.SetPrediction(p)
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

// loaded implements fragmentReader. Samples that are made of buckets don't count, the buckets do.
func (r *rollupReader) loaded() int64 { return r.decoded + r.asked }

// read implements fragmentReader.
func (r *rollupReader) read(s *query.SelectedSeries, out *values) error {
	if err := s.Buckets(&r.buckets, &r.buffers); err != nil {
		return asPrometheus(err)
	}
	r.decoded += int64(r.buckets.Len())
	if err := r.raw.budget.allow(r.buckets.Len()); err != nil {
		return err
	}
	if r.over == nil {
		for _, flags := range r.buckets.Flags {
			r.leftOut = r.leftOut || flags&rollup.NotSimple != 0
		}
		return r.raw.compute(s.Labels, out, math.MinInt64, func(into *chunk.Samples) error {
			if r.segment.Sketched {
				r.appendSketches(into)
			} else {
				r.appendTo(into, &r.buckets, math.MinInt64, math.MaxInt64)
			}
			return nil
		})
	}
	buckets := &r.buckets
	if r.segment.Approximate {
		buckets = &r.pieces
		r.Cut(buckets, &r.buckets, r.segment.cuts)
		if r.lacksMoments() { // Those of the pieces are made.
			r.approximated, r.bounds.Unknown = true, true
		}
		if err := r.raw.budget.allow(buckets.Len()); err != nil {
			return err
		}
	}
	r.answers.Reset()
	r.over.Evaluate(buckets, r.segment.Windows, &r.answers)
	a := &r.answers
	if !r.segment.IsExact() {
		if r.bounds.Steps == nil {
			r.bounds.Steps = make([]float64, r.segment.Windows.Steps)
		}
		r.over.Bound(&r.buckets, r.segment.asked(), r.segment.Windows, a, &r.bounds)
	}
	for i, step := range a.Step {
		if i < len(a.Histogram) && a.Histogram[i] != nil {
			if !isGauge(a.Histogram[i]) && (r.segment.keepsName() || r.segment.starts && r.segment.IsExact()) && r.sampled(step) {
				// The answer is a sample's histogram itself, whose hint depends on the sample before.
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
		if err := r.askSamples(s.Labels, out); err != nil {
			return err
		}
	}
	noteCounter(r.segment.fragment, s.Labels, out, &r.annotations)
	noteHistograms(r.segment.fragment, s.Labels, a.Notes, &r.annotations)
	if len(a.Unanswered) == 0 || !r.sampled(0) { // Otherwise the samples have been looked through.
		noteOverlaps(r.segment.fragment, s.Labels, a.Overlaps, &r.annotations)
	}
	return nil
}

// noteOverlaps adds a warning of overlapping start timestamps at so many steps.
func noteOverlaps(p *fragment, stored labels.Labels, steps int, into *annotations.Annotations) {
	for range steps { // Prometheus counts them.
		into.Add(annotations.NewStartTimeOverlapWarning(stored.Get(labels.MetricName), p.args[0].PositionRange()))
	}
}

// lacksMoments reports whether the function needs moments or lines that a bucket of the series doesn't have.
func (r *rollupReader) lacksMoments() bool {
	columns := bucketfn.Columns(r.segment.function)
	isUnknown := func(v float64) bool { return v < 0 }
	return columns&rollup.ColumnMoment != 0 && slices.ContainsFunc(r.buckets.Moment, isUnknown) ||
		columns&rollup.ColumnLine != 0 && slices.ContainsFunc(r.buckets.TimeSquares, func(v int64) bool { return v < 0 })
}

// noteHistograms adds the annotations that Prometheus' functions make of a series' histograms.
func noteHistograms(p *fragment, stored labels.Labels, notes bucketfn.Note, into *annotations.Annotations) {
	if notes == 0 {
		return
	}
	name, at := stored.Get(labels.MetricName), p.args[0].PositionRange()
	for _, n := range []struct {
		note bucketfn.Note
		make func() error
	}{
		{bucketfn.NoteFloatsAndHistograms, func() error { return annotations.NewMixedFloatsHistogramsWarning(name, at) }},
		{bucketfn.NoteHistogramsIgnored, func() error { return annotations.NewHistogramIgnoredInMixedRangeInfo(name, at) }},
		{bucketfn.NoteMixedKinds, func() error { return annotations.NewMixedExponentialCustomHistogramsWarning(name, at) }},
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

// appendSketches appends the samples that sketches make, and of buckets without any those that these make.
func (r *rollupReader) appendSketches(into *chunk.Samples) {
	for i := range r.buckets.End {
		if !r.buckets.ExpandSketch(into, i) {
			r.Expand(into, &r.buckets, i)
			r.approximated = r.approximated || r.buckets.Count[i] > 0
		}
	}
}

func isGauge(h *histogram.FloatHistogram) bool { return h.CounterResetHint == histogram.GaugeType }

// sampled reports whether the samples of the window of a step are kept.
func (r *rollupReader) sampled(step int32) bool {
	return max(r.segment.edges.at(int(step))-r.segment.width, r.segment.oldest-1) >= r.segment.gone
}

// askSamples computes the steps that buckets leave unanswered from samples, as far as these are kept, and else from those that
// buckets make.
func (r *rollupReader) askSamples(series labels.Labels, out *values) error {
	s, err := r.segment.samples.of(series, func() ([]*query.SelectedSeries, error) {
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
		if r.sampled(step) {
			r.aside.copyTo(out, int(step))
			continue
		}
		if !made {
			made = true
			if err := r.make(series, len(out.v)); err != nil {
				return err
			}
		}
		if !r.simple(int(step)) {
			r.leftOut = true
			continue
		}
		r.made.copyTo(out, int(step))
		r.approximated, r.bounds.Unknown = true, true
	}
	return nil
}

// make computes a series' values at n steps from samples that are made of all its buckets.
func (r *rollupReader) make(series labels.Labels, n int) error {
	r.made.reset(n)
	if ok, err := r.readWhole(series); err != nil || !ok {
		return err
	}
	return r.raw.compute(series, &r.made, math.MinInt64, func(into *chunk.Samples) error {
		r.appendTo(into, r.whole, math.MinInt64, math.MaxInt64)
		return nil
	})
}

// readWhole sets r.whole, and reports whether there is any.
func (r *rollupReader) readWhole(series labels.Labels) (bool, error) {
	if r.segment.Approximate { // They are read like that, and cut by samples where these are kept.
		r.whole = &r.buckets
		return true, nil
	}
	r.whole = &r.own
	r.own.Reset()
	s, err := r.segment.whole.of(series, func() ([]*query.SelectedSeries, error) { return r.segment.openWhole(r.ctx, r.store, r.warn, nil) })
	if err != nil || s == nil {
		return false, asPrometheus(err)
	}
	return true, asPrometheus(s.Buckets(&r.own, &r.ownBuffers))
}

// simple reports whether the function can be computed from samples that are made of the buckets of the window of a step.
func (r *rollupReader) simple(step int) bool {
	complexFlags := bucketfn.ComplexFlags(r.segment.function)
	from, to := r.segment.fragment.window(step)
	b := r.whole
	for i := sort.Search(b.Len(), func(i int) bool { return b.End[i] > from }); i < b.Len() && b.Start[i] < to; i++ {
		if b.Flags[i]&complexFlags != 0 {
			return false
		}
	}
	return true
}

// copyTo sets a step of other values to what v has there, if that is anything.
func (v *values) copyTo(other *values, step int) {
	switch {
	case len(v.h) > 0 && v.h[step] != nil:
		other.setHistogram(step, v.h[step])
	case !isNone(v.v[step]):
		other.v[step] = v.v[step]
		other.floats++
		other.size++
	}
}
