package expand

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Columns are the columns that Expand requires.
const Columns = rollup.ColumnStarts | rollup.ColumnCount | rollup.ColumnFirst | rollup.ColumnLast | rollup.ColumnMin |
	rollup.ColumnMax | rollup.ColumnSum | rollup.ColumnCorrection | rollup.ColumnResets | rollup.ColumnChanges

// CutColumns are the columns that Cut requires.
const CutColumns = Columns | rollup.ColumnMoment | rollup.ColumnLine

var staleMarker = math.Float64frombits(value.StaleNaN)

// Expander converts buckets to samples. It reuses its memory.
type Expander struct {
	// UsesStarts is set if functions that use start timestamps are evaluated on the samples: histograms then increase
	// by the amount that start timestamps show.
	UsesStarts bool

	fit
	starts  expandedStarts
	samples chunk.Samples
	edges   []int64
}

// Expand appends samples whose bucket approximates bucket i of b, which must have Columns. They have the same count,
// first, last, min and max value, changes and resets, and up to rounding the same sum, and are evenly spaced from the
// first timestamp to the last, except around restarts. A series of two values, such as up, has each value as often as
// before. The correction is exact for counters and for most buckets of gauges. Where a float64 can't hold the sum
// because the values differ too much in size, or one is NaN or infinite, only count, first, last, min and max are
// always exact. Changes, resets and corrections are exact except for rare cases (see setOddCourse).
//
//	value │        ┌─ max
//	      │   ┌────┘  ┌── last          values between are chosen to match the sum, see fit
//	      │ ──┘ first └ min
//	      └──────────────────── time
//
// The samples have the bucket's first and last start timestamp. The start timestamps between show the same number of
// resets (see expandedStarts). If possible, samples before and after a restart have times before and after its start;
// their times are changed if needed.
//
// Samples of aggregates have the same count, min and max value, and up to rounding the same sum. Other properties are
// kept if possible: they are estimates in aggregates.
//
// Other properties of the samples are unknown: quantiles and standard deviations are approximate. Of floats among
// histograms, only first, last, min, max and sum are exact. For native histograms see expandHistograms.
func (x *Expander) Expand(into *chunk.Samples, b *rollup.Buckets, i int) {
	n, end := int(b.Count[i]), b.End[i]
	x.starts.begin(into, b, i)
	var hs []*histogram.FloatHistogram
	if len(b.Histograms) > 0 && b.Histograms[i] != nil {
		hs = x.histograms(b, i)
	}
	x.v = x.v[:0]
	if floats := n - len(hs); floats > 0 {
		x.e = expanded{
			n: floats, first: b.First[i], last: b.Last[i], least: b.Min[i], greatest: b.Max[i], sum: b.Sum[i],
			low: b.SumLow[i], falls: int(b.Resets[i]), rises: max(int(b.Changes[i])-int(b.Resets[i]), 0),
			correction: b.Correction[i],
		}
		switch {
		case len(hs) > 0:
			x.valuesOfUnknownSteps()
		case b.Flags[i]&rollup.Aggregated != 0:
			x.valuesOfAggregates()
		default:
			x.setValues()
		}
	}
	switch {
	case len(hs) == 0:
		for k, v := range x.v {
			into.AppendFloat(timeOf(k, n, b.FirstT[i], b.LastT[i]), 0, v)
		}
	case len(x.v) == 0:
		for k, h := range hs {
			into.AppendHistogram(chunk.Histogram{T: timeOf(k, n, b.FirstT[i], b.LastT[i]), Float: h})
		}
	default:
		appendBoth(into, b, i, x.v, hs)
	}
	x.starts.place(into, b, i)
	if b.Flags[i]&rollup.EndsStale != 0 && (n == 0 || b.LastT[i] < end) {
		into.AppendFloat(staleAt(b, i), 0, staleMarker)
	}
}

// staleAt returns an estimate of the time of the stale marker at the end of bucket i of b: the time at which the next
// sample was due.
func staleAt(b *rollup.Buckets, i int) int64 {
	switch n := int64(b.Count[i]); n {
	case 0:
		return b.Start[i] + 1
	case 1:
		return b.LastT[i] + 1
	default:
		return min(b.LastT[i]+max(1, (b.LastT[i]-b.FirstT[i])/(n-1)), b.End[i])
	}
}

// timeOf returns the time of the kth of n evenly spaced samples.
func timeOf(k, n int, first, last int64) int64 {
	if n == 1 {
		return first
	}
	return first + (last-first)*int64(k)/int64(n-1)
}
