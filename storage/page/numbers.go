package page

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A column of n numbers, one per entry:
//
//	0      equal       number uvarint
//	1–64   bits        min uvarint | the difference of each number to min, in that number of bits
//	65     dictionary  d − 1, 1 byte | column of d numbers | column of n references, each below d
//
// The first byte is the form. Bits are stored in planes: one of the lowest byte of every number, one of the next, and
// so on, n bytes each. The remaining bits, fewer than 8 per number, are packed: the bits of number i start at bit
// i·(bits mod 8), bit 0 being the lowest of the first byte. The columns in a dictionary have forms 0 to 64.
const (
	numbersEqual      = 0
	numbersMaxBits    = 64
	numbersDictionary = 65
)

// planesSize returns the size of the planes of n numbers in bytes.
func planesSize(n, width int) int { return width/8*n + (n*(width%8)+7)/8 }

// appendNumbers appends the column of x, which has 1 to MaxEntries numbers.
func (e *composer) appendNumbers(dst []byte, x []uint64) []byte {
	least, greatest := x[0], x[0]
	for _, v := range x {
		least, greatest = min(least, v), max(greatest, v)
	}
	width := bits.Len64(greatest - least)
	if width > dictionaryFrom {
		if d := e.distinctNumbers(x); d > 0 {
			refs := bits.Len64(uint64(d - 1))
			if 3+planesSize(d, width)+planesSize(len(x), refs) < planesSize(len(x), width) {
				dst = append(dst, numbersDictionary, byte(d-1))
				dst = appendBits(dst, e.dictionary[:d])
				return appendBits(dst, e.references[:len(x)])
			}
		}
	}
	return appendBits(dst, x)
}

// dictionaryFrom is the max width of numbers, in bits, for which no dictionary is tried.
const dictionaryFrom = 4

// appendBits appends the column of x without a dictionary.
func appendBits(dst []byte, x []uint64) []byte {
	least, greatest := x[0], x[0]
	for _, v := range x {
		least, greatest = min(least, v), max(greatest, v)
	}
	width := bits.Len64(greatest - least)
	dst = binary.AppendUvarint(append(dst, byte(width)), least)
	shift := 0
	for ; shift+8 <= width; shift += 8 {
		for _, v := range x {
			dst = append(dst, byte((v-least)>>shift))
		}
	}
	above := width % 8
	if above == 0 {
		return dst
	}
	packed, have := uint32(0), 0
	for _, v := range x {
		packed |= uint32((v-least)>>shift) << have
		if have += above; have >= 8 {
			dst = append(dst, byte(packed))
			packed >>= 8
			have -= 8
		}
	}
	if have > 0 {
		dst = append(dst, byte(packed))
	}
	return dst
}

// distinctNumbers sets the dictionary and the references of x, and returns the number of distinct numbers, or 0 if
// there are too many for a dictionary.
func (e *composer) distinctNumbers(x []uint64) (d int) {
	clear(e.slots[:])
	for i, v := range x {
		slot := v * 0x9e3779b97f4a7c15 >> (64 - slotBits)
		for e.slots[slot] != 0 && e.dictionary[e.slots[slot]-1] != v {
			slot = (slot + 1) % slotCount
		}
		if e.slots[slot] == 0 {
			if d == 1+len(x)/2 {
				return 0
			}
			e.dictionary[d] = v
			d++
			e.slots[slot] = uint16(d)
		}
		e.references[i] = uint64(e.slots[slot] - 1)
	}
	return d
}

// numbers is a parsed column of numbers. They are unpacked, because most readers need the numbers of all entries.
type numbers struct {
	least uint64 // the value of all numbers, if there are no differences
	small []byte // the differences to the min
	wide  []uint64
	// dictionary has the numbers to which small refers. It is nil if the column has no dictionary.
	dictionary []uint64
}

// at returns number i.
func (c *numbers) at(i int) uint64 {
	switch {
	case c.dictionary != nil:
		return c.dictionary[c.small[i]]
	case c.small != nil:
		return c.least + uint64(c.small[i])
	case c.wide != nil:
		return c.wide[i]
	default:
		return c.least
	}
}

// areEqual reports whether the column has the form for equal numbers.
func (c *numbers) areEqual() bool { return c.small == nil && c.wide == nil }

