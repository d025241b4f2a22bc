package chunk

import "encoding/binary"

// What stands in a chunk's columns, for others that keep numbers of series in columns.

// MaxColumn is the greatest number of entries in a run or among values.
const MaxColumn = blockSamples

// AppendInts appends the run of 1 to MaxColumn integers.
func AppendInts(dst []byte, x []int64) []byte { return appendInts(dst, x) }

// AppendSmallInts does as AppendInts, in the form that suits few integers around 0.
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

// DecodeInts fills x, of the length that was appended, and returns what follows in b. It returns ErrCorrupt
// where b begins with no such run.
func DecodeInts(b []byte, x []int64) (rest []byte, err error) { return decodeInts(b, x, 0) }

// ConstantInts returns the one integer of a run, and whether b is the run of integers that are all the same and
// nothing else.
func ConstantInts(b []byte) (x int64, ok bool) {
	if len(b) < 2 || b[0] != intsConstant {
		return 0, false
	}
	x, n := binary.Varint(b[1:])
	return x, n == len(b)-1
}

// AppendValues appends 1 to MaxColumn floats, which come back bit for bit.
func AppendValues(dst []byte, v []float64) []byte { return appendValues(dst, v) }

// DecodeValues fills v, of the length that was appended, and returns what follows in b. It returns ErrCorrupt
// where b begins with no such values.
func DecodeValues(b []byte, v []float64) (rest []byte, err error) { return decodeValues(b, v) }

// MaxExponent is the greatest exponent of a decimal.
const MaxExponent = maxExponent

// Exponent returns the least e for which v is a decimal m / 10^e, looking from guess on, and whether there is one.
func Exponent(v float64, guess int) (e int, ok bool) {
	e = exponentOf(v, guess)
	return e, e != noExponent
}

// Mantissa returns the m for which float64(m) / 10^e is v, bit for bit, and whether there is one.
func Mantissa(v float64, e int) (m int64, ok bool) { return mantissa(v, e) }

// NearMantissa returns the m for which m / 10^e is next to v, how many float64s v lies above that, and whether
// v is small enough to have one.
func NearMantissa(v float64, e int) (m, above int64, ok bool) {
	k, ok := nearest(v, powers[e])
	if !ok {
		return 0, 0, false
	}
	return int64(k), ulps(v, k, powers[e]), true
}

// Power returns 10^e, for e up to MaxExponent.
func Power(e int) float64 { return powers[e] }

// OrderedBits maps floats, one to one, to integers that are in the floats' order.
func OrderedBits(v float64) int64 { return orderedBits(v) }

// FromOrderedBits is the inverse of OrderedBits.
func FromOrderedBits(x int64) float64 { return fromOrderedBits(x) }

// Zigzag maps integers of small magnitude to small unsigned ones.
func Zigzag(x int64) uint64 { return zigzag(x) }
