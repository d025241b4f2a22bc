package rollup

import (
	"errors"
	"fmt"
	"math"
)

// ErrAggregates means that buckets can't be aggregates: see CheckAggregates.
var ErrAggregates = errors.New("rollup: invalid aggregates")

// Aggregate contains the aggregates of the floats of one bucket that another system downsampled. Count, Sum, Min and
// Max are exact. First, Last, FirstT, LastT and Correction are estimates, with Min ≤ First, Last ≤ Max and Start <
// FirstT ≤ LastT < End.
type Aggregate struct {
	// End is the end of the bucket, in milliseconds.
	End           int64
	Count         uint32
	Sum, Min, Max float64
	First, Last   float64
	// FirstT and LastT are in milliseconds.
	FirstT, LastT int64
	// Correction is the amount that rate adds for counter resets between First and Last; 0 for gauges.
	Correction float64
}

// AppendAggregate appends a bucket of width milliseconds with the flag Aggregated. The bucket must end after the last
// bucket of b.
func (b *Buckets) AppendAggregate(a Aggregate, width int64) {
	i := b.add(a.End-width, a.End)
	b.Flags[i] = Aggregated
	b.Count[i], b.FirstT[i], b.LastT[i], b.First[i], b.Last[i] = a.Count, a.FirstT, a.LastT, a.First, a.Last
	b.Min[i], b.Max[i], b.Sum[i], b.Correction[i] = a.Min, a.Max, a.Sum, a.Correction
	b.setLine(i, unknownLine)
	if b.Moment[i] = unknownMoment; !(a.Min < a.Max) || !isFinite(a.Sum) {
		b.Moment[i] = 0
	}
	if a.Correction != 0 { // Only buckets with resets store a correction.
		b.Resets[i], b.Changes[i] = 1, 1
	}
	if isLarge(a.Min) || isLarge(a.Max) {
		b.Flags[i] |= largeFlags(a.Min, a.Max)
	}
}

// CheckAggregates returns ErrAggregates unless b could consist only of buckets from AppendAggregate.
func (b *Buckets) CheckAggregates(width int64) error {
	if b.Histograms != nil || b.Sketches != nil || b.FirstST != nil {
		return fmt.Errorf("%w: there are columns that aggregates don't have", ErrAggregates)
	}
	before := int64(math.MinInt64)
	for i, end := range b.End {
		var own Buckets
		own.AppendAggregate(b.aggregate(i), width)
		one := b.Slice(i, i+1)
		inside := func(v float64) bool { return b.Min[i] <= v && v <= b.Max[i] }
		switch start := b.Start[i]; {
		case end%width != 0 || start != end-width || end <= before:
			return fmt.Errorf("%w: a bucket from %d to %d ms", ErrAggregates, start, end)
		case b.Count[i] == 0 || b.FirstT[i] <= start || b.LastT[i] < b.FirstT[i] || b.LastT[i] >= end:
			return fmt.Errorf("%w: %d samples from %d to %d ms, in the bucket until %d ms",
				ErrAggregates, b.Count[i], b.FirstT[i], b.LastT[i], end)
		case !IsPossible(b.Count[i], b.Sum[i], b.Min[i], b.Max[i]) || !inside(b.First[i]) || !inside(b.Last[i]) ||
			!(b.Correction[i] >= 0) || !own.Equal(&one):
			return fmt.Errorf("%w: the values of the bucket until %d ms contradict each other", ErrAggregates, end)
		}
		before = end
	}
	return nil
}

// IsPossible reports whether n floats with this min and max can have this sum. It allows for rounding errors.
func IsPossible(n uint32, sum, least, greatest float64) bool {
	count := float64(n)
	slack := 1e-9 * count * max(math.Abs(least), math.Abs(greatest))
	others := count - 1
	switch all := least + greatest; {
	case !(least <= greatest):
		return false
	case math.IsInf(greatest, 1) || math.IsInf(least, -1):
		return sum == all || math.IsNaN(sum) && math.IsNaN(all) // The values in between don't change the sum.
	case math.IsInf(slack, 0): // The sum overflows.
		return true
	}
	return sum >= least*others+greatest-slack && sum <= greatest*others+least+slack
}

// aggregate returns bucket i as an aggregate.
func (b *Buckets) aggregate(i int) Aggregate {
	return Aggregate{
		End: b.End[i], Count: b.Count[i], Sum: b.Sum[i], Min: b.Min[i], Max: b.Max[i], First: b.First[i],
		Last: b.Last[i], FirstT: b.FirstT[i], LastT: b.LastT[i], Correction: b.Correction[i],
	}
}

// Samples returns the number of samples in all buckets.
func (b *Buckets) Samples() (n int) {
	for _, count := range b.Count {
		n += int(count)
	}
	return n
}
