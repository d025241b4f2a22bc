package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// A run of integers, the encoding of timestamps, start timestamps and values. All arithmetic is modulo 2^64, so that
// all integers are restored.
//
//	+--------+ - - - - -+ - - - - - - - - - - - - - - - - - - - - -+
//	| kind   | factor   | by kind                                  |
//	| 1 byte | uvarint  |                                          |
//	+--------+ - - - - -+ - - - - - - - - - - - - - - - - - - - - -+
//	  bits 0–6: kind
//	  bit 7: a factor follows; without it the factor is 1
//
//	0 constant  first                        x[i] = first
//	1 regular   first, base                  x[i] = first + i·base
//	2 plain     base,         column of n    x[i] = base + factor·r[i]
//	3 delta     first, base,  column of n−1  x[i] = x[i−1] + base + factor·r[i]
//	4 dod       first, base,  column of n−2  x[1] = x[0] + base; then the base grows by factor·r[i] per step
//
// first and base are varints. The columns hold the residues r[i], zigzag-encoded. The base is the median of some of the
// integers or of their deltas, so that the residues are close to 0 and the columns of similar runs are similar for
// zstd.
const (
	intsConstant = 0
	intsRegular  = 1
	intsPlain    = 2
	intsDelta    = 3
	intsDod      = 4

	intsFactor = 0x80 // flag
)

// appendInts appends x, which must have 1 to blockSamples entries.
func appendInts(dst []byte, x []int64) []byte {
	if isConstant(x) {
		return binary.AppendVarint(append(dst, intsConstant), x[0])
	}
	if step := x[1] - x[0]; isRegular(x, step) {
		dst = binary.AppendVarint(append(dst, intsRegular), x[0])
		return binary.AppendVarint(dst, step)
	}
	kind, base := chooseInts(x)
	var scratch [blockSamples]uint64
	u := scratch[:len(x)]
	switch kind {
	case intsPlain:
		for i, v := range x {
			u[i] = uint64(v - base)
		}
	case intsDelta:
		before, rest := x[0], x[1:]
		u = u[:len(rest)]
		for i, v := range rest {
			u[i] = uint64(v - before - base)
			before = v
		}
	case intsDod:
		before, delta, rest := x[1], base, x[2:]
		u = u[:len(rest)]
		for i, v := range rest {
			d := v - before
			u[i] = uint64(d - delta)
			before, delta = v, d
		}
	}
	factor := divideByFactor(u)
	if factor != 1 {
		dst = binary.AppendUvarint(append(dst, kind|intsFactor), uint64(factor))
	} else {
		dst = append(dst, kind)
	}
	if kind != intsPlain {
		dst = binary.AppendVarint(dst, x[0])
	}
	dst = binary.AppendVarint(dst, base)
	return appendColumn(dst, u)
}

func isConstant(x []int64) bool {
	for _, v := range x {
		if v != x[0] {
			return false
		}
	}
	return true
}

func isRegular(x []int64, step int64) bool {
	before := x[0]
	for _, v := range x[1:] {
		if v-before != step {
			return false
		}
		before = v
	}
	return true
}

// windows and windowLength limit the integers that are examined to choose the kind of a run: at most windows parts of
// the run, each of windowLength integers.
const (
	windows      = 16
	windowLength = 8
)

// chooseInts returns the kind whose column has the fewest bits, and its base. x must have at least two entries.
func chooseInts(x []int64) (kind byte, base int64) {
	center, slope := medians(x)
	var plain, delta, dod int
	apart := max(windowLength, len(x)/windows)
	for from := 2; from < len(x); from += apart {
		for i := from; i < min(from+windowLength, len(x)); i++ {
			d := x[i] - x[i-1]
			plain += bits.Len64(zigzag(x[i] - center))
			delta += bits.Len64(zigzag(d - slope))
			dod += bits.Len64(zigzag(d - (x[i-1] - x[i-2])))
		}
	}
	switch {
	case plain < delta && plain < dod:
		return intsPlain, center
	case delta <= dod:
		return intsDelta, slope
	default:
		return intsDod, x[1] - x[0]
	}
}

// medians returns the medians of some of the integers and of some of their deltas.
func medians(x []int64) (value, delta int64) {
	const most = 15
	var values, deltas [most]int64
	n := min(most, len(x)-1)
	for k := range n {
		i := 1 + k*(len(x)-1)/n
		values[k], deltas[k] = x[i], x[i]-x[i-1]
	}
	slices.Sort(values[:n])
	slices.Sort(deltas[:n])
	return values[n/2], deltas[n/2]
}

