package promql

import (
	"context"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rollupReader computes a leg's values from buckets. What these can't answer it leaves to a rawReader over the
// samples, and where a function knows only samples, it makes some of the buckets' first and last ones.
type rollupReader struct {
	leg   *leg
	ctx   context.Context
	store *storage.Store
	warn  func(error)
	// over computes from buckets; nil: raw does, from the samples they keep.
	over *bucketFunc
	raw  *rawReader

	buckets rollup.Buckets
	buffers storage.BucketBuffers
	answers answers
	aside   values

	annotations annotations.Annotations
	decoded     int64
	// leftOut says that steps have no value for want of samples.
	leftOut bool
}

func newRollupReader(ctx context.Context, store *storage.Store, l *leg, b *budget, warn func(error)) *rollupReader {
	r := &rollupReader{leg: l, ctx: ctx, store: store, warn: warn, raw: newRawReader(l.part, b)}
	r.raw.ctx = ctx
	if !l.Approximate {
		r.over = newBucketFunc(l.function)
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

// read implements partReader.
func (r *rollupReader) read(s *storage.SelectedSeries, out *values) error {
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
			appendEnds(into, &r.buckets)
			return nil
		})
	}
	r.answers.Reset()
	r.over.evaluate(&r.buckets, r.leg.Windows, &r.answers)
	a := &r.answers
	for i, step := range a.Step {
		if i < len(a.Histogram) && a.Histogram[i] != nil {
			if r.leg.keepsName() && r.sampled(step) {
				// The histogram itself is asked for, and its hint depends on the sample before.
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
	noteCounter(r.leg.part, s.Labels, out, &r.annotations)
	return nil
}

// sampled says whether the samples of the window of a step are kept.
func (r *rollupReader) sampled(step int32) bool {
	return max(r.leg.edges.at(int(step))-r.leg.width, r.leg.oldest-1) >= r.leg.gone
}

// askSamples computes the steps that buckets leave unanswered from samples, as far as these are kept.
func (r *rollupReader) askSamples(series labels.Labels, out *values) error {
	s, err := r.leg.sampled(r.ctx, r.store, r.warn, series)
	if err != nil {
		return err
	}
	r.aside.reset(len(out.v))
	if s != nil {
		if err := r.raw.read(s, &r.aside); err != nil {
			return err
		}
	}
	for _, step := range r.answers.Unanswered {
		if !r.sampled(step) {
			r.leftOut = true
			continue
		}
		var h *histogram.FloatHistogram
		if len(r.aside.h) > 0 {
			h = r.aside.h[step]
		}
		switch v := r.aside.v[step]; {
		case h != nil:
			out.setHistogram(int(step), h)
		case !isNone(v):
			out.v[step] = v
			out.floats++
			out.size++
		}
	}
	return nil
}

// appendEnds appends the samples that buckets keep: the first and the last of each, and stale markers.
func appendEnds(into *chunk.Samples, b *rollup.Buckets) {
	for i := range b.End {
		stale := b.Flags[i]&rollup.EndsStale != 0
		if b.Count[i] > 0 {
			if h := histogramsAt(b, i); h != nil {
				into.AppendHistogram(chunk.Histogram{T: b.FirstT[i], Float: h.First})
				if b.LastT[i] > b.FirstT[i] {
					into.AppendHistogram(chunk.Histogram{T: b.LastT[i], Float: h.Last})
				}
			} else {
				into.AppendFloat(b.FirstT[i], 0, b.First[i])
				if b.LastT[i] > b.FirstT[i] {
					into.AppendFloat(b.LastT[i], 0, b.Last[i])
				}
			}
		}
		if stale && (b.Count[i] == 0 || b.LastT[i] < b.End[i]) {
			into.AppendFloat(b.End[i], 0, none)
		}
	}
}

// histogramsAt returns the histograms of bucket i, nil if it has none.
func histogramsAt(b *rollup.Buckets, i int) *rollup.Histograms {
	if len(b.Histograms) == 0 {
		return nil
	}
	return b.Histograms[i]
}
