package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// The values of a block:
//
//	+--------+ - - - - +- - - - - -+- - - - - - - - - +-----------+- - - - - -+
//	| form   | k − 1   | k gaps    | k values         | run of    | run of    |
//	| 1 byte | uvarint | uvarint   | 8 bytes each, LE | integers  | integers  |
//	+--------+ - - - - +- - - - - -+- - - - - - - - - +-----------+- - - - - -+
//	           └──────── only with exceptions ───────┘             └ near only ┘
//	  bits 0–5: form, bit 6: with exceptions
//
//	0–15   decimal: the integers are m, the values m / 10^form, bit for bit
//	16     bits: the integers are the values' IEEE 754 bits, those of negative numbers (sign bit set) with
//	       all other bits flipped, so that the integers are in the values' order
//	32–47  near: the first integers are m; the second are the numbers of float64s by which the values are
//	       above m / 10^(form−32)
//
// Exceptions are values that don't fit the form, such as a stale marker among integers. The run has the integer of the
// previous value in their place. A gap is the number of values between an exception and the previous exception.
const (
	formBits = 16
	formNear = 32

	formExceptions = 0x40 // flag
)

const (
	// exceptionShare limits exceptions: if another form is possible, at most one in exceptionShare values may be an
	// exception.
	exceptionShare = 8
	// exceptionCost is the cost of an exception in bytes.
	exceptionCost = 9
	// exponentFrom is the number of values at the start of a block that are examined to choose the first exponent to
	// try.
	exponentFrom = 32
)

// appendValues appends v, which must not be empty.
func appendValues(dst []byte, v []float64) []byte {
	var scratch [blockSamples]int64
	m := scratch[:len(v)]
	if haveSameBits(v) {
		v, m = v[:1], m[:1] // all values are equal, so encoding one of them yields the same constant run
	}
	var odd [blockSamples]uint16
	form, exceptions := fitDecimal(m, v, odd[:0])
	if form == formBits {
		exceptions = fitBits(m, v, odd[:0])
	} else if form >= formNear {
		return appendNear(dst, v, m, form, odd[:0])
	}
	dst = appendExceptions(dst, form, v, exceptions)
	return appendInts(dst, m)
}

func haveSameBits(v []float64) bool {
	for _, x := range v {
		if math.Float64bits(x) != math.Float64bits(v[0]) {
			return false
		}
	}
	return true
}

// fitDecimal sets m to the mantissas of v in a decimal form. It returns the form and the exceptions. If no decimal form
// fits, it returns only the form to use.
func fitDecimal(m []int64, v []float64, odd []uint16) (form byte, exceptions []uint16) {
	if fitIntegers(m, v) {
		return 0, nil
	}
	for _, stride := range []int{1 + len(v)/exponentFrom, 1} {
		e := chooseExponent(v, stride)
		if e == noExponent {
			break
		}
		if exceptions = fitMantissas(m, v, e, odd[:0]); len(exceptions) <= len(v)/exceptionShare {
			return byte(e), exceptions
		}
	}
	if e := chooseNear(v); e != noExponent {
		return byte(formNear + e), nil
	}
	return formBits, nil
}

// fitIntegers sets m to the values and reports whether all of them are integers.
func fitIntegers(m []int64, v []float64) bool {
	for i, x := range v {
		k, ok := mantissa(x, 0)
		if !ok {
			return false
		}
		m[i] = k
	}
	return true
}

// fitMantissas sets m to the mantissas of v, and appends to odd the indices of values that have none.
func fitMantissas(m []int64, v []float64, e int, odd []uint16) []uint16 {
	for i, x := range v {
		k, ok := mantissa(x, e)
		if !ok {
			odd = append(odd, uint16(i))
			continue
		}
		m[i] = k
	}
	fillExceptions(odd, m)
	return odd
}

func fitBits(m []int64, v []float64, odd []uint16) []uint16 {
	for i, x := range v {
		m[i] = orderedBits(x)
		if math.IsNaN(x) {
			odd = append(odd, uint16(i))
		}
	}
	if len(odd) > len(v)/exceptionShare {
		return nil // all values fit: NaNs are stored by their bits
	}
	fillExceptions(odd, m)
	return odd
}

// fillExceptions sets the integer of each exception to the integer of the previous value; exceptions at the start get
// the integer of the first value that fits.
func fillExceptions(odd []uint16, m []int64) {
	first := 0
	for first < len(odd) && int(odd[first]) == first {
		first++
	}
	if first > 0 && first < len(m) {
		for i := range first {
			m[i] = m[first]
		}
	}
	for _, i := range odd[first:] {
		m[i] = m[i-1]
	}
}

