package chunk

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// A column holds unsigned numbers, most of them small, by bytes: the low bytes of all, then the next bytes
// of all, and so on for as many bytes as most of them need. What is higher than that stands in patches.
// Nothing is packed into bits: the engine's zstd does that better when it finds whole bytes, and the bytes
// of two series that move alike are the same.
//
//	+-----------+--------------------+ - - - - - - +- - - - - - - - - -+- - - - - - - - - - - - - -+
//	| shape     | width planes of n  | k − 1       | k gaps            | patch width planes of k   |
//	| 1 byte    | bytes each         | uvarint     | uvarint each      | bytes each                |
//	+-----------+--------------------+ - - - - - - +- - - - - - - - - -+- - - - - - - - - - - - - -+
//	  bits 0–3: width, 0–8             └──── only if patch width > 0 ──────────────────────────────┘
//	  bits 4–7: patch width, 0–8
//
// The n numbers are known from outside. A gap is the number of entries between a patch and the patch
// before it (the first: before it in the column). A patch gives the bytes above width.

const maxWidth = 8

// patchCost is what a patch's position is taken to cost, bytes.
const patchCost = 1

// appendColumn appends the column of u.
func appendColumn(dst []byte, u []uint64) []byte {
	width, patchWidth, patches := columnShape(u)
	dst = append(dst, byte(width|patchWidth<<4))
	for plane := range width {
		shift := 8 * plane
		at := len(dst)
		dst = slices.Grow(dst, len(u))[:at+len(u)]
		out := dst[at:]
		for i, x := range u {
			out[i] = byte(x >> shift)
		}
	}
	if patchWidth == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(patches-1))
	last := -1
	for i, x := range u {
		if x>>(8*width) != 0 {
			dst = binary.AppendUvarint(dst, uint64(i-last-1))
			last = i
		}
	}
	for plane := range patchWidth {
		shift := 8 * (width + plane)
		for _, x := range u {
			if x>>(8*width) != 0 {
				dst = append(dst, byte(x>>shift))
			}
		}
	}
	return dst
}

// columnShape chooses the widths that make the column smallest, width below 8 if there are patches.
func columnShape(u []uint64) (width, patchWidth, patches int) {
	var count [maxWidth + 1]int // numbers by the bytes they need
	for _, x := range u {
		count[(bits.Len64(x)+7)/8]++
	}
	widest := maxWidth
	for widest > 0 && count[widest] == 0 {
		widest--
	}
	width = widest
	best, above := len(u)*widest, 0
	for w := widest - 1; w >= 0; w-- {
		above += count[w+1]
		if cost := len(u)*w + above*(patchCost+widest-w) + 1; cost < best {
			best, width, patchWidth, patches = cost, w, widest-w, above
		}
	}
	return width, patchWidth, patches
}

// decodeColumn fills x from the column that b starts with, and returns what follows it.
func decodeColumn(b []byte, x []int64) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: a column is missing", ErrCorrupt)
	}
	width, patchWidth := int(b[0]&15), int(b[0]>>4)
	b = b[1:]
	if width+patchWidth > maxWidth {
		return nil, fmt.Errorf("%w: column of width %d+%d", ErrCorrupt, width, patchWidth)
	}
	n := len(x)
	if len(b) < n*width {
		return nil, fmt.Errorf("%w: column of %d numbers ends early", ErrCorrupt, n)
	}
	joinPlanes(b, x, width)
	b = b[n*width:]
	if patchWidth == 0 {
		return b, nil
	}
	return decodePatches(b, x, width, patchWidth)
}

// joinPlanes fills x from as many planes, each a byte of every number.
func joinPlanes(b []byte, x []int64, width int) {
	n := len(x)
	switch width {
	case 0:
		clear(x)
		return
	case 1:
		for i, low := range b[:n] {
			x[i] = int64(low)
		}
		return
	case 2:
		high := b[n : 2*n]
		for i, low := range b[:n] {
			x[i] = int64(low) | int64(high[i])<<8
		}
		return
	}
	second, third := b[n:2*n], b[2*n:3*n]
	for i, low := range b[:n] {
		x[i] = int64(low) | int64(second[i])<<8 | int64(third[i])<<16
	}
	plane := 3
	for ; plane+1 < width; plane += 2 {
		low, high, shift := b[plane*n:(plane+1)*n], b[(plane+1)*n:(plane+2)*n], uint(8*plane)&63
		for i, l := range low {
			x[i] |= (int64(l) | int64(high[i])<<8) << shift
		}
	}
	if plane < width {
		shift := uint(8*plane) & 63
		for i, l := range b[plane*n : (plane+1)*n] {
			x[i] |= int64(l) << shift
		}
	}
}

func decodePatches(b []byte, x []int64, width, patchWidth int) ([]byte, error) {
	k, b, err := takeUvarint(b, "number of patches")
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
		return nil, fmt.Errorf("%w: %d patches end early", ErrCorrupt, patches)
	}
	next := 0
	for i := range patches {
		gap, n := binary.Uvarint(b)
		b = b[n:]
		next += int(gap)
		var high int64
		for plane := range patchWidth {
			high |= int64(planes[plane*patches+i]) << (8 * plane)
		}
		x[next] |= high << (8 * width)
		next++
	}
	return planes[patches*patchWidth:], nil
}

// skipGaps returns what follows k gaps, which it makes sure to lead to k of n entries.
func skipGaps(b []byte, k, n int) ([]byte, error) {
	left := uint64(n)
	for range k {
		gap, rest, err := takeUvarint(b, "gap")
		if err != nil {
			return nil, err
		}
		if gap >= left {
			return nil, fmt.Errorf("%w: a gap leads beyond %d entries", ErrCorrupt, n)
		}
		left -= gap + 1
		b = rest
	}
	return b, nil
}

// zigzag maps numbers of small magnitude to small unsigned numbers.
func zigzag(x int64) uint64   { return uint64(x)<<1 ^ uint64(x>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func takeUvarint(b []byte, what string) (uint64, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: %s ends early", ErrCorrupt, what)
	}
	return x, b[n:], nil
}

func takeVarint(b []byte, what string) (int64, []byte, error) {
	x, n := binary.Varint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: %s ends early", ErrCorrupt, what)
	}
	return x, b[n:], nil
}
