package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The values of a block:
//
//	+--------+ - - - - +- - - - - -+- - - - - - - - - +-----------+
//	| form   | k − 1   | k gaps    | k values         | run of    |
//	| 1 byte | uvarint | uvarint   | 8 bytes each, LE | integers  |
//	+--------+ - - - - +- - - - - -+- - - - - - - - - +-----------+
//	           └──────── only with exceptions ───────┘
//	  bits 0–5: form, bit 6: with exceptions
//
//	form 0–15  decimal: the integers are m, the values m / 10^form, bit for bit
//	form 16    bits: the integers are the values' IEEE 754 bits, those of negative numbers (sign bit set)
//	           with all other bits flipped, so that integers are in the values' order
//
// Exceptions are values that don't fit the form, a stale marker among integers for one; the run has the
// value before in their place. A gap counts the values between an exception and the one before.
const (
	formBits = 16

	formExceptions = 0x40 // flag
)

const (
	// exceptionShare: at most one value in so many may be an exception.
	exceptionShare = 8
	// exceptionCost is what an exception costs, bytes.
	exceptionCost = 9
)

// appendValues appends v, which is not empty.
func appendValues(dst []byte, v []float64) []byte {
	var scratch [blockSamples]int64
	m := scratch[:len(v)]
	form := byte(formBits)
	if e := chooseExponent(v); e != noExponent {
		form = byte(e)
	}
	var odd [blockSamples / exceptionShare * 2]uint16
	exceptions := fitForm(m, v, form, odd[:0])
	if len(exceptions) == 0 {
		return appendInts(append(dst, form), m)
	}
	dst = append(dst, form|formExceptions)
	dst = binary.AppendUvarint(dst, uint64(len(exceptions)-1))
	last := -1
	for _, i := range exceptions {
		dst = binary.AppendUvarint(dst, uint64(int(i)-last-1))
		last = int(i)
	}
	for _, i := range exceptions {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v[i]))
	}
	return appendInts(dst, m)
}

// fitForm sets m to the integers of v, and appends to exceptions the indices of values that have none.
func fitForm(m []int64, v []float64, form byte, exceptions []uint16) []uint16 {
	hold, known := int64(0), 0
	for i, x := range v {
		var ok bool
		if form == formBits {
			m[i], ok = orderedBits(x), !math.IsNaN(x)
		} else {
			m[i], ok = mantissa(x, int(form))
		}
		if !ok {
			exceptions = append(exceptions, uint16(i))
			m[i] = hold
			continue
		}
		if hold = m[i]; known == 0 {
			for j := range i {
				m[j] = hold
			}
		}
		known++
	}
	return exceptions
}

func orderedBits(v float64) int64 {
	b := int64(math.Float64bits(v))
	return b ^ int64(uint64(b>>63)>>1)
}

func fromOrderedBits(x int64) float64 {
	return math.Float64frombits(uint64(x ^ int64(uint64(x>>63)>>1)))
}

// decodeValues fills v, which is not empty, and returns what follows in b.
func decodeValues(b []byte, v []float64, scratch *[blockSamples]uint64) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: values are missing", ErrCorrupt)
	}
	form, withExceptions := b[0]&^formExceptions, b[0]&formExceptions != 0
	if form > formBits {
		return nil, fmt.Errorf("%w: values of unknown form %d", ErrCorrupt, form)
	}
	b = b[1:]
	var exceptions []byte
	var err error
	if withExceptions {
		if exceptions, b, err = takeExceptions(b, len(v)); err != nil {
			return nil, err
		}
	}
	var integers [blockSamples]int64
	m := integers[:len(v)]
	if b, err = decodeInts(b, m, scratch); err != nil {
		return nil, err
	}
	switch form {
	case formBits:
		for i, x := range m {
			v[i] = fromOrderedBits(x)
		}
	case 0:
		for i, x := range m {
			v[i] = float64(x)
		}
	default:
		p := powers[form]
		for i, x := range m {
			v[i] = float64(x) / p
		}
	}
	if withExceptions {
		putExceptions(v, exceptions)
	}
	return b, nil
}

// takeExceptions checks the exceptions of n values that b starts with, and splits them off.
func takeExceptions(b []byte, n int) (exceptions, rest []byte, err error) {
	k, rest, err := takeUvarint(b, "number of exceptions")
	if err != nil {
		return nil, nil, err
	}
	if k >= uint64(n) {
		return nil, nil, fmt.Errorf("%w: more exceptions than values", ErrCorrupt)
	}
	next := uint64(0)
	for range k + 1 {
		var gap uint64
		if gap, rest, err = takeUvarint(rest, "exception"); err != nil {
			return nil, nil, err
		}
		if gap >= uint64(n)-next {
			return nil, nil, fmt.Errorf("%w: exception outside of its block", ErrCorrupt)
		}
		next += gap + 1
	}
	size := 8 * int(k+1)
	if len(rest) < size {
		return nil, nil, fmt.Errorf("%w: exceptions end early", ErrCorrupt)
	}
	return b[:len(b)-len(rest)+size], rest[size:], nil
}

// putExceptions puts what takeExceptions checked in its places.
func putExceptions(v []float64, exceptions []byte) {
	k, n := binary.Uvarint(exceptions)
	gaps, values := exceptions[n:], exceptions[len(exceptions)-8*int(k+1):]
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
