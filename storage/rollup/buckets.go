package rollup

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup/layouts"
)

// Buckets are buckets of one series in columns, ordered by time. A bucket contains the aggregates of the samples in
// (Start, End] that PromQL's range functions need. A bucket without samples is omitted.
//
// Every column is as long as End, or nil. A column may be nil as stated in its comment, or if it wasn't requested when
// the buckets were read.
type Buckets struct {
	// Start and End are the bounds of the buckets in milliseconds, ascending: a bucket contains the samples with Start
	// < t <= End.
	Start, End []int64
	// Flags are properties of a bucket's samples.
	Flags []Flags
	// Count is the number of samples. Stale markers are not counted here or in any other column.
	Count []uint32
	// FirstT and LastT are the timestamps of the first and the last sample in milliseconds; 0 where Count is 0.
	FirstT, LastT []int64
	// FirstST and LastST are the start timestamps of the first and the last sample, 0 where unknown; nil if all are
	// unknown.
	FirstST, LastST []int64
	// StartCorrection is the amount that a rate with start timestamps adds to Correction, for resets that only start
	// timestamps show: the sum of the values right before these resets. StartResets is the number of these resets,
	// which Resets doesn't include. Both are nil if FirstST is nil.
	StartCorrection []float64
	StartResets     []uint32
	// First and Last are the values of the first and the last float; 0 where there are no floats.
	First, Last []float64
	// Min and Max are the smallest and largest value; NaN only where all values are NaN.
	Min, Max []float64
	// Sum plus SumLow is the sum of the values by Neumaier's summation, which improves Kahan's ("Rundungsfehleranalyse
	// einiger Verfahren zur Summation endlicher Summen", 1974). Sum is the nearest float. SumLow is 0 where Sum is
	// infinite or NaN. Unless some values are much smaller than others, SumLow is rounded to 2^-47 of the largest
	// absolute value.
	Sum, SumLow []float64
	// Moment is the sum of the squared deviations of the values from their mean, with a relative error of at most
	// 1.1e-13; -1 where unknown, and 0 where Sum is infinite or NaN.
	Moment []float64
	// Comoment is the sum of the products of the deviations of values and times (milliseconds) from their means.
	// TimeSum is the sum of all times relative to FirstT, and TimeSquares the sum of the squares of these relative
	// times; see line.go. TimeSquares is -1 where Comoment, TimeSum and TimeSquares are unknown. They are unknown with
	// native histograms among the samples, and where Sum is infinite or NaN and Min is less than Max.
	Comoment             []float64
	TimeSum, TimeSquares []int64
	// Correction is the amount that rate adds for counter resets: the sum of the values right before each reset.
	Correction []float64
	// Resets and Changes count the values that are less than, or differ from, the previous value in the bucket.
	Resets, Changes []uint32
	// Histograms has the native histograms of each bucket: nil for a bucket without flag HasHistograms. The column is
	// nil if no bucket has histograms. The requested columns determine which of the fields that hold histograms are
	// set. All other fields of Histograms are always set.
	Histograms []*Histograms
	// Sketches are the sketches of floats. A sketch covers the values since the previous sketch in the same hour, so 5m
	// buckets have one sketch per hour. The column is nil if no bucket has a sketch. Buckets of counters and buckets of
	// equal values have no sketch.
	Sketches []*Sketch

	spare startColumns // memory for the columns of start timestamps

	// Wholes are the buckets that package expand cut into pieces, ordered by time; nil if there are none.
	Wholes []Whole
}

