package page

import (
	"fmt"
	"math/bits"
)

// The bytes of a column of texts can be packed if few different byte values occur in it. The form of the column then
// has the flag packed:
//
//	+--------+- - - - -+- - - - - - - - - - - - - - - +
//	| a − 1  | a bytes | index among these of all     |
//	| 1 byte |         | bytes, w bits each           |
//	+--------+- - - - -+- - - - - - - - - - - - - - - +
//
// a is 2 to 128, and w the number of bits of a − 1. The index of byte i starts at bit i·w, bit 0 being the lowest of
// the first byte.

// maxAlphabet is the max number of different bytes that are packed.
const maxAlphabet = 128

// packedWithin is the max excess of packed bytes over their entropy, per byte, in the units of function log2. The
// engine's compression has about the same excess, because it uses one code for all columns.
const packedWithin = 3 << (logFraction - 2)

// packBytes packs the bytes of dst from an index on, if that makes the compressed page smaller. ok reports whether it
// does.
func (e *composer) packBytes(dst []byte, from int) (packed []byte, ok bool) {
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

// logFraction is the number of fractional bits in the result of log2.
const logFraction = 8

// log2 returns the binary logarithm of x > 0, rounded down, in units of 2^-logFraction. It uses integers, so that the
// result is the same on every machine.
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

// packed has packed bytes.
type packed struct {
	alphabet []byte // one byte per possible index; 0 for indices beyond the stored bytes
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

// readPacked reads n packed bytes.
func (r *scanner) readPacked(n int) (*packed, error) {
	a := int(r.readByte()) + 1
	alphabet := r.readBytes(a)
	if alphabet == nil || a < 2 || a > maxAlphabet {
		return nil, fmt.Errorf("%w: the alphabet of packed texts has an invalid size, %d", errCorrupt, a)
	}
	c := &packed{width: bits.Len(uint(a - 1))}
	c.alphabet = make([]byte, 1<<c.width)
	copy(c.alphabet, alphabet)
	c.bits = r.readBytes((n*c.width + 7) / 8)
	return c, nil
}
