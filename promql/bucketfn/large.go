package bucketfn

import (
	"math"

	"github.com/cassia-db/cassia/storage/rollup"
)

// The sum of large values may overflow to infinity, and infinities of both signs add up to NaN. So the order of
// addition matters if a window has large values (see rollup.Large) and values of that size, or infinities, of both
// signs. Buckets don't contain the order, and such sums are left to samples. With values of one sign, the sum of the
// buckets overflows if and only if the sum of the samples does.

// larges describes the large values of buckets. If there are none, which is the common case, nothing is stored.
type larges struct {
	plain bool
	// large[i], positive[i], negative[i] and nan[i] are the numbers of the first i buckets that contain large values,
	// that contain large or infinite values of a sign, and whose sum is NaN in any order.
	large, positive, negative, nan []int32
}

func (l *larges) setBuckets(b *rollup.Buckets) {
	all := rollup.Flags(0)
	for _, flags := range b.Flags {
		all |= flags
	}
	if l.plain = all&rollup.Large == 0; l.plain {
		return
	}
	l.large, l.positive = append(l.large[:0], 0), append(l.positive[:0], 0)
	l.negative, l.nan = append(l.negative[:0], 0), append(l.nan[:0], 0)
	for i, flags := range b.Flags {
		isLarge, sum := flags&rollup.Large != 0, 0.
		if len(b.Sum) > 0 && !isLarge {
			sum = b.Sum[i]
		}
		l.large = append(l.large, l.large[i]+asCount(isLarge))
		l.positive = append(l.positive, l.positive[i]+asCount(flags&rollup.LargePositive != 0 || math.IsInf(sum, 1)))
		l.negative = append(l.negative, l.negative[i]+asCount(flags&rollup.LargeNegative != 0 || math.IsInf(sum, -1)))
		l.nan = append(l.nan, l.nan[i]+asCount(sum != sum))
	}
}

func asCount(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// in reports whether the buckets [lo, hi) contain large values.
func (l *larges) in(lo, hi int) bool { return !l.plain && l.large[hi] > l.large[lo] }

// mixed reports whether the sum of the values in the buckets [lo, hi) depends on the order of addition.
func (l *larges) mixed(lo, hi int) bool {
	return l.in(lo, hi) && l.positive[hi] > l.positive[lo] && l.negative[hi] > l.negative[lo] && l.nan[hi] == l.nan[lo]
}

// unknownRise reports whether the rise of a counter depends on the order in which this correction is added to the
// difference between its last and first value.
func (l *larges) unknownRise(lo, hi int, difference, correction float64) bool {
	return l.in(lo, hi) && (l.mixed(lo, hi) || math.IsInf(correction, 0) && difference*correction < 0)
}

// isFlat reports whether values are finite and equal, given their min, max and sum. The sum may have overflowed.
func isFlat(least, greatest, sum float64) bool {
	return least == greatest && least-least == 0 && sum == sum
}

// hasOverflowed reports whether values that aren't all equal may all be finite although their sum isn't.
func hasOverflowed(least, greatest, sum float64) bool {
	return least-least == 0 && greatest-greatest == 0 && (math.IsInf(sum, 0) || sum != sum && least < 0 && greatest > 0)
}