// Histograms contains the aggregates of a bucket's native histograms. It is immutable. Histograms with different
// schemas, zero thresholds or custom bounds are added as by Prometheus (FloatHistogram.Add): in the finest layout to
// which all of them can be converted.
type Histograms struct {
	// Count is the number of histograms; set with ColumnCount.
	Count uint32
	// First and Last are the first and the last histogram. Their hint is GaugeType for gauges, otherwise
	// UnknownCounterReset.
	First, Last *histogram.FloatHistogram
	// Correction is the sum of the histograms right before each counter reset, except First. It is nil if that sum is
	// empty or MixedKinds is set.
	Correction *histogram.FloatHistogram
	// Sum is the sum of all histograms; nil if SumDropped is set, or if there are also floats or histograms of both
	// kinds.
	Sum *histogram.FloatHistogram
	// SumDropped is set if the sum isn't stored because it is too large.
	SumDropped bool
	// Coarser is the schema of Last minus the smallest schema of the histograms after the first; 0 for custom bounds.
	Coarser uint8
	// StartCorrection is the sum of the histograms right before each reset that only start timestamps show, except
	// First. It is nil under the same conditions as Correction.
	StartCorrection *histogram.FloatHistogram
	// FirstReset is set if the second histogram is a counter reset. Prometheus' rate over a range that starts with the
	// first histogram then ignores the first histogram's layout.
	FirstReset bool
	// FirstStartReset is set if the second histogram is a reset that only start timestamps show.
	FirstStartReset bool
	// Second is the second histogram without its observations, because only its custom bounds are needed. It is nil
	// unless FirstReset or FirstStartReset is set and Last has different bounds.
	Second *histogram.FloatHistogram
	// HasGauges is set if any of the histograms is a gauge.
	HasGauges bool
	// MixedKinds is set if the histograms after the first include both exponential buckets and custom bounds.
	MixedKinds bool
	// Reconciled are the sums whose custom bounds were reconciled.
	Reconciled Reconciled
	// Layouts determine whether sums depend on the order of addition.
	Layouts layouts.Traits
}

// Reconciled is a set of sums of histograms with different custom bounds. Prometheus adds an info where it computes
// such a sum.
type Reconciled uint8

// The elements of a set. Values are stored and must never be reused.
const (
	// ReconciledSum means that the custom bounds of the bucket's histograms differ.
	ReconciledSum Reconciled = 1 << iota
	// reconciledCorrection means that the custom bounds of the histograms added up in Correction differ.
	reconciledCorrection
	// ReconciledStartCorrection means that the custom bounds of the histograms added up in StartCorrection differ.
	ReconciledStartCorrection

	allReconciled = ReconciledSum | reconciledCorrection | ReconciledStartCorrection
)

// Flags of a bucket.
type Flags uint16

// The flags. Values are stored and must never be reused.
const (
	// EndsStale means that the latest sample of the bucket is a stale marker.
	EndsStale Flags = 1 << iota
	// NotSimple means that queries must read the samples instead of the bucket, because queries can't compute with one
	// of the bucket's histograms. The bucket's columns cover only the floats among its samples.
	NotSimple
	// HasHistograms means that the bucket's samples include native histograms.
	HasHistograms
	_ // as stored: the bucket has no samples
	// hasFloatsToo means that the bucket's samples include histograms and floats. First, Last, Min, Max and Sum cover
	// the floats; all other columns cover all samples. A transition between floats and histograms is both a change and
	// a reset, and there is no Correction.
	hasFloatsToo
	// FirstIsHistogram and LastIsHistogram mean that the first, or last, sample is a histogram.
	FirstIsHistogram
	LastIsHistogram
	// HasDeleted means that some of the bucket's samples were deleted when they could no longer be separated from the
	// rest, so the bucket still includes them.
	HasDeleted
	// StartsOverlap means that a sample has a start timestamp that is before the previous sample and differs from the
	// previous sample's start timestamp. Prometheus warns about such samples.
	StartsOverlap
	// Aggregated means that some of the bucket's samples were imported as aggregates, see Aggregate. Count, Sum, Min
	// and Max cover all samples. The first and the last sample and Correction are estimates, and Resets and Changes are
	// meaningless. The moment, the line and the sketch are unknown.
	Aggregated
	// Large means that a finite value is so large that a sum with it may overflow, see isLarge. Sum and Correction may
	// then depend on the order of addition. LargePositive and LargeNegative are set only with Large: a value, finite or
	// not, is above the limit, or below the negative limit.
	Large
	LargePositive
	LargeNegative
	// Vague means that large values cancel out, so that Sum plus SumLow may differ by more than 1e-12 from the exact
	// sum.
	Vague
)