// appendNear appends v in form, which is one of the near forms.
func appendNear(dst []byte, v []float64, m []int64, form byte, odd []uint16) []byte {
	var scratch [blockSamples]int64
	above := scratch[:len(v)]
	power := powers[form-formNear]
	for i, x := range v {
		k, ok := nearestInteger(x, power)
		if !ok {
			odd = append(odd, uint16(i))
			continue
		}
		m[i], above[i] = int64(k), ulps(x, k, power)
	}
	fillExceptions(odd, m)
	fillExceptions(odd, above)
	dst = appendExceptions(dst, form, v, odd)
	return appendInts(appendInts(dst, m), above)
}

// appendExceptions appends the form and the exceptions, whose values are in v.
func appendExceptions(dst []byte, form byte, v []float64, odd []uint16) []byte {
	if len(odd) == 0 {
		return append(dst, form)
	}
	dst = append(dst, form|formExceptions)
	dst = binary.AppendUvarint(dst, uint64(len(odd)-1))
	last := -1
	for _, i := range odd {
		dst = binary.AppendUvarint(dst, uint64(int(i)-last-1))
		last = int(i)
	}
	for _, i := range odd {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v[i]))
	}
	return dst
}

// decodeValues decodes values into v, which must not be empty, and returns the rest of b.
func decodeValues(b []byte, v []float64) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: values are missing", ErrCorrupt)
	}
	form, withExceptions := b[0]&^formExceptions, b[0]&formExceptions != 0
	b = b[1:]
	var exceptions []byte
	var err error
	if withExceptions {
		if exceptions, b, err = cutExceptions(b, len(v)); err != nil {
			return nil, err
		}
	}
	if b, err = decodeForm(b, v, form); err != nil {
		return nil, err
	}
	if withExceptions {
		putExceptions(v, exceptions)
	}
	return b, nil
}

// decodeForm decodes values that are stored in a form, without exceptions, into v.
func decodeForm(b []byte, v []float64, form byte) ([]byte, error) {
	if form > formBits && form < formNear || form > formNear+maxExponent {
		return nil, fmt.Errorf("%w: values of unknown form %d", ErrCorrupt, form)
	}
	// Residues, and the integers of form bits, are stored in the memory of the floats, which have the same size.
	m := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
	r, b, err := cutRun(b, m)
	if err != nil {
		return nil, err
	}
	if form == formBits {
		r.addUp(m, 0)
		for i, x := range m {
			v[i] = fromOrderedBits(x)
		}
		return b, nil
	}
	r.addUpFloats(v)
	if power := powers[form&(formNear-1)]; power != 1 {
		if r.kind == intsConstant {
			fillWith(v, v[0]/power)
		} else {
			for i, x := range v {
				v[i] = x / power
			}
		}
	}
	if form >= formNear {
		return decodeAbove(b, v)
	}
	return b, nil
}

// decodeAbove decodes a run of integers, and increases each value of v by the corresponding number of units in the last
// place.
func decodeAbove(b []byte, v []float64) ([]byte, error) {
	var scratch [blockSamples]int64
	above := scratch[:len(v)]
	b, err := decodeInts(b, above, 0)
	if err != nil {
		return nil, err
	}
	for i, x := range above {
		v[i] = fromOrderedBits(orderedBits(v[i]) + x)
	}
	return b, nil
}

// cutExceptions validates the exceptions of n values at the start of b and splits them off.
func cutExceptions(b []byte, n int) (exceptions, rest []byte, err error) {
	k, rest, err := cutUvarint(b, "number of exceptions")
	if err != nil {
		return nil, nil, err
	}
	if k >= uint64(n) {
		return nil, nil, fmt.Errorf("%w: more exceptions than values", ErrCorrupt)
	}
	if rest, err = skipGaps(rest, int(k)+1, n); err != nil {
		return nil, nil, err
	}
	size := 8 * (int(k) + 1)
	if len(rest) < size {
		return nil, nil, fmt.Errorf("%w: exceptions are truncated", ErrCorrupt)
	}
	return b[:len(b)-len(rest)+size], rest[size:], nil
}

// putExceptions stores in v the exceptions that cutExceptions validated.
func putExceptions(v []float64, exceptions []byte) {
	k, n := binary.Uvarint(exceptions)
	gaps, values := exceptions[n:], exceptions[len(exceptions)-8*(int(k)+1):]
	next := 0
	for range k + 1 {
		gap, n := binary.Uvarint(gaps)
		gaps = gaps[n:]
		next += int(gap)
		v[next] = math.Float64frombits(binary.LittleEndian.Uint64(values))
		values = values[8:]
		next++
	}
}
