package rollup

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cassia-db/cassia/storage/chunk"
)

// formBits is the form of values that aren't decimal. The first, last, min and max values of buckets are stored as
// integers, all in the same form, so that some can be predicted from others:
//
//	0–15  m, where the value is m / 10^form, bit for bit
//	16    the value's bits, as chunk.OrderedBits
//
// Column first contains the form and the difference of each first value from the last value of the previous bucket,
// modulo 2^64:
//
//	+--------+---------+- - - - - - - - - -+
//	| form   | first   | run of n − 1,     |
//	| 1 byte | varint  | absent if all 0   |
//	+--------+---------+- - - - - - - - - -+
const formBits = chunk.MaxExponent + 1

// lanes are the values of buckets of floats as integers.
type lanes struct {
	form                  int
	first, last, min, max []int64
	sum                   []int64 // of sums; nil where they aren't stored as integers
}

// lanesOf converts values to integers.
func (e *encoder) lanesOf(b *Buckets, parts []part) lanes {
	columns := [4][]float64{
		gather(b.First, parts, ofFloats), gather(b.Last, parts, ofFloats),
		gather(b.Min, parts, ofFloats), gather(b.Max, parts, ofFloats),
	}
	l := lanes{form: chooseForm(columns[:])}
	for k, into := range []*[]int64{&l.first, &l.last, &l.min, &l.max} {
		m := e.zeros(len(columns[k]))
		for i, v := range columns[k] {
			m[i] = l.integer(v)
		}
		*into = m
	}
	return l
}

// chooseForm returns the smallest form in which all values can be stored.
func chooseForm(columns [][]float64) int {
	form := 0
	for _, column := range columns {
		for _, v := range column {
			if _, ok := chunk.Mantissa(v, form); ok {
				continue
			}
			e, ok := chunk.Exponent(v, form)
			if !ok {
				return formBits
			}
			form = max(form, e)
		}
	}
	for _, column := range columns {
		for _, v := range column {
			if _, ok := chunk.Mantissa(v, form); !ok {
				return formBits // too long with the additional digits
			}
		}
	}
	return form
}

// integer returns the integer of v, which must fit the form.
func (l *lanes) integer(v float64) int64 {
	if l.form == formBits {
		return chunk.OrderedBits(v)
	}
	m, _ := chunk.Mantissa(v, l.form)
	return m
}

// appendFirst appends the column of first values. follows is scratch memory for all first values except one.
func (l *lanes) appendFirst(dst []byte, follows []int64) []byte {
	dst = binary.AppendVarint(append(dst, byte(l.form)), l.first[0])
	for i := range follows {
		follows[i] = l.first[i+1] - l.last[i]
	}
	if !allZero(follows) {
		dst = appendInts(dst, follows)
	}
	return dst
}

// lastIntegers, minIntegers and maxIntegers fill x with the integers of column last, min or max, and return x.
func (l *lanes) lastIntegers(x []int64) []int64 {
	for i, v := range l.first {
		x[i] = l.last[i] - v
	}
	return x
}

func (l *lanes) minIntegers(x []int64) []int64 {
	for i, v := range l.first {
		x[i] = min(v, l.last[i]) - l.min[i]
	}
	return x
}

func (l *lanes) maxIntegers(x []int64) []int64 {
	for i, v := range l.first {
		x[i] = l.max[i] - max(v, l.last[i])
	}
	return x
}

// decodeEnds fills l.first and l.last, which have equal lengths.
func (l *lanes) decodeEnds(first, last []byte) error {
	r := reader{b: first}
	l.form = int(r.uvarint())
	value := r.varint()
	if r.short || l.form > formBits {
		return fmt.Errorf("%w: values of unknown form %d", ErrCorrupt, l.form)
	}
	l.first[0] = 0
	if err := decodeInts(first[r.at:], l.first[1:], "first values"); err != nil {
		return err
	}
	if err := decodeInts(last, l.last, "last values"); err != nil {
		return err
	}
	ends := l.last[:len(l.first)]
	for i, follows := range l.first {
		value += follows
		l.first[i] = value
		value += ends[i]
		ends[i] = value
	}
	return nil
}

// decodeInts fills x from a column of integers, or with 0 if it is absent.
func decodeInts(b []byte, x []int64, what string) error {
	if len(b) == 0 {
		clear(x)
		return nil
	}
	if len(x) == 0 {
		return fmt.Errorf("%w: %s without buckets", ErrCorrupt, what)
	}
	rest, err := chunk.DecodeInts(b, x)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, what, err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %s are followed by %d extra bytes", ErrCorrupt, what, len(rest))
	}
	return nil
}

// float converts an integer to its value.
func (l *lanes) float(m int64) float64 {
	if l.form == formBits {
		return chunk.FromOrderedBits(m)
	}
	return float64(m) / chunk.Power(l.form)
}

// floats converts integers to values.
func (l *lanes) floats(v []float64, m []int64) {
	m = m[:len(v)]
	switch l.form {
	case 0:
		for i := range v {
			v[i] = float64(m[i])
		}
	case formBits:
		for i := range v {
			v[i] = chunk.FromOrderedBits(m[i])
		}
	default:
		power := chunk.Power(l.form)
		for i := range v {
			v[i] = float64(m[i]) / power
		}
	}
}

// costOver estimates the number of bits of the differences between x and p.
func costOver(x, p []int64) (n int) {
	for i, v := range x {
		n += bits.Len64(chunk.Zigzag(v - p[i]))
	}
	return n
}
