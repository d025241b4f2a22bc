package page

import (
	"fmt"
	"math/bits"
)

// Bytes that are few different ones, of a column of texts whose form has the flag packed:
//
//	+--------+- - - - -+- - - - - - - - - - - - - - - +
//	| a − 1  | a bytes | places among these of all    |
//	| 1 byte |         | bytes, w bits each           |
//	+--------+- - - - -+- - - - - - - - - - - - - - - +
//
// a is 2 to 128, w the bits that a − 1 needs. The place of byte i begins at bit i·w, bit 0 being the lowest of the first byte.

// maxAlphabet is the greatest number of different bytes that are packed.
const maxAlphabet = 128

// packedWithin is how many bits more than their entropy packed bytes may take each, in units of log2. The engine's compression
// takes about as many more, because it has one code for all columns.
const packedWithin = 3 << (logFraction - 2)

// pack packs the bytes from an index of dst on, where that makes a page smaller once it is compressed; ok reports that.
func (e *composer) pack(dst []byte, from int) (packed []byte, ok bool) {
	b := dst[from:]
	var count [256]int
	for _, c := range b {
		count[c]++
	}
	var place [256]byte
	e.alphabet = e.alphabet[:0]
	entropy := 0 // of all bytes
	for c, n := range count {
		if n > 0 {
			place[c] = byte(len(e.alphabet))
			e.alphabet = append(e.alphabet, byte(c))
			entropy += n * (log2(len(b)) - log2(n))
		}
	}
	a := len(e.alphabet)
	if a < 2 || a > maxAlphabet {
		return dst, false
	}
	w := bits.Len(uint(a - 1))
	size := 1 + a + (len(b)*w+7)/8
	if 8*size<<logFraction > entropy+packedWithin*len(b) || size >= len(b) {
		return dst, false
	}
	e.joined = append(e.joined[:0], b...)
	dst = append(append(dst[:from], byte(a-1)), e.alphabet...)
	waiting, have := uint32(0), 0
	for _, c := range e.joined {
		waiting |= uint32(place[c]) << have
		if have += w; have >= 8 {
			dst = append(dst, byte(waiting))
			waiting >>= 8
			have -= 8
		}
	}
	if have > 0 {
		dst = append(dst, byte(waiting))
	}
	return dst, true
}

// logFraction is how many bits of what log2 returns are a fraction.
const logFraction = 8

// log2 returns the binary logarithm of x > 0, rounded down, in units of 2^-logFraction. Integers make it the same on every
// machine.
func log2(x int) int {
	whole := bits.Len32(uint32(x)) - 1
	m := uint64(x) << (31 - whole) // 1 ≤ m / 2^31 < 2
	log := whole
	for range logFraction {
		log <<= 1
		if m = m * m >> 31; m >= 1<<32 {
			m >>= 1
			log |= 1
		}
	}
	return log
}

// packed are packed bytes.
type packed struct {
	alphabet []byte // one byte per place that so many bits can hold; 0 beyond those that are stored
	bits     []byte
	width    int
}

// appendTo appends the bytes from one index to another.
func (c *packed) appendTo(dst []byte, from, to int) []byte {
	mask := uint(1)<<c.width - 1
	for bit := from * c.width; bit < to*c.width; bit += c.width {
		two := uint(c.bits[bit/8])
		if bit/8+1 < len(c.bits) {
			two |= uint(c.bits[bit/8+1]) << 8
		}
		dst = append(dst, c.alphabet[two>>(bit%8)&mask])
	}
	return dst
}

// packed reads n packed bytes.
func (r *scanner) packed(n int) (*packed, error) {
	a := int(r.byte()) + 1
	alphabet := r.take(a)
	if alphabet == nil || a < 2 || a > maxAlphabet {
		return nil, fmt.Errorf("%w: the alphabet of packed texts has an invalid size, %d", ErrCorrupt, a)
	}
	c := &packed{width: bits.Len(uint(a - 1))}
	c.alphabet = make([]byte, 1<<c.width)
	copy(c.alphabet, alphabet)
	c.bits = r.take((n*c.width + 7) / 8)
	return c, nil
}
