package rollup

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
)

// Buckets are buckets of one series as columns, by time. A bucket holds, of the samples in (its start, its end],
// the values that PromQL's functions over ranges ask for. Buckets without samples aren't there.
//
// Every column is as long as End, but for those that may be nil. A column that wasn't asked for when the
// buckets were read is nil, too.
type Buckets struct {
	// End are the ends of the buckets, milliseconds, ascending. Start are their beginnings: a bucket holds
	// the samples with Start < t <= End.
	Start, End []int64
	// Flags are properties of a bucket's samples.
	Flags []Flags
	// Count is the number of samples; stale markers don't count, here and below.
	Count []uint32
	// FirstT and LastT are the timestamps of the first and the last sample, milliseconds; 0 where Count is 0.
	FirstT, LastT []int64
	// FirstST and LastST are those samples' start timestamps, 0 where unknown; nil if all are.
	FirstST, LastST []int64
	// StartCorrection is what rate adds to Correction for resets that only start timestamps show, where it uses these: the sum of the
	// values right before each. StartResets is how many there are besides Resets. Both are nil if FirstST is.
	StartCorrection []float64
	StartResets     []uint32
	// First and Last are the values of the first and the last float; 0 where there is none.
	First, Last []float64
	// Min and Max are the least and the greatest value; NaN only where all values are.
	Min, Max []float64
	// Sum plus SumLow is the sum of the values, as Neumaier's summation keeps it (Kahan's, improved: "Rundungs-
	// fehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974). Sum is the float next to it; SumLow
	// is rounded to 2^-47 of the greatest absolute value, and 0 where Sum is infinite or NaN.
	Sum, SumLow []float64
	// Moment is the sum of the squares of what the values differ by from their mean, to 1.1e-13; -1 where it isn't known, and 0 where
	// Sum is infinite or NaN.
	Moment []float64
	// Comoment is the sum of the products of what values and times, milliseconds, differ by from their means, TimeSum is by how much all times are
	// later than FirstT, and TimeSquares is the sum of the squares of that; see line.go. TimeSquares is -1 where they aren't known, and
	// so it is with native histograms among the samples, and where Sum is infinite or NaN and Min is less than Max.
	Comoment             []float64
	TimeSum, TimeSquares []int64
	// Correction is what rate adds for counter resets: the sum of the values right before each.
	Correction []float64
	// Resets and Changes are how often a value was less than, or other than, the one before it in the bucket.
	Resets, Changes []uint32
	// Histograms are the native histograms; nil if no bucket has any, and nil where Flags lack HasHistograms. Columns determine which
	// histograms each of them has; the rest is always there.
	Histograms []*Histograms
	// Sketches are those of floats, of all that came since the sketch before in the same hour: so 5m buckets have one an hour. It is nil
	// if no bucket has any. A bucket whose values are all equal has none, nor have counters.
	Sketches []*Sketch

	spare startColumns // memory for the columns of start timestamps

	// Wholes are the buckets that Expander.Cut cut into these, by time; nil for others.
	Wholes []Whole
}

// Whole is a bucket from Start to End that was cut.
type Whole struct {
	Start, End int64
	// Moment is by how much the bucket's moment exceeds what those of its pieces add up to; 0 if either isn't known.
	Moment float64
	// Comoment, TimeSum and TimeSquares are likewise by how much the bucket's exceed those of its pieces together, and 0 where they aren't known.
	// Mean is the mean of the values, and First the time of the first sample.
	Comoment, TimeSum, TimeSquares, Mean float64
	First                                int64
}