// readNumbers reads a column of n numbers.
func (r *scanner) readNumbers(n int) (c numbers, err error) {
	form := r.readByte()
	if form != numbersDictionary {
		return r.readBits(form, n)
	}
	d := int(r.readByte()) + 1
	dictionary, err := r.readBits(r.readByte(), d)
	if err != nil {
		return c, err
	}
	references, err := r.readBits(r.readByte(), n)
	if err != nil {
		return c, err
	}
	c.dictionary, c.small = r.makeNumbers(d), r.makeBytes(n)
	for i := range c.dictionary {
		c.dictionary[i] = dictionary.at(i)
	}
	for i := range c.small {
		ref := references.at(i)
		if ref >= uint64(d) {
			return c, fmt.Errorf("%w: a reference to number %d, but there are only %d numbers", errCorrupt, ref, d)
		}
		c.small[i] = byte(ref)
	}
	return c, nil
}

// readBits reads a column without a dictionary.
func (r *scanner) readBits(form byte, n int) (c numbers, err error) {
	if form > numbersMaxBits {
		return c, fmt.Errorf("%w: numbers of unknown form %d", errCorrupt, form)
	}
	c.least = r.readUvarint()
	width := int(form)
	planes := r.readBytes(planesSize(n, width))
	switch {
	case r.short:
		return c, fmt.Errorf("%w: %d numbers of %d bits are truncated", errCorrupt, n, form)
	case width == 0:
	case width < 8:
		c.small = r.makeBytes(n)
		unpackBits(c.small, planes, width)
	case width == 8:
		c.small = planes
	default:
		c.wide = r.makeNumbers(n)
		for i := range c.wide {
			c.wide[i] = c.least
		}
		addPlanes(c.wide, planes, width)
	}
	return c, nil
}

// addPlanes adds the numbers of width bits in planes to x, which has at most MaxEntries numbers.
func addPlanes(x []uint64, planes []byte, width int) {
	shift := 0
	for ; shift+8 <= width; shift += 8 {
		plane := planes[:len(x)]
		for i := range x {
			x[i] += uint64(plane[i]) << shift
		}
		planes = planes[len(x):]
	}
	if shift == width {
		return
	}
	var above [MaxEntries]byte
	unpackBits(above[:len(x)], planes, width-shift)
	for i := range x {
		x[i] += uint64(above[i]) << shift
	}
}

// unpackBits sets dst to packed numbers of width bits, 1 to 7.
func unpackBits(dst, packed []byte, width int) {
	mask, waiting, have := uint(1)<<width-1, uint(0), 0
	for i := range dst {
		if have < width {
			waiting |= uint(packed[0]) << have
			packed, have = packed[1:], have+8
		}
		dst[i] = byte(waiting & mask)
		waiting >>= width
		have -= width
	}
}

// slabColumns is the number of columns whose memory is allocated together.
const slabColumns = 8

// makeNumbers returns memory for n numbers, and makeBytes for n bytes, from a slab that the columns of a page
// share.
func (r *scanner) makeNumbers(n int) []uint64 {
	if n > len(r.slab) {
		r.slab = make([]uint64, slabColumns*n)
		r.memory += 8 * slabColumns * n
	}
	x := r.slab[:n:n]
	r.slab = r.slab[n:]
	return x
}

func (r *scanner) makeBytes(n int) []byte {
	if n > len(r.byteSlab) {
		r.byteSlab = make([]byte, slabColumns*n)
		r.memory += slabColumns * n
	}
	x := r.byteSlab[:n:n]
	r.byteSlab = r.byteSlab[n:]
	return x
}

// scanner reads the parts of a page in order, and records whether the page ended before a part was complete.
type scanner struct {
	b     []byte
	short bool
	// slab and byteSlab are memory for columns.
	slab     []uint64
	byteSlab []byte
	memory   int // bytes allocated for both
}

func (r *scanner) readByte() byte {
	if b := r.readBytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// readBytes returns the next n bytes, or nil if there are fewer or n is negative.
func (r *scanner) readBytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.b, r.short = nil, true
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *scanner) readUvarint() uint64 {
	x, w := binary.Uvarint(r.b)
	if w <= 0 {
		r.b, r.short = nil, true
		return 0
	}
	r.b = r.b[w:]
	return x
}

// readLength reads a length. It returns -1 if fewer bytes are left.
func (r *scanner) readLength() int {
	if n := r.readUvarint(); !r.short && n <= uint64(len(r.b)) {
		return int(n)
	}
	r.short = true
	return -1
}