// divideByFactor divides signed numbers by their greatest common divisor, converts them to zigzag, and returns the
// divisor.
func divideByFactor(u []uint64) int64 {
	var g uint64
	for _, x := range u {
		if m := magnitude(int64(x)); m != 0 && (g == 0 || m%g != 0) {
			if g = gcd(g, m); g == 1 {
				break
			}
		}
	}
	factor := int64(g)
	if factor <= 1 { // also if all numbers are 0, or math.MinInt64
		for i, x := range u {
			u[i] = zigzag(int64(x))
		}
		return 1
	}
	if shift := bits.TrailingZeros64(g); g == 1<<shift {
		for i, x := range u {
			u[i] = zigzag(int64(x) >> shift)
		}
		return factor
	}
	for i, x := range u {
		u[i] = zigzag(int64(x) / factor)
	}
	return factor
}

func magnitude(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// run is the decoded header of a run of integers.
type run struct {
	kind                byte
	first, base, factor int64
}

// cutRun decodes a run's header, and the residues of its integers into the corresponding entries of x. It returns the
// rest of b.
func cutRun(b []byte, x []int64) (r run, rest []byte, err error) {
	if len(b) == 0 {
		return run{}, nil, fmt.Errorf("%w: integers are missing", ErrCorrupt)
	}
	r = run{kind: b[0] &^ intsFactor, factor: 1}
	hasFactor := b[0]&intsFactor != 0
	b = b[1:]
	if hasFactor {
		var factor uint64
		if factor, b, err = cutUvarint(b, "factor"); err != nil {
			return run{}, nil, err
		}
		r.factor = int64(factor)
	}
	if r.kind != intsPlain {
		if r.first, b, err = cutVarint(b, "first integer"); err != nil {
			return run{}, nil, err
		}
	}
	if r.kind != intsConstant {
		if r.base, b, err = cutVarint(b, "base"); err != nil {
			return run{}, nil, err
		}
	}
	switch r.kind {
	case intsConstant, intsRegular:
	case intsPlain:
		b, err = decodeColumn(b, x)
	case intsDelta:
		b, err = decodeColumn(b, x[1:])
	case intsDod:
		if len(x) < 2 {
			return run{}, nil, fmt.Errorf("%w: too few integers for their kind", ErrCorrupt)
		}
		b, err = decodeColumn(b, x[2:])
	default:
		err = fmt.Errorf("%w: integers of unknown kind %d", ErrCorrupt, r.kind)
	}
	return r, b, err
}

// decodeInts decodes the run at the start of b into x and adds origin to each integer. It returns the rest of b. x must
// not be empty.
func decodeInts(b []byte, x []int64, origin int64) ([]byte, error) {
	r, b, err := cutRun(b, x)
	if err != nil {
		return nil, err
	}
	r.addUp(x, origin)
	return b, nil
}

// addUp converts the residues in x to integers.
func (r run) addUp(x []int64, origin int64) {
	v, base, factor := r.first+origin, r.base, r.factor
	switch r.kind {
	case intsConstant:
		fillWith(x, v)
	case intsRegular:
		for len(x) >= 4 {
			x[0], x[1], x[2], x[3] = v, v+base, v+2*base, v+3*base
			v += 4 * base
			x = x[4:]
		}
		for i := range x {
			x[i] = v
			v += base
		}
	case intsPlain:
		base += origin
		for i, u := range x {
			x[i] = base + unzigzag(uint64(u))*factor
		}
	case intsDelta:
		x[0] = v
		x = x[1:]
		for i, u := range x {
			v += base + unzigzag(uint64(u))*factor
			x[i] = v
		}
	case intsDod:
		x[0] = v
		v += base
		x[1] = v
		x = x[2:]
		for i, u := range x {
			base += unzigzag(uint64(u)) * factor
			v += base
			x[i] = v
		}
	}
}

// addUpFloats is like addUp for residues in the memory of f, and converts the integers to floats.
func (r run) addUpFloats(f []float64) {
	v, base, factor := r.first, r.base, r.factor
	switch r.kind {
	case intsConstant:
		fillWith(f, float64(v))
	case intsRegular:
		for i := range f {
			f[i] = float64(v)
			v += base
		}
	case intsPlain:
		for i, u := range f {
			f[i] = float64(base + unzigzag(math.Float64bits(u))*factor)
		}
	case intsDelta:
		f[0] = float64(v)
		f = f[1:]
		for i, u := range f {
			v += base + unzigzag(math.Float64bits(u))*factor
			f[i] = float64(v)
		}
	case intsDod:
		f[0] = float64(v)
		v += base
		f[1] = float64(v)
		f = f[2:]
		for i, u := range f {
			base += unzigzag(math.Float64bits(u)) * factor
			v += base
			f[i] = float64(v)
		}
	}
}

// fillWith sets all entries of x, which must not be empty, to v by copying pieces of growing length.
func fillWith[E any](x []E, v E) {
	x[0] = v
	for n := 1; n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
}
