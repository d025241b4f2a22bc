package chunk

import (
	"encoding/binary"
	"fmt"
	"math/bits"
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
		for _, x := range u {
			dst = append(dst, byte(x>>shift))
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

// decodeColumn fills u from the column that b starts with, and returns what follows it.
func decodeColumn(b []byte, u []uint64) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: a column is missing", ErrCorrupt)
	}
	width, patchWidth := int(b[0]&15), int(b[0]>>4)
	b = b[1:]
	if width+patchWidth > maxWidth {
		return nil, fmt.Errorf("%w: column of width %d+%d", ErrCorrupt, width, patchWidth)
	}
	n := len(u)
	if len(b) < n*width {
		return nil, fmt.Errorf("%w: column of %d numbers ends early", ErrCorrupt, n)
	}
	switch width {
	case 0:
		clear(u)
	case 1:
		for i, x := range b[:n] {
			u[i] = uint64(x)
		}
	default:
		low, high := b[:n], b[n:2*n]
		for i := range u {
			u[i] = uint64(low[i]) | uint64(high[i])<<8
		}
		for plane := 2; plane < width; plane++ {
			shift := 8 * plane
			for i, x := range b[plane*n : (plane+1)*n] {
				u[i] |= uint64(x) << shift
			}
		}
	}
	b = b[n*width:]
	if patchWidth == 0 {
		return b, nil
	}
	return decodePatches(b, u, width, patchWidth)
}

func decodePatches(b []byte, u []uint64, width, patchWidth int) ([]byte, error) {
	k, b, err := takeUvarint(b, "number of patches")
	if err != nil {
		return nil, err
	}
	if k >= uint64(len(u)) {
		return nil, fmt.Errorf("%w: more patches than numbers", ErrCorrupt)
	}
	patches := int(k) + 1
	var position [blockSamples]uint16
	next := 0
	for i := range patches {
		var gap uint64
		if gap, b, err = takeUvarint(b, "patch"); err != nil {
			return nil, err
		}
		if gap >= uint64(len(u)-next) {
			return nil, fmt.Errorf("%w: patch outside of its column", ErrCorrupt)
		}
		next += int(gap)
		position[i] = uint16(next)
		next++
	}
	if len(b) < patches*patchWidth {
		return nil, fmt.Errorf("%w: %d patches end early", ErrCorrupt, patches)
	}
	for plane := range patchWidth {
		shift := 8 * (width + plane)
		for i, p := range position[:patches] {
			u[p] |= uint64(b[i]) << shift
		}
		b = b[patches:]
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
