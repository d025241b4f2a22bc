package rollup

import "github.com/prometheus/prometheus/model/histogram"

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

	AllColumns Columns = 1<<iota - 1
)