// ofHistograms are the flags of a bucket that contains only histograms.
const ofHistograms = HasHistograms | FirstIsHistogram | LastIsHistogram

// HasFloats returns true if a bucket with samples contains floats.
func (f Flags) HasFloats() bool { return f&(HasHistograms|hasFloatsToo) != HasHistograms }

// Columns is a set of columns of Buckets. Start, End and Flags are always present.
type Columns uint16

// The columns.
const (
	ColumnCount Columns = 1 << iota
	ColumnFirst         // First and FirstT
	ColumnLast          // Last and LastT
	ColumnMin
	ColumnMax
	ColumnSum        // Sum and SumLow, and the sum of histograms
	ColumnCorrection // of floats and histograms
	ColumnResets
	ColumnChanges
	ColumnStarts // FirstST, LastST, StartCorrection, StartResets; with ColumnCorrection also of histograms
	ColumnMoment
	ColumnSketches
	ColumnLine // Comoment, TimeSum and TimeSquares

	AllColumns Columns = 1<<iota - 1
)

// FloatCount returns the number of floats in bucket i.
func (b *Buckets) FloatCount(i int) uint32 {
	if b.Flags[i]&HasHistograms != 0 {
		return b.Count[i] - b.Histograms[i].Count
	}
	return b.Count[i]
}

// TimesOf returns a lower bound of the first timestamp of bucket i and an upper bound of its last timestamp, in
// milliseconds. They are as narrow as the bucket's columns allow. It requires all columns.
func (b *Buckets) TimesOf(i int) (first, last int64) {
	first, last = b.Start[i]+1, b.End[i]
	if b.Count[i] == 0 || b.Flags[i]&(NotSimple|Aggregated) != 0 {
		// The columns cover only some of the samples, or are estimates.
		return first, last
	}
	if b.Flags[i]&EndsStale == 0 {
		last = b.LastT[i]
	}
	return b.FirstT[i], last
}

// Slice returns the buckets [from, to). Its columns share memory with those of b; nil columns remain nil.
func (b *Buckets) Slice(from, to int) Buckets {
	n := len(b.End)
	return Buckets{
		Start: viewRange(b.Start, n, from, to), End: viewRange(b.End, n, from, to), Flags: viewRange(
			b.Flags, n, from, to,
		),
		Count:  viewRange(b.Count, n, from, to),
		FirstT: viewRange(b.FirstT, n, from, to), LastT: viewRange(b.LastT, n, from, to),
		FirstST: viewRange(b.FirstST, n, from, to), LastST: viewRange(b.LastST, n, from, to),
		StartCorrection: viewRange(b.StartCorrection, n, from, to), StartResets: viewRange(b.StartResets, n, from, to),
		First: viewRange(b.First, n, from, to), Last: viewRange(b.Last, n, from, to),
		Min: viewRange(b.Min, n, from, to), Max: viewRange(b.Max, n, from, to),
		Sum: viewRange(b.Sum, n, from, to), SumLow: viewRange(b.SumLow, n, from, to), Moment: viewRange(
			b.Moment, n, from, to,
		),
		Comoment: viewRange(b.Comoment, n, from, to), TimeSum: viewRange(b.TimeSum, n, from, to),
		TimeSquares: viewRange(b.TimeSquares, n, from, to),
		Correction:  viewRange(b.Correction, n, from, to),
		Resets:      viewRange(b.Resets, n, from, to), Changes: viewRange(b.Changes, n, from, to),
		Histograms: viewRange(b.Histograms, n, from, to), Sketches: viewRange(b.Sketches, n, from, to),
	}
}

