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
	// First and Last are the values of the first and the last sample; 0 where Count is 0, or where the samples
	// are histograms.
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
	// Correction is what rate adds for counter resets: the sum of the values right before each.
	Correction []float64
	// Resets and Changes are how often a value was less than, or other than, the one before it in the bucket.
	Resets, Changes []uint32
	// Histograms are the native histograms; nil if no bucket has any, and nil where Flags lack HasHistograms.
	Histograms []*Histograms
}

// Histograms is what a bucket of native histograms holds in place of values. Nobody changes it.
type Histograms struct {
	// First and Last are the first and the last sample, with the hint UnknownCounterReset.
	First, Last *histogram.FloatHistogram
	// Correction is the sum of the histograms right before each counter reset; nil: there was none.
	Correction *histogram.FloatHistogram
}

// Flags of a bucket.
type Flags uint8

// The flags. Never reused.
const (
	// EndsStale: a stale marker is the newest of the bucket.
	EndsStale Flags = 1 << iota
	// NotSimple: the bucket can't answer for its samples, which must be asked themselves: floats and
	// histograms mix, histograms aren't all alike or are gauges, or a sum of the values could overflow. Its
	// columns are then those of the floats among its samples.
	NotSimple
	// HasHistograms: the bucket's samples are native histograms, all with the same buckets and bounds.
	HasHistograms
)

// Columns is a set of columns of Buckets. Start, End and Flags are always there.
type Columns uint16

// The columns.
const (
	ColumnCount Columns = 1 << iota
	ColumnFirst         // First and FirstT
	ColumnLast          // Last and LastT
	ColumnMin
	ColumnMax
	ColumnSum        // Sum and SumLow
	ColumnCorrection // of floats and, with ColumnFirst and ColumnLast, of histograms
	ColumnResets
	ColumnChanges
	ColumnStarts // FirstST and LastST
	ColumnMoment

	AllColumns Columns = 1<<iota - 1
)

// Slice returns the buckets [from, to), whose columns share memory with those of b. A column that isn't there stays so.
func (b *Buckets) Slice(from, to int) Buckets {
	n := len(b.End)
	return Buckets{
		Start: view(b.Start, n, from, to), End: view(b.End, n, from, to), Flags: view(b.Flags, n, from, to),
		Count:  view(b.Count, n, from, to),
		FirstT: view(b.FirstT, n, from, to), LastT: view(b.LastT, n, from, to),
		FirstST: view(b.FirstST, n, from, to), LastST: view(b.LastST, n, from, to),
		First: view(b.First, n, from, to), Last: view(b.Last, n, from, to),
		Min: view(b.Min, n, from, to), Max: view(b.Max, n, from, to),
		Sum: view(b.Sum, n, from, to), SumLow: view(b.SumLow, n, from, to), Moment: view(b.Moment, n, from, to),
		Correction: view(b.Correction, n, from, to),
		Resets:     view(b.Resets, n, from, to), Changes: view(b.Changes, n, from, to),
		Histograms: view(b.Histograms, n, from, to),
	}
}

// Equal reports whether two have the same columns, bit for bit, without histograms.
func (b *Buckets) Equal(o *Buckets) bool {
	return b.Histograms == nil && o.Histograms == nil && slices.Equal(b.Start, o.Start) && slices.Equal(b.End, o.End) && slices.Equal(b.Flags, o.Flags) &&
		slices.Equal(b.Count, o.Count) && slices.Equal(b.FirstT, o.FirstT) && slices.Equal(b.LastT, o.LastT) &&
		slices.Equal(b.FirstST, o.FirstST) && slices.Equal(b.LastST, o.LastST) &&
		sameBits(b.First, o.First) && sameBits(b.Last, o.Last) && sameBits(b.Min, o.Min) && sameBits(b.Max, o.Max) &&
		sameBits(b.Sum, o.Sum) && sameBits(b.SumLow, o.SumLow) && sameBits(b.Moment, o.Moment) && sameBits(b.Correction, o.Correction) &&
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
	b.First, b.Last = keep(b.First, n, at, from, to), keep(b.Last, n, at, from, to)
	b.Min, b.Max = keep(b.Min, n, at, from, to), keep(b.Max, n, at, from, to)
	b.Sum, b.SumLow = keep(b.Sum, n, at, from, to), keep(b.SumLow, n, at, from, to)
	b.Moment = keep(b.Moment, n, at, from, to)
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
