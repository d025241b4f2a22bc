package rollup

import (
	"math"

	"github.com/prometheus/prometheus/util/kahansum"
)

// sum adds floats up as PromQL's sum_over_time does, in high and low parts.
type sum struct{ high, low float64 }

func (s *sum) add(v float64) { s.high, s.low = kahansum.Inc(v, s.high, s.low) }

// addSum adds what a part of the floats makes.
func (s *sum) addSum(high, low float64) {
	s.add(high)
	s.low += low
}

// lowBits is to how many binary digits below the greatest absolute value that entered it a sum is kept.
const lowBits = 47

// parts returns the sum as it is stored: high is the float64 next to it, and low, the rest, is rounded to
// 2^-47 of the least power of 2 above the greatest absolute value.
//
// A low part to the last bit would be noise of 8 bytes per bucket, half of what the samples themselves need. Up
// to 64 values it is always 0 in this way, and buckets by the hundred still add up to 1e-12 of the greatest value.
func (s *sum) parts(least, greatest float64) (high, low float64) {
	high = s.high + s.low
	if math.IsInf(high, 0) || math.IsNaN(high) {
		return s.high + 0, 0 // Prometheus doesn't add a low part to an infinite sum
	}
	low = (s.high - high) + s.low
	if low == 0 {
		return high, 0
	}
	unit := unitOf(least, greatest)
	if unit == 0 {
		return high, low
	}
	low = math.RoundToEven(low/unit) * unit
	return high, low + 0 // without the sign of -0
}

// unitOf returns what the low part of a sum is a multiple of.
func unitOf(least, greatest float64) float64 {
	_, exponent := math.Frexp(max(math.Abs(least), math.Abs(greatest)))
	return math.Ldexp(1, exponent-lowBits)
}

// isLarge reports whether a sum of values such as v could leave the range of floats: a bucket has less than 2^32.
func isLarge(v float64) bool {
	v = math.Abs(v)
	return v > math.MaxFloat64/(1<<32) && v <= math.MaxFloat64
}

// total returns the sum in one float.
func (s *sum) total() float64 {
	if math.IsInf(s.high, 0) {
		return s.high
	}
	return s.high + s.low
}
