package bucketfn

import "github.com/cassia-db/cassia/storage/rollup"

// Evaluator computes a function from buckets instead of samples. It reuses its memory for the next series, and isn't
// safe for concurrent use.
type Evaluator struct {
	// UsesStarts is set if rate, increase and resets use start timestamps, as Prometheus' functions do with the feature
	// use-start-timestamps. These functions then also need rollup.ColumnStarts.
	UsesStarts bool
	// OnlyCounts is set if Prometheus' function sees only the counts and sums of native histograms, as in the argument
	// of histogram_count. Resets of gauges are then detected by their counts alone, which buckets don't store.
	OnlyCounts bool

	fn     *Function
	live   rollup.Buckets // the buckets with samples, unless all have some
	kinds  kinds
	larges largeValues
	joints joints
	starts starts
	fold   Fold[float64]
	sums   Fold[compensated]
	leaves []float64
	pairs  []compensated
	parts  []moments
	merged Fold[moments]
	steps  []uint32
	// maxFold and edges are used only by ComputeBounds.
	maxFold Fold[float64]
	edges   edgeBuckets

	lines       []regression
	mergedLines Fold[regression]
	missing     []missingSums
	missed      Fold[missingSums]
	prediction  Prediction
}

// evaluateFunc computes a function from buckets.
type evaluateFunc func(f *Evaluator, b *rollup.Buckets, w Windows, out *Result)

// New returns an evaluator for the function with the given name ("" is an instant selector), or nil if the function
// can't be computed from buckets.
func New(name string) *Evaluator {
	fn := LookupFunction(name)
	if fn == nil || fn.evaluate == nil {
		return nil
	}
	return &Evaluator{fn: fn}
}

// Columns returns the columns of buckets that the function with the given name reads, or 0 if the function can't be
// computed from buckets.
func Columns(name string) rollup.Columns {
	fn := LookupFunction(name)
	if fn == nil || fn.evaluate == nil {
		return 0
	}
	return fn.columns | rollup.ColumnCount
}

// Name returns the name of the function.
func (e *Evaluator) Name() string { return e.fn.Name }

// Evaluate appends the function's values over the windows to out. b holds the buckets of one series, in order of time,
// with at least the columns that Columns returns. Buckets don't overlap, and may have any widths. The right edge of a
// window must not be inside a bucket. Neither must its left edge, unless Function.Newest is set.
//
// The values equal those of Prometheus' function over the samples: to the last bit for functions that don't round, and
// otherwise within 1e-12 of the largest absolute value that enters the computation.
func (e *Evaluator) Evaluate(b *rollup.Buckets, w Windows, out *Result) {
	if e.fn.staleness { // buckets with only a stale marker matter
		e.kinds.setBuckets(b, rollup.NotSimple)
		e.fn.evaluate(e, b, w, out)
		return
	}
	b = e.liveBuckets(b)
	e.kinds.setBuckets(b, e.fn.complexFlags())
	e.fn.evaluate(e, b, w, out)
	if e.OnlyCounts { // Prometheus doesn't see bounds.
		out.Notes &^= notesOfBounds
	}
}

// orderedColumns are the columns whose sums depend on the order of addition if values are large.
const orderedColumns = rollup.ColumnSum | rollup.ColumnCorrection | rollup.ColumnMoment | rollup.ColumnLine

// ComplexFlags returns the flags of buckets from which samples must not be made for the function with the given name.
// If Evaluate leaves a window with a flagged bucket to samples, the window has no value after raw samples have expired.
func ComplexFlags(name string) rollup.Flags {
	fn := LookupFunction(name)
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
	if f.columns&(rollup.ColumnResets|rollup.ColumnChanges) != 0 { // The resets and changes of aggregates are unknown.
		return rollup.NotSimple | rollup.Aggregated
	}
	return rollup.NotSimple
}

