package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// A column holds unsigned numbers, most of them small. It has the low bits of every number, in a width that suffices
// for most numbers. The higher bits of the larger numbers are stored as patches.
//
//	+-----------+--------------------+ - - - - - - +- - - - - - - - - -+- - - - - - - - - - - - - -+
//	| shape     | low bits of n      | k − 1       | k gaps            | patch width planes of k   |
//	| 1 byte    | numbers            | uvarint     | uvarint each      | bytes each                |
//	+-----------+--------------------+ - - - - - - +- - - - - - - - - -+- - - - - - - - - - - - - -+
//	  bits 0–3: width                  └──── only if patch width > 0 ─────────────────────────────┘
//	  bits 4–7: patch width, 0–8 bytes
//
//	width 0      no low bits
//	width 1–8    bytes: a plane of the lowest bytes of all numbers, one of the next bytes, and so on
//	width 9, 10  1 or 2 bits: q = ⌈n·bits/8⌉ bytes; number i is in byte i mod q, above the bits of numbers
//	             i−q, i−2q, …
//
// The reader must know n. A gap is the number of entries between a patch and the previous patch, or the start of the
// column. A patch has the bits above the low ones.
//
// Larger numbers aren't packed into bits, because the engine's zstd compresses whole bytes better: with 4 bits the rows
// of a node exporter were 1 % larger, with 1 and 2 bits 0.5 % smaller.

// maxWidth is the largest width that means a number of bytes. Larger widths mean numbers of bits, see widthBits.
const maxWidth = 8

// widthBits has the number of low bits per number, by width.
var widthBits = [...]int{0, 8, 16, 24, 32, 40, 48, 56, 64, 1, 2}

// widthsAscending has the widths sorted by their numbers of bits.
var widthsAscending = [...]byte{0, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8}

// patchCost is the estimated cost of a patch's position in bytes.
const patchCost = 1

// appendColumn appends the column of u.
func appendColumn(dst []byte, u []uint64) []byte {
	width, patchWidth, patches := columnShape(u)
	dst = append(dst, width|patchWidth<<4)
	dst = appendLow(dst, u, width)
	if patchWidth == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(patches-1))
	low := widthBits[width]
	last := -1
	for i, x := range u {
		if x>>low != 0 {
			dst = binary.AppendUvarint(dst, uint64(i-last-1))
			last = i
		}
	}
	for plane := range int(patchWidth) {
		for _, x := range u {
			if x>>low != 0 {
				dst = append(dst, byte(x>>low>>(8*plane)))
			}
		}
	}
	return dst
}

// appendLow appends the low bits of u.
func appendLow(dst []byte, u []uint64, width byte) []byte {
	at := len(dst)
	if width <= maxWidth {
		dst = slices.Grow(dst, len(u)*int(width))[:at+len(u)*int(width)]
		for plane := range int(width) {
			out, shift := dst[at+plane*len(u):][:len(u)], uint(8*plane)&63
			for i, x := range u {
				out[i] = byte(x >> shift)
			}
		}
		return dst
	}
	low := widthBits[width]
	q := (len(u)*low + 7) / 8
	dst = slices.Grow(dst, q)[:at+q]
	out := dst[at:]
	clear(out)
	mask := uint64(1)<<low - 1
	for shift := 0; len(u) > 0; shift += low {
		part := u[:min(q, len(u))]
		for i, x := range part {
			out[i] |= byte(x & mask << shift)
		}
		u = u[len(part):]
	}
	return dst
}

// columnShape chooses the widths that make the column smallest.
func columnShape(u []uint64) (width, patchWidth byte, patches int) {
	var count [65]int // count[k] is how many numbers need k bits
	for _, x := range u {
		count[bits.Len64(x)]++
	}
	longest := 64
	for longest > 0 && count[longest] == 0 {
		longest--
	}
	best, fitting, next := math.MaxInt, 0, 0
	for _, w := range widthsAscending {
		low := widthBits[w]
		for ; next <= low; next++ {
			fitting += count[next]
		}
		above, patchBytes := len(u)-fitting, (max(longest-low, 0)+7)/8
		if cost := (len(u)*low+7)/8 + above*(patchCost+patchBytes); cost < best {
			best, width, patchWidth, patches = cost, w, byte(patchBytes), above
		}
		if above == 0 {
			break
		}
	}
	return width, patchWidth, patches
}

