package chunk

import (
	"math"
	"math/bits"
)

// maxExponent is the max e of values stored as m / 10^e. 10^e must be exact, which holds up to 22. Decimals of more
// than 15 digits aren't always different float64s.
const maxExponent = 15

// maxMantissa is the max m if e > 0. For every m up to maxMantissa, rounding v·10^e yields m if v is the float64
// nearest to m / 10^e.
const maxMantissa = 1 << 51

var powers = [maxExponent + 1]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
}

// nearestInteger returns, as a float64, the integer nearest to v·power. ok is false if the integer is too large.
func nearestInteger(v, power float64) (m float64, ok bool) {
	p := float64(v * power)     // rounded explicitly, so that it isn't fused with the next operation on any machine
	const shifter = 3 << 51     // 1.5·2^52: adding and subtracting it rounds to an integer
	m = (p + shifter) - shifter // undefined for NaN and large p, which are rejected
	return m, math.Abs(p) < maxMantissa
}

// mantissa returns the m such that float64(m) / 10^e is v, bit for bit.
func mantissa(v float64, e int) (m int64, ok bool) {
	if e == 0 {
		m = int64(v)
		// Machines convert values outside the range of int64 to different integers. Except for the max int64, the
		// float64 of such an integer never equals the value.
		return m, math.Float64bits(float64(m)) == math.Float64bits(v) && m != math.MaxInt64
	}
	p, ok := nearestInteger(v, powers[e])
	return int64(p), ok && math.Float64bits(p/powers[e]) == math.Float64bits(v)
}

// noExponent means that a value isn't decimal.
const noExponent = maxExponent + 1

// exponentOf returns the smallest e such that v is a decimal, searching from guess, or noExponent.
func exponentOf(v float64, guess int) int {
	if _, ok := mantissa(v, guess); ok {
		for guess > 0 {
			if _, ok := mantissa(v, guess-1); !ok {
				break
			}
			guess--
		}
		return guess
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return noExponent
	}
	for e := range noExponent {
		if _, ok := mantissa(v, e); ok {
			return e
		}
	}
	return noExponent
}

// chooseExponent returns the best e for the values. It examines every stride-th value, and returns noExponent if too
// few of the examined values are decimals.
func chooseExponent(values []float64, stride int) int {
	var count [noExponent + 1]int // count[e] is how many values have exponent e
	n := (len(values) + stride - 1) / stride
	most, guess := n/exceptionShare, 0
	for i := 0; i < len(values); i += stride {
		e := exponentOf(values[i], guess)
		count[e]++
		if e < noExponent {
			guess = e
		} else if count[noExponent] > most {
			return noExponent
		}
	}
	// Each additional digit costs log2(10)/8 bytes per value; with fewer digits there are more exceptions.
	best, bestCost, exceptions := noExponent, math.Inf(1), count[noExponent]
	for e := maxExponent; e >= 0; e-- {
		cost := float64(0.415*float64(e*n)) + float64(exceptionCost*exceptions)
		if exceptions <= most && cost <= bestCost {
			best, bestCost = e, cost
		}
		exceptions += count[e]
	}
	return best
}

// chooseNear returns the best e for values that are nearly decimals. Such a value is stored as m and its distance from
// m / 10^e, a few units in the last place. chooseNear returns noExponent if storing the bits of the values takes less
// space. Nearly decimal values are sums of decimals, and decimals that were scaled twice, such as seconds computed from
// nanoseconds via milliseconds.
func chooseNear(values []float64) int {
	const most = 16
	var cost [maxExponent + 1]int
	bitsCost := 0
	stride := 1 + len(values)/most
	for i := 1; i < len(values); i += stride {
		v, before := values[i], values[i-1]
		if v == before {
			continue
		}
		bitsCost += bits.Len64(zigzag(orderedBits(v) - orderedBits(before)))
		for e := range cost {
			m, ok1 := nearestInteger(v, powers[e])
			n, ok2 := nearestInteger(before, powers[e])
			if !ok1 || !ok2 {
				cost[e] += 64
				continue
			}
			cost[e] += bits.Len64(zigzag(int64(m)-int64(n))) + bits.Len64(zigzag(ulps(v, m, powers[e])))
		}
	}
	best, bestCost := noExponent, bitsCost-bitsCost/16
	for e, c := range cost {
		if c < bestCost {
			best, bestCost = e, c
		}
	}
	return best
}

// ulps returns the number of float64s by which v is above m / power.
func ulps(v, m, power float64) int64 { return orderedBits(v) - orderedBits(m/power) }

// orderedBits maps floats to integers in the same order: to their bits, for negative numbers with all bits except the
// sign flipped. It is its own inverse.
func orderedBits(v float64) int64 {
	b := int64(math.Float64bits(v))
	return b ^ int64(uint64(b>>63)>>1)
}

func fromOrderedBits(x int64) float64 {
	return math.Float64frombits(uint64(x ^ int64(uint64(x>>63)>>1)))
}
