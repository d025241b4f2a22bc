package chunk

import "encoding/binary"

// The encodings of a chunk's columns, exported for packages that store other columns of numbers.

// MaxColumn is the max number of integers in a run, and of floats in a call of AppendValues.
const MaxColumn = blockSamples

// AppendInts appends x, encoded as one run. x must contain between 1 and MaxColumn integers.
func AppendInts(dst []byte, x []int64) []byte { return appendInts(dst, x) }

// AppendSmallInts is like AppendInts, but always uses the plain kind without a base, which suits few integers close to
// 0.
func AppendSmallInts(dst []byte, x []int64) []byte {
	var few [64]uint64
	u := few[:]
	if len(x) > len(few) {
		u = make([]uint64, len(x))
	}
	u = u[:len(x)]
	for i, v := range x {
		u[i] = zigzag(v)
	}
	return appendColumn(append(dst, intsPlain, 0), u)
}

// DecodeInts decodes a run into x and returns the rest of b. x must be as long as the encoded slice. DecodeInts returns
// ErrCorrupt if b doesn't start with a run of integers.
func DecodeInts(b []byte, x []int64) (rest []byte, err error) { return decodeInts(b, x, 0) }

// ConstantInts returns the value of a run of equal integers. ok is false unless b consists of exactly one run, of kind
// constant.
func ConstantInts(b []byte) (x int64, ok bool) {
	if len(b) < 2 || b[0] != intsConstant {
		return 0, false
	}
	x, n := binary.Varint(b[1:])
	return x, n == len(b)-1
}

// AppendValues appends v, encoded. v must contain between 1 and MaxColumn floats. DecodeValues restores them bit for
// bit.
func AppendValues(dst []byte, v []float64) []byte { return appendValues(dst, v) }

// DecodeValues decodes floats into v and returns the rest of b. v must be as long as the encoded slice. DecodeValues
// returns ErrCorrupt if b doesn't start with values.
func DecodeValues(b []byte, v []float64) (rest []byte, err error) { return decodeValues(b, v) }

// MaxExponent is the max exponent of a decimal.
const MaxExponent = maxExponent

// Exponent returns the smallest e such that v is a decimal m / 10^e. The search starts at guess. ok is false if v has
// no such exponent.
func Exponent(v float64, guess int) (e int, ok bool) {
	e = exponentOf(v, guess)
	return e, e != noExponent
}

// Mantissa returns the m such that float64(m) / 10^e is v, bit for bit. ok is false if v has no such mantissa.
func Mantissa(v float64, e int) (m int64, ok bool) { return mantissa(v, e) }

// NearMantissa returns the m such that m / 10^e is nearest to v. above is the number of float64s by which v is above m
// / 10^e. ok is false if v is too large.
func NearMantissa(v float64, e int) (m, above int64, ok bool) {
	k, ok := nearestInteger(v, powers[e])
	if !ok {
		return 0, 0, false
	}
	return int64(k), ulps(v, k, powers[e]), true
}

// Power returns 10^e, for e up to MaxExponent.
func Power(e int) float64 { return powers[e] }

// OrderedBits maps floats one-to-one to integers in the same order.
func OrderedBits(v float64) int64 { return orderedBits(v) }

// FromOrderedBits is the inverse of OrderedBits.
func FromOrderedBits(x int64) float64 { return fromOrderedBits(x) }

// Zigzag maps integers of small magnitude to small unsigned integers.
func Zigzag(x int64) uint64 { return zigzag(x) }
