package index

import "math/bits"

// bitmap is a set of positions.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

// fullBitmap returns the set of the positions 0 to n-1.
func fullBitmap(n int) bitmap {
	b := newBitmap(n)
	for i := range b {
		b[i] = ^uint64(0)
	}
	if rest := n % 64; rest != 0 {
		b[len(b)-1] = 1<<rest - 1
	}
	return b
}

func (b bitmap) add(positions []uint32) {
	for _, p := range positions {
		b[p/64] |= 1 << (p % 64)
	}
}

func (b bitmap) remove(position uint32) { b[position/64] &^= 1 << (position % 64) }

func (b bitmap) and(o bitmap) {
	for i := range b {
		b[i] &= o[i]
	}
}

func (b bitmap) andNot(o bitmap) {
	for i := range b {
		b[i] &^= o[i]
	}
}

func (b bitmap) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// appendTo appends the positions to dst in ascending order.
func (b bitmap) appendTo(dst []uint32) []uint32 {
	for i, w := range b {
		for w != 0 {
			dst = append(dst, uint32(i*64+bits.TrailingZeros64(w)))
			w &= w - 1
		}
	}
	return dst
}
