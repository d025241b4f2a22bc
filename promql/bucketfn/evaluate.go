package bucketfn

import "github.com/cassia-db/cassia/storage/rollup"

// Evaluator computes a function from buckets instead of samples. It reuses its memory for the next series, and isn't
// safe for concurrent use.
type Evaluator struct {
	// UsesStarts is set if rate, increase and resets use start timestamps, as Prometheus' functions do with the feature
	// use-start-timestamps. These functions then also need rollup.ColumnStarts.
	UsesStarts bool

	fn     *Function
	live   rollup.Buckets // the buckets with samples, unless all have some
	kinds  kinds
	larges larges
	joints joints
	starts starts
	fold   Fold[float64]
	sums   Fold[compensated]
	leaves []float64
	pairs  []compensated
	parts  []moments
	merged Fold[moments]
	steps  []uint32
	// greatest and edged are used only by Bound.
	greatest Fold[float64]
	edged    edged

	lines       []regression
	mergedLines Fold[regression]
	missing     []missing
	missed      Fold[missing]
	prediction  Prediction
}

// evaluateFunc computes a function from buckets.
type evaluateFunc func(f *Evaluator, b *rollup.Buckets, w Windows, out *Result)

// New returns an evaluator for the function with the given name ("" is an instant selector), or nil if the function
// can't be computed from buckets.
func New(name string) *Evaluator {
	fn := Lookup(name)
	if fn == nil || fn.over == nil {
		return nil
	}
	return &Evaluator{fn: fn}
}

// Columns returns the columns of buckets that the function with the given name reads, or 0 if the function can't be
// computed from buckets.
func Columns(name string) rollup.Columns {
	fn := Lookup(name)
	if fn == nil || fn.over == nil {
		return 0
	}
	return fn.columns | rollup.ColumnCount
}

// Name returns the name of the function.
func (f *Evaluator) Name() string { return f.fn.Name }

// Evaluate appends the function's values over the windows to out. b holds the buckets of one series, in order of time,
// with at least the columns that Columns returns. Buckets don't overlap, and may have any widths. The right edge of a
// window must not be inside a bucket. Neither must its left edge, unless Function.Newest is set.
//
// The values equal those of Prometheus' function over the samples: to the last bit for functions that don't round, and
// otherwise within 1e-12 of the largest absolute value that enters the computation.
func (f *Evaluator) Evaluate(b *rollup.Buckets, w Windows, out *Result) {
	if f.fn.staleness { // buckets with only a stale marker matter
		f.kinds.setBuckets(b, rollup.NotSimple)
		f.fn.over(f, b, w, out)
		return
	}
	b = f.onlyLive(b)
	f.kinds.setBuckets(b, f.fn.complexFlags())
	f.fn.over(f, b, w, out)
}

// orderedColumns are the columns whose sums depend on the order of addition if values are large.
const orderedColumns = rollup.ColumnSum | rollup.ColumnCorrection | rollup.ColumnMoment | rollup.ColumnLine

// ComplexFlags returns the flags of buckets from which samples must not be made for the function with the given name.
// If Evaluate leaves a window with a flagged bucket to samples, the window has no value after raw samples have expired.
func ComplexFlags(name string) rollup.Flags {
	fn := Lookup(name)
	switch {
	case fn == nil:
		return rollup.NotSimple
	case fn.columns&orderedColumns != 0:
		return fn.complexFlags() | rollup.Large
	default:
		return fn.complexFlags()
	}
}

func (f *Function) complexFlags() rollup.Flags {
	if f.columns&(rollup.ColumnResets|rollup.ColumnChanges) != 0 { // Nothing is known of those of aggregates.
		return rollup.NotSimple | rollup.Aggregated
	}
	return rollup.NotSimple
}

