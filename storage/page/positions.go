package page

import (
	"fmt"
	"math/bits"
)

// Positions of n entries in a labels page:
//
//	0  all     nothing: they are 0 to n − 1
//	1  list    n bytes
//	2  bitmap  its length − 1, 1 byte | bit k of byte j: position 8·j + k is present
//
// The first byte is the form.
const (
	positionsAll    = 0
	positionsList   = 1
	positionsBitmap = 2
)

// appendPositions appends positions in the shortest form.
func appendPositions(dst, at []byte) []byte {
	if n := len(at); n == 0 || int(at[n-1]) == n-1 {
		return append(dst, positionsAll)
	}
	size := int(at[len(at)-1])/8 + 1
	if len(at) <= 1+size {
		return append(append(dst, positionsList), at...)
	}
	dst = append(dst, positionsBitmap, byte(size-1))
	bitmap := len(dst)
	for range size {
		dst = append(dst, 0)
	}
	for _, p := range at {
		dst[bitmap+int(p)/8] |= 1 << (p % 8)
	}
	return dst
}

// readPositions reads the positions of n entries. at is nil if they are 0 to n − 1.
func (r *scanner) readPositions(n int) (at []byte, err error) {
	switch form := r.readByte(); form {
	case positionsAll:
		return nil, nil
	case positionsList:
		at = r.readBytes(n)
		for i := 1; i < len(at); i++ {
			if at[i] <= at[i-1] {
				return nil, fmt.Errorf("%w: positions are not in order: %d follows %d", errCorrupt, at[i], at[i-1])
			}
		}
	case positionsBitmap:
		bitmap := r.readBytes(int(r.readByte()) + 1)
		at = make([]byte, 0, n)
		for j, b := range bitmap {
			for ; b != 0 && len(at) < n+1 && j < MaxEntries/8; b &= b - 1 {
				at = append(at, byte(8*j+bits.TrailingZeros8(b)))
			}
		}
	default:
		return nil, fmt.Errorf("%w: positions of unknown form %d", errCorrupt, form)
	}
	if len(at) != n {
		return nil, fmt.Errorf("%w: %d positions for %d entries", errCorrupt, len(at), n)
	}
	return at, nil
}