// Histograms is what a bucket holds of its native histograms. Nobody changes it. Histograms with other schemas, zero thresholds or
// custom bounds are added as Prometheus adds them (FloatHistogram.Add): in the finest layout that all of them can be brought into.
type Histograms struct {
	// Count is the number of histograms; with ColumnCount.
	Count uint32
	// First and Last are the first and the last histogram, with the hint UnknownCounterReset or, if they are gauges, GaugeType.
	First, Last *histogram.FloatHistogram
	// Correction is the sum of the histograms right before each counter reset, but without First; nil if it is of none, or if
	// MixedKinds is set.
	Correction *histogram.FloatHistogram
	// Sum is the sum of all histograms; nil if SumDropped is set, or they can't be added because there are floats, too, or
	// histograms of both kinds.
	Sum *histogram.FloatHistogram
	// SumDropped is set if the sum isn't kept, for its size.
	SumDropped bool
	// Coarser is by how much the least schema of the histograms after the first is less than that of Last; 0 for custom bounds.
	Coarser uint8
	// StartCorrection is the sum of the histograms right before each reset that only start timestamps show, but without First; nil as
	// Correction is.
	StartCorrection *histogram.FloatHistogram
	// FirstReset is set if the second histogram begins with a counter reset. Prometheus' rate then ignores the layout of the first
	// one in a range that it begins.
	FirstReset bool
	// FirstStartReset is set if only start timestamps show that the second histogram begins with a reset.
	FirstStartReset bool
	// Second has the custom bounds of the second histogram, and no observations; nil unless FirstReset or FirstStartReset is set and Last
	// has other bounds.
	Second *histogram.FloatHistogram
	// HasGauges is set if any of the histograms is a gauge.
	HasGauges bool
	// MixedKinds is set if, of the histograms after the first, some have exponential buckets and some custom bounds.
	MixedKinds bool
}

// Flags of a bucket.
type Flags uint16

// The flags. Never reused.
const (
	// EndsStale: a stale marker is the newest of the bucket.
	EndsStale Flags = 1 << iota
	// NotSimple: the bucket can't answer for its samples, which must be asked themselves: queries can't compute with one of the
	// histograms, or a sum of the values could overflow. Its columns are then those of the floats among its samples.
	NotSimple
	// HasHistograms: native histograms are among the bucket's samples.
	HasHistograms
	_ // as stored: the bucket has no samples
	// HasFloatsToo: floats are as well. First, Last, Min, Max and Sum are those of the floats; all other columns are of all samples,
	// a change from one to the other being both a change and a reset, and there is no Correction.
	HasFloatsToo
	// FirstIsHistogram and LastIsHistogram: the first, or last, sample is a histogram.
	FirstIsHistogram
	LastIsHistogram
	// HasDeleted: some of the bucket's samples were deleted when nothing distinguished them any more.
	HasDeleted
	// StartsOverlap: a sample starts before the one before it, at another time than that does. Prometheus warns of it.
	StartsOverlap
	// Aggregated: some of the bucket's samples were imported as aggregates, see Aggregate. Count, Sum, Min and Max are those of all samples.
	// The first and the last sample and Correction are estimates, and so nothing is known from Resets and Changes. The moment, the line
	// and the sketch are unknown.
	Aggregated
)

// ofHistograms are the flags of a bucket of which all samples are histograms.
const ofHistograms = HasHistograms | FirstIsHistogram | LastIsHistogram

// HasFloats returns true if floats are among the samples of a bucket that has samples.
func (f Flags) HasFloats() bool { return f&(HasHistograms|HasFloatsToo) != HasHistograms }

// Columns is a set of columns of Buckets. Start, End and Flags are always there.
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
	ColumnStarts // FirstST and LastST, and with Correction and Resets what only start timestamps show of these
	ColumnMoment
	ColumnSketches
	ColumnLine // Comoment, TimeSum and TimeSquares

	AllColumns Columns = 1<<iota - 1
)

// FloatCount returns how many floats bucket i has.
func (b *Buckets) FloatCount(i int) uint32 {
	if b.Flags[i]&HasHistograms != 0 {
		return b.Count[i] - b.Histograms[i].Count
	}
	return b.Count[i]
}

// TimesOf returns the first and the last timestamp that a bucket has samples at, milliseconds, as far as its columns show: of all columns.
func (b *Buckets) TimesOf(i int) (first, last int64) {
	first, last = b.Start[i]+1, b.End[i]
	if b.Count[i] == 0 || b.Flags[i]&(NotSimple|Aggregated) != 0 { // Or they are those of some of its samples, or estimates.
		return first, last
	}
	if b.Flags[i]&EndsStale == 0 {
		last = b.LastT[i]
	}
	return b.FirstT[i], last
}