// Equal reports whether b and o have the same columns, bit for bit. It returns false if either has histograms.
func (b *Buckets) Equal(o *Buckets) bool {
	return b.Histograms == nil && o.Histograms == nil && slices.EqualFunc(b.Sketches, o.Sketches, sameSketch) &&
		slices.Equal(b.Start, o.Start) && slices.Equal(b.End, o.End) && slices.Equal(b.Flags, o.Flags) &&
		slices.Equal(b.Count, o.Count) && slices.Equal(b.FirstT, o.FirstT) && slices.Equal(b.LastT, o.LastT) &&
		slices.Equal(b.FirstST, o.FirstST) && slices.Equal(b.LastST, o.LastST) &&
		sameBits(b.StartCorrection, o.StartCorrection) && slices.Equal(b.StartResets, o.StartResets) &&
		sameBits(b.First, o.First) && sameBits(b.Last, o.Last) && sameBits(b.Min, o.Min) && sameBits(b.Max, o.Max) &&
		sameBits(b.Sum, o.Sum) && sameBits(b.SumLow, o.SumLow) && sameBits(b.Moment, o.Moment) &&
		sameBits(b.Comoment, o.Comoment) && slices.Equal(b.TimeSum, o.TimeSum) &&
		slices.Equal(b.TimeSquares, o.TimeSquares) && sameBits(b.Correction, o.Correction) &&
		slices.Equal(b.Resets, o.Resets) && slices.Equal(b.Changes, o.Changes)
}

func sameBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// KeepRange removes the buckets from index at on, except [from, to), where from >= at.
func (b *Buckets) KeepRange(at, from, to int) {
	n := len(b.End)
	b.Start, b.End, b.Flags = keepRange(b.Start, n, at, from, to), keepRange(b.End, n, at, from, to),
		keepRange(b.Flags, n, at, from, to)
	b.Count, b.Resets, b.Changes = keepRange(b.Count, n, at, from, to), keepRange(b.Resets, n, at, from, to),
		keepRange(b.Changes, n, at, from, to)
	b.FirstT, b.LastT = keepRange(b.FirstT, n, at, from, to), keepRange(b.LastT, n, at, from, to)
	b.FirstST, b.LastST = keepRange(b.FirstST, n, at, from, to), keepRange(b.LastST, n, at, from, to)
	b.StartCorrection, b.StartResets = keepRange(b.StartCorrection, n, at, from, to), keepRange(
		b.StartResets, n, at, from, to,
	)
	b.First, b.Last = keepRange(b.First, n, at, from, to), keepRange(b.Last, n, at, from, to)
	b.Min, b.Max = keepRange(b.Min, n, at, from, to), keepRange(b.Max, n, at, from, to)
	b.Sum, b.SumLow = keepRange(b.Sum, n, at, from, to), keepRange(b.SumLow, n, at, from, to)
	b.Moment, b.Sketches = keepRange(b.Moment, n, at, from, to), keepRange(b.Sketches, n, at, from, to)
	b.Comoment = keepRange(b.Comoment, n, at, from, to)
	b.TimeSum, b.TimeSquares = keepRange(b.TimeSum, n, at, from, to), keepRange(b.TimeSquares, n, at, from, to)
	b.Correction, b.Histograms = keepRange(b.Correction, n, at, from, to), keepRange(b.Histograms, n, at, from, to)
}

// keepRange is Buckets.KeepRange for a column of n buckets. It returns a missing column unchanged.
func keepRange[T any](column []T, n, at, from, to int) []T {
	if len(column) != n {
		return column
	}
	return append(column[:at], column[from:to]...)
}

// viewRange returns column[from:to] of a column of n buckets, with its capacity limited so that an append copies it;
// nil if the column is missing.
func viewRange[T any](column []T, n, from, to int) []T {
	if column == nil || len(column) != n {
		return nil
	}
	return column[from:to:to]
}