// liveBuckets returns b without the buckets that contain only stale markers.
func (e *Evaluator) liveBuckets(b *rollup.Buckets) *rollup.Buckets {
	dead := 0
	for i, n := range b.Count {
		if n == 0 && b.Flags[i]&rollup.NotSimple == 0 {
			dead++
		}
	}
	if dead == 0 {
		return b
	}
	e.live.Start, e.live.End = appendLive(e.live.Start, b.Start, b), appendLive(e.live.End, b.End, b)
	e.live.Flags, e.live.Count = appendLive(e.live.Flags, b.Flags, b), appendLive(e.live.Count, b.Count, b)
	e.live.FirstT, e.live.LastT = appendLive(e.live.FirstT, b.FirstT, b), appendLive(e.live.LastT, b.LastT, b)
	e.live.First, e.live.Last = appendLive(e.live.First, b.First, b), appendLive(e.live.Last, b.Last, b)
	e.live.Min, e.live.Max = appendLive(e.live.Min, b.Min, b), appendLive(e.live.Max, b.Max, b)
	e.live.Sum, e.live.SumLow = appendLive(e.live.Sum, b.Sum, b), appendLive(e.live.SumLow, b.SumLow, b)
	e.live.Wholes = b.Wholes
	e.live.Moment = appendLive(e.live.Moment, b.Moment, b)
	e.live.Comoment = appendLive(e.live.Comoment, b.Comoment, b)
	e.live.TimeSum, e.live.TimeSquares = appendLive(e.live.TimeSum, b.TimeSum, b),
		appendLive(e.live.TimeSquares, b.TimeSquares, b)
	e.live.Correction = appendLive(e.live.Correction, b.Correction, b)
	e.live.Resets, e.live.Changes = appendLive(e.live.Resets, b.Resets, b), appendLive(e.live.Changes, b.Changes, b)
	e.live.FirstST = appendLiveStarts(e.live.FirstST, b.FirstST, b)
	e.live.LastST = appendLiveStarts(e.live.LastST, b.LastST, b)
	e.live.StartCorrection, e.live.StartResets = appendLive(e.live.StartCorrection, b.StartCorrection, b),
		appendLive(e.live.StartResets, b.StartResets, b)
	clear(e.live.Histograms)
	e.live.Histograms = appendLive(e.live.Histograms, b.Histograms, b)
	return &e.live
}

// appendLive fills into with a column of b, without the buckets that have no samples.
func appendLive[T any](into, column []T, b *rollup.Buckets) []T {
	into = into[:0]
	for i := range column {
		if b.Count[i] > 0 || b.Flags[i]&rollup.NotSimple != 0 {
			into = append(into, column[i])
		}
	}
	return into
}

// appendLiveStarts is appendLive for a column of start timestamps. A nil column stays nil, which means that there are
// no start timestamps.
func appendLiveStarts(into, column []int64, b *rollup.Buckets) []int64 {
	if column == nil {
		return nil
	}
	return appendLive(into, column, b)
}

// cursor finds the buckets of consecutive windows.
type cursor struct {
	b      *rollup.Buckets
	lo, hi int
}

// moveTo moves to the buckets [lo, hi) of window (a, b]. The edges must not decrease from call to call.
func (c *cursor) moveTo(a, b int64) (lo, hi int) {
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
// which is the common case, it only sets onlyFloats.
type kinds struct {
	onlyFloats bool
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
	k.onlyFloats = all&(rollup.HasHistograms|complexFlags) == 0
	if k.onlyFloats {
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
	kindFloats     kind = iota // floats alone
	kindHistograms             // histograms alone
	kindBoth                   // floats and histograms
	kindUnknown                // not simple
)

// kindOf returns the kind of the buckets [lo, hi), which must not be empty.
func (k *kinds) kindOf(lo, hi int) kind {
	switch {
	case k.onlyFloats:
		return kindFloats
	case k.complex[hi] > k.complex[lo]:
		return kindUnknown
	case k.histograms[hi] == k.histograms[lo]:
		return kindFloats
	case k.floats[hi] == k.floats[lo]:
		return kindHistograms
	default:
		return kindBoth
	}
}

// eachWindow calls each for all windows with samples, with the window's buckets [lo, hi). Windows of an unknown kind
// are left to samples instead.
func (e *Evaluator) eachWindow(b *rollup.Buckets, w Windows, out *Result, each func(step, lo, hi int)) {
	c := cursor{b: b}
	for k := range w.Steps {
		lo, hi := c.moveTo(w.Window(k))
		switch {
		case lo == hi:
		case e.kinds.kindOf(lo, hi) == kindUnknown:
			out.needsSamples(k)
		default:
			each(k, lo, hi)
		}
	}
}