// decodeColumn decodes the column at the start of b into x and returns the rest of b.
func decodeColumn(b []byte, x []int64) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: a column is missing", ErrCorrupt)
	}
	width, patchWidth := int(b[0]&15), int(b[0]>>4)
	b = b[1:]
	if width >= len(widthBits) || widthBits[width]+8*patchWidth >= 64+8 {
		return nil, fmt.Errorf("%w: a column has the invalid widths %d and %d", ErrCorrupt, width, patchWidth)
	}
	size := (len(x)*widthBits[width] + 7) / 8
	if len(b) < size {
		return nil, fmt.Errorf("%w: a column of %d numbers is truncated", ErrCorrupt, len(x))
	}
	if width <= maxWidth {
		joinPlanes(b, x, width)
	} else {
		unpackPlane(b[:size], x, widthBits[width])
	}
	b = b[size:]
	if patchWidth == 0 {
		return b, nil
	}
	return decodePatches(b, x, widthBits[width], patchWidth)
}

// unpackPlane sets x to the numbers of a plane in which every number has the same number of bits: low, which is 1 or 2.
func unpackPlane(b []byte, x []int64, low int) {
	mask := byte(1)<<low - 1
	for shift := 0; len(x) > 0; shift += low {
		part := x[:min(len(b), len(x))]
		for i, packed := range b[:len(part)] {
			part[i] = int64(packed >> (shift & 7) & mask)
		}
		x = x[len(part):]
	}
}

// joinPlanes sets x from width planes, each with one byte per number. Slices are truncated to len(x), so that the
// compiler can eliminate bounds checks.
func joinPlanes(b []byte, x []int64, width int) {
	switch width {
	case 0:
		clear(x)
	case 1:
		low := b[:len(x)]
		for i := range x {
			x[i] = int64(low[i])
		}
	case 2:
		low, high := b[:len(x)], b[len(x):][:len(x)]
		for i := range x {
			x[i] = int64(low[i]) | int64(high[i])<<8
		}
	case 3:
		low, middle, high := b[:len(x)], b[len(x):][:len(x)], b[2*len(x):][:len(x)]
		for i := range x {
			x[i] = int64(low[i]) | int64(middle[i])<<8 | int64(high[i])<<16
		}
	default:
		clear(x)
		orPlanes(b, x, 0)
		if width > 4 {
			orPlanes(b, x, width-4) // adding a plane twice has no effect
		}
	}
}

// orPlanes adds four planes to x. The index of the first of them is plane.
func orPlanes(b []byte, x []int64, plane int) {
	shift := uint(8*plane) & 63
	b = b[plane*len(x):]
	p0, p1, p2, p3 := b[:len(x)], b[len(x):][:len(x)], b[2*len(x):][:len(x)], b[3*len(x):][:len(x)]
	for i := range x {
		four := uint32(p0[i]) | uint32(p1[i])<<8 | uint32(p2[i])<<16 | uint32(p3[i])<<24
		x[i] |= int64(four) << shift
	}
}

func decodePatches(b []byte, x []int64, low, patchWidth int) ([]byte, error) {
	k, b, err := cutUvarint(b, "number of patches")
	if err != nil {
		return nil, err
	}
	if k >= uint64(len(x)) {
		return nil, fmt.Errorf("%w: more patches than numbers", ErrCorrupt)
	}
	patches := int(k) + 1
	planes, err := skipGaps(b, patches, len(x))
	if err != nil {
		return nil, err
	}
	if len(planes) < patches*patchWidth {
		return nil, fmt.Errorf("%w: %d patches are truncated", ErrCorrupt, patches)
	}
	next := 0
	for i, low8 := range planes[:patches] {
		if b[0] < 0x80 {
			next += int(b[0])
			b = b[1:]
		} else {
			gap, n := binary.Uvarint(b)
			next += int(gap)
			b = b[n:]
		}
		high := int64(low8)
		for plane := 1; plane < patchWidth; plane++ {
			high |= int64(planes[plane*patches+i]) << (8 * plane)
		}
		x[next] |= high << low
		next++
	}
	return planes[patches*patchWidth:], nil
}

// skipGaps returns the bytes of b after k gaps. It returns an error if a gap leads beyond the n entries of the column.
func skipGaps(b []byte, k, n int) ([]byte, error) {
	left := uint64(n)
	for range k {
		var gap uint64
		if len(b) > 0 && b[0] < 0x80 { // as in nearly all gaps
			gap, b = uint64(b[0]), b[1:]
		} else {
			var err error
			if gap, b, err = cutUvarint(b, "gap"); err != nil {
				return nil, err
			}
		}
		if gap >= left {
			return nil, fmt.Errorf("%w: a patch is beyond the %d entries", ErrCorrupt, n)
		}
		left -= gap + 1
	}
	return b, nil
}

// zigzag maps numbers of small magnitude to small unsigned numbers.
func zigzag(x int64) uint64   { return uint64(x)<<1 ^ uint64(x>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func cutUvarint(b []byte, what string) (uint64, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: %s is truncated", ErrCorrupt, what)
	}
	return x, b[n:], nil
}

func cutVarint(b []byte, what string) (int64, []byte, error) {
	x, n := binary.Varint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: %s is truncated", ErrCorrupt, what)
	}
	return x, b[n:], nil
}
