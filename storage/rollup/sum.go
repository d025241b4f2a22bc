package rollup

import (
	"math"

	"github.com/prometheus/prometheus/util/kahansum"
)

// Sum adds floats in high and low parts, like PromQL's sum_over_time. The zero value is the sum of no floats.
type Sum struct{ high, low float64 }

// Add adds v.
func (s *Sum) Add(v float64) { s.high, s.low = kahansum.Inc(v, s.high, s.low) }

// AddSum adds the sum of other floats in its parts, such as Buckets.Sum and SumLow.
func (s *Sum) AddSum(high, low float64) {
	s.Add(high)
	s.low += low
}

// Total returns the sum as one float.
func (s *Sum) Total() float64 {
	if math.IsInf(s.high, 0) {
		return s.high
	}
	return s.high + s.low
}

// lowBits is the number of binary digits that a sum keeps below the largest absolute value in it.
const lowBits = 47

// parts returns the sum as it is stored: high is the nearest float64, and low is the rest. Unless the values are wide,
// low is rounded to 2^-47 of the smallest power of 2 above the largest absolute value.
//
// The last bits of an exact low part would be 8 bytes of noise per bucket, half of the size of the samples. With this
// rounding it is always 0 for up to 64 values, and the sum of hundreds of buckets is still exact to 1e-12 of the
// largest value. If the values are wide, the rounding could be large compared to the small values, which remain if the
// large ones cancel out.
func (s *Sum) parts(least, greatest float64, wide bool) (high, low float64) {
	high = s.high + s.low
	if math.IsInf(high, 0) || math.IsNaN(high) {
		return s.high + 0, 0 // Prometheus doesn't add a low part to an infinite sum.
	}
	low = (s.high - high) + s.low
	if low == 0 {
		return high, 0
	}
	unit := unitOf(least, greatest)
	if unit == 0 || wide {
		return high, low
	}
	low = math.RoundToEven(low/unit) * unit
	return high, low + 0 // + 0 turns -0 into 0
}

// unitOf returns the unit of the low part of a sum.
func unitOf(least, greatest float64) float64 {
	_, exponent := math.Frexp(max(math.Abs(least), math.Abs(greatest)))
	return math.Ldexp(1, exponent-lowBits)
}

// wideBy is the ratio of the largest to the smallest absolute value above which values are wide. Up to this ratio,
// rounding a low part changes the sum by at most 2^-37 of the smallest value.
const wideBy = 1 << 10

// isWide reports whether the values, which are between least and greatest, include a value that isn't 0 and whose
// absolute value is much smaller than the largest one.
func isWide(values []float64, least, greatest float64) bool {
	small := max(math.Abs(least), math.Abs(greatest)) / wideBy
	for _, v := range values {
		if v = math.Abs(v); v < small && v > 0 {
			return true
		}
	}
	return false
}

// isWide reports whether the values of any of the buckets [from, to), or of all of them together, are wide. The values
// are between least and greatest.
func (b *Buckets) isWide(from, to int, least, greatest float64) bool {
	small := max(math.Abs(least), math.Abs(greatest)) / wideBy
	for i := from; i < to; i++ {
		if v := max(math.Abs(b.Min[i]), math.Abs(b.Max[i])); v < small && v > 0 {
			return true
		}
		if low := b.SumLow[i]; low != 0 {
			units := low / unitOf(b.Min[i], b.Max[i])
			if units != math.Trunc(units) {
				return true
			}
		}
	}
	return false
}

// isVague reports whether the sum of count values between least and greatest may differ by more than 1e-12 from the
// exact sum. This happens if values cancel out, because the low parts of intermediate sums are rounded.
func (s *Sum) isVague(count uint32, least, greatest float64) bool {
	total := s.Total()
	largest := max(math.Abs(least), math.Abs(greatest))
	return total != 0 && float64(count)*VagueSum*largest > math.Abs(total)
}

// VagueSum is the smallest ratio of a sum to the product of the number of values and their largest absolute value at
// which the sum isn't vague, see isVague. A sum may be off by 2^-103 of this product, and a sum that isn't vague by at
// most 1e-12 of itself.
const VagueSum = 0x1p-103 / 1e-12

// largestSummable is the largest absolute value that isn't large. The sum of 2^32 values up to it is less than the
// rounding error of a sum that almost overflows.
const largestSummable = 0x1p932

// isLarge reports whether v is finite and a sum with v may overflow.
func isLarge(v float64) bool {
	v = math.Abs(v)
	return v > largestSummable && v <= math.MaxFloat64
}

// largeFlags returns the flags of a bucket with large values between least and greatest.
func largeFlags(least, greatest float64) Flags {
	flags := Large
	if greatest > largestSummable {
		flags |= LargePositive
	}
	if least < -largestSummable {
		flags |= LargeNegative
	}
	return flags
}