// onlyLive returns b without the buckets that contain only stale markers.
func (f *Evaluator) onlyLive(b *rollup.Buckets) *rollup.Buckets {
	dead := 0
	for i, n := range b.Count {
		if n == 0 && b.Flags[i]&rollup.NotSimple == 0 {
			dead++
		}
	}
	if dead == 0 {
		return b
	}
	f.live.Start, f.live.End = keepLive(f.live.Start, b.Start, b), keepLive(f.live.End, b.End, b)
	f.live.Flags, f.live.Count = keepLive(f.live.Flags, b.Flags, b), keepLive(f.live.Count, b.Count, b)
	f.live.FirstT, f.live.LastT = keepLive(f.live.FirstT, b.FirstT, b), keepLive(f.live.LastT, b.LastT, b)
	f.live.First, f.live.Last = keepLive(f.live.First, b.First, b), keepLive(f.live.Last, b.Last, b)
	f.live.Min, f.live.Max = keepLive(f.live.Min, b.Min, b), keepLive(f.live.Max, b.Max, b)
	f.live.Sum, f.live.SumLow = keepLive(f.live.Sum, b.Sum, b), keepLive(f.live.SumLow, b.SumLow, b)
	f.live.Wholes = b.Wholes
	f.live.Moment = keepLive(f.live.Moment, b.Moment, b)
	f.live.Comoment = keepLive(f.live.Comoment, b.Comoment, b)
	f.live.TimeSum, f.live.TimeSquares = keepLive(f.live.TimeSum, b.TimeSum, b),
		keepLive(f.live.TimeSquares, b.TimeSquares, b)
	f.live.Correction = keepLive(f.live.Correction, b.Correction, b)
	f.live.Resets, f.live.Changes = keepLive(f.live.Resets, b.Resets, b), keepLive(f.live.Changes, b.Changes, b)
	f.live.FirstST, f.live.LastST = keepStarts(f.live.FirstST, b.FirstST, b), keepStarts(f.live.LastST, b.LastST, b)
	f.live.StartCorrection, f.live.StartResets = keepLive(f.live.StartCorrection, b.StartCorrection, b),
		keepLive(f.live.StartResets, b.StartResets, b)
	clear(f.live.Histograms)
	f.live.Histograms = keepLive(f.live.Histograms, b.Histograms, b)
	return &f.live
}

// keepLive fills into with a column of b, without the buckets that have no samples.
func keepLive[T any](into, column []T, b *rollup.Buckets) []T {
	into = into[:0]
	for i := range column {
		if b.Count[i] > 0 || b.Flags[i]&rollup.NotSimple != 0 {
			into = append(into, column[i])
		}
	}
	return into
}

// keepStarts is keepLive for a column of start timestamps. A nil column stays nil, which means that there are no start
// timestamps.
func keepStarts(into, column []int64, b *rollup.Buckets) []int64 {
	if column == nil {
		return nil
	}
	return keepLive(into, column, b)
}

// cursor finds the buckets of consecutive windows.
type cursor struct {
	b      *rollup.Buckets
	lo, hi int
}

// move moves to the buckets [lo, hi) of window (a, b]. The edges must not decrease from call to call.
func (c *cursor) move(a, b int64) (lo, hi int) {
	ends := c.b.End
	for c.hi < len(ends) && ends[c.hi] <= b {
		c.hi++
	}
	for c.lo < c.hi && ends[c.lo] <= a {
		c.lo++
	}
	return c.lo, c.hi
}

// kinds records the kinds of samples in the buckets of a series. If all buckets are simple and contain only floats,
// which is the common case, it only sets plain.
type kinds struct {
	plain bool
	// floats[i], histograms[i] and complex[i] are the numbers of the first i buckets that contain floats, that contain
	// histograms, and that aren't simple.
	floats, histograms, complex []int32
}

// setBuckets records the kinds of the buckets of a series. Buckets with any of complexFlags count as not simple.
func (k *kinds) setBuckets(b *rollup.Buckets, complexFlags rollup.Flags) {
	all := rollup.Flags(0)
	for _, flags := range b.Flags {
		all |= flags
	}
	k.plain = all&(rollup.HasHistograms|complexFlags) == 0
	if k.plain {
		return
	}
	k.floats, k.histograms, k.complex = append(k.floats[:0], 0), append(k.histograms[:0], 0), append(k.complex[:0], 0)
	for i, flags := range b.Flags {
		f, h, c := k.floats[i], k.histograms[i], k.complex[i]
		if flags.HasFloats() {
			f++
		}
		if flags&rollup.HasHistograms != 0 {
			h++
		}
		if flags&complexFlags != 0 {
			c++
		}
		k.floats, k.histograms, k.complex = append(k.floats, f), append(k.histograms, h), append(k.complex, c)
	}
}

// kind is the kind of the samples in a window's buckets.
type kind uint8

const (
	ofFloats     kind = iota // floats alone
	ofHistograms             // histograms alone
	ofBoth                   // floats and histograms
	ofUnknown                // not simple
)

// in returns the kind of the buckets [lo, hi), which must not be empty.
func (k *kinds) in(lo, hi int) kind {
	switch {
	case k.plain:
		return ofFloats
	case k.complex[hi] > k.complex[lo]:
		return ofUnknown
	case k.histograms[hi] == k.histograms[lo]:
		return ofFloats
	case k.floats[hi] == k.floats[lo]:
		return ofHistograms
	default:
		return ofBoth
	}
}

// overEach calls each for all windows with samples, with the window's buckets [lo, hi). Windows of an unknown kind are
// left to samples instead.
func (f *Evaluator) overEach(b *rollup.Buckets, w Windows, out *Result, each func(step, lo, hi int)) {
	c := cursor{b: b}
	for k := range w.Steps {
		lo, hi := c.move(w.Window(k))
		switch {
		case lo == hi:
		case f.kinds.in(lo, hi) == ofUnknown:
			out.needsSamples(k)
		default:
			each(k, lo, hi)
		}
	}
}
