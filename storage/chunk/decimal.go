package chunk

import "math"

// maxExponent is the greatest e of values stored as m / 10^e. 10^e must be exact, which it is to 22, and
// more than 15 digits tell one float64 from another only with luck.
const maxExponent = 15

// maxMantissa bounds the m that are looked for where e > 0: up to it rounding v·10^e gives m if v is the
// float64 next to m / 10^e.
const maxMantissa = 1 << 51

var powers = [maxExponent + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// mantissa returns the m for which float64(m) / 10^e is v, bit for bit.
func mantissa(v float64, e int) (m int64, ok bool) {
	if e == 0 {
		if !(math.Abs(v) < 1<<63) {
			return 0, false
		}
		m = int64(v)
		return m, math.Float64bits(float64(m)) == math.Float64bits(v)
	}
	p := float64(v * powers[e]) // rounded here on every machine, never fused with what follows
	if !(math.Abs(p) < maxMantissa) {
		return 0, false
	}
	// Adding and taking away 1.5·2^52 rounds to an integer.
	const shifter = 3 << 51
	p = (p + shifter) - shifter
	return int64(p), math.Float64bits(p/powers[e]) == math.Float64bits(v)
}

// noExponent stands for values that are not decimal.
const noExponent = maxExponent + 1

// exponentOf returns the least e with which v is decimal, looking from guess on, or noExponent.
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
		if _, ok := mantissa(v, e); ok && e != guess {
			return e
		}
	}
	return noExponent
}

// chooseExponent returns the e with which values are stored, or noExponent if too few are decimal.
func chooseExponent(values []float64) int {
	integers := 0
	for _, v := range values {
		if _, ok := mantissa(v, 0); !ok {
			break
		}
		integers++
	}
	if integers == len(values) {
		return 0
	}
	var count [noExponent + 1]int // values by the exponent they need
	count[0] = integers
	most, guess := len(values)/exceptionShare+1, 0
	for i, v := range values[integers:] {
		e := exponentOf(v, guess)
		count[e]++
		if e < noExponent {
			guess = e
		} else if count[noExponent] > most && count[noExponent] > (integers+i)/2 {
			return noExponent
		}
	}
	if count[noExponent] > most {
		return noExponent
	}
	// A digit more costs every value log2(10)/8 bytes; a digit less makes exceptions.
	best, bestCost, exceptions := 0, math.Inf(1), count[noExponent]
	for e := maxExponent; e >= 0; e-- {
		cost := float64(e)*0.415*float64(len(values)) + exceptionCost*float64(exceptions)
		if exceptions <= most && cost < bestCost {
			best, bestCost = e, cost
		}
		exceptions += count[e]
	}
	return best
}
