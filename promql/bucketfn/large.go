package bucketfn

import (
	"math"
	"slices"

	"github.com/cassia-db/cassia/storage/rollup"
)

// The sum of large values may overflow to infinity, and infinities of both signs add up to NaN. So the sum of a window
// depends on the order of addition if the window has large values (see rollup.Large), and values that are large or
// infinite have both signs. Buckets don't contain the order, so these sums are left to samples. With values of one
// sign, the sum of the buckets overflows if and only if the sum of the samples does.

// largeValues records which buckets have large values. If there are none, which is the common case, it only sets
// isEmpty.
type largeValues struct {
	isEmpty bool
	// large, positive, negative and nan are prefix sums: element i counts buckets among the first i buckets. large
	// counts buckets that contain large values. positive and negative count buckets that contain large or infinite
	// values of that sign. nan counts buckets whose sum is NaN in any order.
	large, positive, negative, nan []int32
}

func (l *largeValues) setBuckets(b *rollup.Buckets) {
	all := rollup.Flags(0)
	for _, flags := range b.Flags {
		all |= flags
	}
	if l.isEmpty = all&rollup.Large == 0; l.isEmpty {
		return
	}
	l.large, l.positive = append(l.large[:0], 0), append(l.positive[:0], 0)
	l.negative, l.nan = append(l.negative[:0], 0), append(l.nan[:0], 0)
	for i, flags := range b.Flags {
		isLarge, sum := flags&rollup.Large != 0, 0.
		if len(b.Sum) > 0 && !isLarge {
			sum = b.Sum[i]
		}
		l.large = append(l.large, l.large[i]+boolToInt32(isLarge))
		positive := flags&rollup.LargePositive != 0 || math.IsInf(sum, 1)
		negative := flags&rollup.LargeNegative != 0 || math.IsInf(sum, -1)
		l.positive = append(l.positive, l.positive[i]+boolToInt32(positive))
		l.negative = append(l.negative, l.negative[i]+boolToInt32(negative))
		l.nan = append(l.nan, l.nan[i]+boolToInt32(sum != sum))
	}
}

func boolToInt32(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// hasLarge reports whether the buckets [lo, hi) contain large values.
func (l *largeValues) hasLarge(lo, hi int) bool { return !l.isEmpty && l.large[hi] > l.large[lo] }

// dependsOnOrder reports whether the sum of the values in the buckets [lo, hi) depends on the order of addition.
func (l *largeValues) dependsOnOrder(lo, hi int) bool {
	return l.hasBothSigns(lo, hi) && l.nan[hi] == l.nan[lo]
}

// hasBothSigns reports whether the buckets [lo, hi) have large values, and large or infinite values of both signs.
func (l *largeValues) hasBothSigns(lo, hi int) bool {
	return l.hasLarge(lo, hi) && l.positive[hi] > l.positive[lo] && l.negative[hi] > l.negative[lo]
}

// isRiseUnknown reports whether the rise of a counter depends on the order in which corrections are added to
// difference, the difference between the last and the first value of the buckets [lo, hi). first is the correction
// inside the first bucket, others are the corrections of the other buckets, and total is the sum of all.
func (l *largeValues) isRiseUnknown(lo, hi int, difference, total, first float64, others []float64) bool {
	switch {
	case !l.hasLarge(lo, hi):
		return false
	case l.hasBothSigns(lo, hi), math.IsInf(total, 0) && difference*total < 0:
		return true
	default:
		return total != total && !isSumNaN(first, others)
	}
}

// isSumNaN reports whether a sum of values is NaN in any order of addition.
func isSumNaN(first float64, others []float64) bool {
	values := append([]float64{first}, others...)
	return slices.ContainsFunc(values, math.IsNaN) ||
		slices.Contains(values, math.Inf(1)) && slices.Contains(values, math.Inf(-1))
}

// isFlat reports whether all values are finite and equal, given their min, max and sum. The sum may be infinite because
// it has overflowed.
func isFlat(least, greatest, sum float64) bool {
	return least == greatest && least-least == 0 && sum == sum
}

// hasOverflowed reports whether the sum of some values may have overflowed: their min and max are finite, and their sum
// isn't.
func hasOverflowed(least, greatest, sum float64) bool {
	return least-least == 0 && greatest-greatest == 0 && (math.IsInf(sum, 0) || sum != sum && least < 0 && greatest > 0)
}