// Slice returns the buckets [from, to), whose columns share memory with those of b. A column that isn't there stays so.
func (b *Buckets) Slice(from, to int) Buckets {
	n := len(b.End)
	return Buckets{
		Start: view(b.Start, n, from, to), End: view(b.End, n, from, to), Flags: view(b.Flags, n, from, to),
		Count:  view(b.Count, n, from, to),
		FirstT: view(b.FirstT, n, from, to), LastT: view(b.LastT, n, from, to),
		FirstST: view(b.FirstST, n, from, to), LastST: view(b.LastST, n, from, to),
		StartCorrection: view(b.StartCorrection, n, from, to), StartResets: view(b.StartResets, n, from, to),
		First: view(b.First, n, from, to), Last: view(b.Last, n, from, to),
		Min: view(b.Min, n, from, to), Max: view(b.Max, n, from, to),
		Sum: view(b.Sum, n, from, to), SumLow: view(b.SumLow, n, from, to), Moment: view(b.Moment, n, from, to),
		Comoment: view(b.Comoment, n, from, to), TimeSum: view(b.TimeSum, n, from, to), TimeSquares: view(b.TimeSquares, n, from, to),
		Correction: view(b.Correction, n, from, to),
		Resets:     view(b.Resets, n, from, to), Changes: view(b.Changes, n, from, to),
		Histograms: view(b.Histograms, n, from, to), Sketches: view(b.Sketches, n, from, to),
	}
}

// Equal reports whether two have the same columns, bit for bit, without histograms.
func (b *Buckets) Equal(o *Buckets) bool {
	return b.Histograms == nil && o.Histograms == nil && slices.EqualFunc(b.Sketches, o.Sketches, sameSketch) && slices.Equal(b.Start, o.Start) && slices.Equal(b.End, o.End) && slices.Equal(b.Flags, o.Flags) &&
		slices.Equal(b.Count, o.Count) && slices.Equal(b.FirstT, o.FirstT) && slices.Equal(b.LastT, o.LastT) &&
		slices.Equal(b.FirstST, o.FirstST) && slices.Equal(b.LastST, o.LastST) &&
		sameBits(b.StartCorrection, o.StartCorrection) && slices.Equal(b.StartResets, o.StartResets) &&
		sameBits(b.First, o.First) && sameBits(b.Last, o.Last) && sameBits(b.Min, o.Min) && sameBits(b.Max, o.Max) &&
		sameBits(b.Sum, o.Sum) && sameBits(b.SumLow, o.SumLow) && sameBits(b.Moment, o.Moment) &&
		sameBits(b.Comoment, o.Comoment) && slices.Equal(b.TimeSum, o.TimeSum) && slices.Equal(b.TimeSquares, o.TimeSquares) && sameBits(b.Correction, o.Correction) &&
		slices.Equal(b.Resets, o.Resets) && slices.Equal(b.Changes, o.Changes)
}

func sameBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// Keep removes the buckets from index at on, but for those of [from, to), which lie behind.
func (b *Buckets) Keep(at, from, to int) {
	n := len(b.End)
	b.Start, b.End, b.Flags = keep(b.Start, n, at, from, to), keep(b.End, n, at, from, to), keep(b.Flags, n, at, from, to)
	b.Count, b.Resets, b.Changes = keep(b.Count, n, at, from, to), keep(b.Resets, n, at, from, to), keep(b.Changes, n, at, from, to)
	b.FirstT, b.LastT = keep(b.FirstT, n, at, from, to), keep(b.LastT, n, at, from, to)
	b.FirstST, b.LastST = keep(b.FirstST, n, at, from, to), keep(b.LastST, n, at, from, to)
	b.StartCorrection, b.StartResets = keep(b.StartCorrection, n, at, from, to), keep(b.StartResets, n, at, from, to)
	b.First, b.Last = keep(b.First, n, at, from, to), keep(b.Last, n, at, from, to)
	b.Min, b.Max = keep(b.Min, n, at, from, to), keep(b.Max, n, at, from, to)
	b.Sum, b.SumLow = keep(b.Sum, n, at, from, to), keep(b.SumLow, n, at, from, to)
	b.Moment, b.Sketches = keep(b.Moment, n, at, from, to), keep(b.Sketches, n, at, from, to)
	b.Comoment = keep(b.Comoment, n, at, from, to)
	b.TimeSum, b.TimeSquares = keep(b.TimeSum, n, at, from, to), keep(b.TimeSquares, n, at, from, to)
	b.Correction, b.Histograms = keep(b.Correction, n, at, from, to), keep(b.Histograms, n, at, from, to)
}

// keep is Buckets.Keep for a column of n buckets; one that isn't there stays so.
func keep[T any](column []T, n, at, from, to int) []T {
	if len(column) != n {
		return column
	}
	return append(column[:at], column[from:to]...)
}

// view returns column[from:to] of n buckets, to which nothing can be appended in place; nil where the column isn't there.
func view[T any](column []T, n, from, to int) []T {
	if column == nil || len(column) != n {
		return nil
	}
	return column[from:to:to]
}
