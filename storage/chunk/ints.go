package chunk

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// A run of integers: timestamps, start timestamps and values all become one. All arithmetic is modulo
// 2^64, so that any integers whatever come back.
//
//	+--------+ - - - - -+ - - - - - - - - - - - - - - - - - - - - -+
//	| kind   | factor   | by kind                                  |
//	| 1 byte | uvarint  |                                          |
//	+--------+ - - - - -+ - - - - - - - - - - - - - - - - - - - - -+
//	  bits 0–6: kind
//	  bit 7: a factor follows; without it the factor is 1
//
//	constant  first                        x[i] = first
//	plain     base,         column of n    x[i] = base + factor·r[i]
//	delta     first, base,  column of n−1  x[i] = x[i−1] + base + factor·r[i]
//	dod       first, delta, column of n−2  x[1] = x[0] + delta, then the delta grows by factor·r[i]
//
// first, base and delta are varints; the columns hold the r[i], zigzag. The base is a value from the middle,
// so that all columns are crowded around 0 and look alike to zstd.
const (
	intsConstant = 0
	intsPlain    = 1
	intsDelta    = 2
	intsDod      = 3

	intsFactor = 0x80 // flag
)

// appendInts appends x, which is not empty, and has at most blockSamples entries.
func appendInts(dst []byte, x []int64) []byte {
	var scratch [blockSamples]uint64
	kind, base := chooseInts(x)
	if kind == intsConstant {
		return binary.AppendVarint(append(dst, intsConstant), x[0])
	}
	u := scratch[:0]
	switch kind {
	case intsPlain:
		for _, v := range x {
			u = append(u, uint64(v-base))
		}
	case intsDelta:
		for i := 1; i < len(x); i++ {
			u = append(u, uint64(x[i]-x[i-1]-base))
		}
	case intsDod:
		for i := 2; i < len(x); i++ {
			u = append(u, uint64(x[i]-2*x[i-1]+x[i-2]))
		}
	}
	factor := takeFactor(u)
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

// chooseInts returns the kind whose column has the fewest bits, and its base (of dod: the first delta).
func chooseInts(x []int64) (kind byte, base int64) {
	constant, regular := true, true
	for i := 1; i < len(x); i++ {
		if x[i] != x[0] {
			constant = false
			break
		}
	}
	if constant {
		return intsConstant, 0
	}
	step := x[1] - x[0]
	for i := 2; i < len(x); i++ {
		if x[i]-x[i-1] != step {
			regular = false
			break
		}
	}
	if regular {
		return intsDelta, step
	}
	center, slope := middle(x)
	var plain, delta, dod int
	before := step
	for i := 1; i < len(x); i++ {
		d := x[i] - x[i-1]
		plain += bits.Len64(zigzag(x[i] - center))
		delta += bits.Len64(zigzag(d - slope))
		dod += bits.Len64(zigzag(d - before))
		before = d
	}
	switch {
	case plain <= delta && plain <= dod:
		return intsPlain, center
	case delta <= dod:
		return intsDelta, slope
	default:
		return intsDod, step
	}
}

// middle returns the medians of some of the integers and of some of their deltas.
func middle(x []int64) (value, delta int64) {
	const most = 31
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

// takeFactor divides what are signed numbers by their greatest common divisor, which it returns, and
// leaves them as zigzag.
func takeFactor(u []uint64) int64 {
	var g uint64
	for _, x := range u {
		if m := magnitude(int64(x)); m != 0 && (g == 0 || m%g != 0) {
			if g = gcd(g, m); g == 1 {
				break
			}
		}
	}
	factor := int64(g)
	if factor <= 0 { // all are 0, or math.MinInt64
		factor = 1
	}
	if factor == 1 {
		for i, x := range u {
			u[i] = zigzag(int64(x))
		}
		return 1
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

// decodeInts fills x, which is not empty, and returns what follows in b.
func decodeInts(b []byte, x []int64, scratch *[blockSamples]uint64) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: integers are missing", ErrCorrupt)
	}
	kind, factor := b[0]&^intsFactor, int64(1)
	hasFactor := b[0]&intsFactor != 0
	b = b[1:]
	var err error
	if hasFactor {
		var f uint64
		if f, b, err = takeUvarint(b, "factor"); err != nil {
			return nil, err
		}
		factor = int64(f)
	}
	var first, base int64
	if kind != intsPlain {
		if first, b, err = takeVarint(b, "first integer"); err != nil {
			return nil, err
		}
	}
	if kind != intsConstant {
		if base, b, err = takeVarint(b, "base"); err != nil {
			return nil, err
		}
	}
	skip := 0 // entries that stand in no column
	switch kind {
	case intsConstant:
		for i := range x {
			x[i] = first
		}
		return b, nil
	case intsPlain:
	case intsDelta:
		skip = 1
	case intsDod:
		skip = 2
	default:
		return nil, fmt.Errorf("%w: integers of unknown kind %d", ErrCorrupt, kind)
	}
	if len(x) < skip {
		return nil, fmt.Errorf("%w: too few integers for kind %d", ErrCorrupt, kind)
	}
	u := scratch[:len(x)-skip]
	if b, err = decodeColumn(b, u); err != nil {
		return nil, err
	}
	sumUp(x, u, kind, first, base, factor)
	return b, nil
}

// sumUp turns the residuals u back into x.
func sumUp(x []int64, u []uint64, kind byte, first, base, factor int64) {
	switch kind {
	case intsPlain:
		for i, r := range u {
			x[i] = base + unzigzag(r)*factor
		}
	case intsDelta:
		x[0] = first
		x = x[1 : 1+len(u)]
		for i, r := range u {
			first += base + unzigzag(r)*factor
			x[i] = first
		}
	case intsDod:
		x[0] = first
		first += base
		x[1] = first
		x = x[2 : 2+len(u)]
		for i, r := range u {
			base += unzigzag(r) * factor
			first += base
			x[i] = first
		}
	}
}
