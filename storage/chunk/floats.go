package chunk

import (
	"fmt"
	"slices"
)

// blockSamples is the max number of floats in a block.
const blockSamples = 1024

// minBlockSize is the min size of a block in bytes. It bounds the memory that is allocated for the samples of truncated
// data.
const minBlockSize = 5

// Floats are stored in blocks of at most blockSamples: n floats in k = ⌈n/blockSamples⌉ blocks. Block i holds the
// samples from ⌊i·n/k⌋ up to, but not including, ⌊(i+1)·n/k⌋. A block:
//
//	+------------------+ - - - - - - - - - - - - - - - - -+-----------+
//	| timestamps       | start timestamps                 | values    |
//	| run of integers  | 1 byte, and a run of integers    |           |
//	+------------------+ - - - - - - - - - - - - - - - - -+-----------+
//	                     └─ only with containsStarts ─────┘
//
// Timestamps are relative to the chunk's first. The byte before the start timestamps selects their base:
//
//	0  all are 0, and no run follows
//	1  relative to the chunk's first timestamp
//	2  relative to the previous sample's timestamp; in the first sample of a block, to its own
const (
	startsZero     = 0
	startsFirst    = 1
	startsPrevious = 2
)

func blockCount(n int) int { return (n + blockSamples - 1) / blockSamples }

// appendFloats appends the blocks of the floats of s. There must be at least one float.
func appendFloats(dst []byte, s *Samples, minT int64) []byte {
	n := len(s.T)
	k := blockCount(n)
	for i := range k {
		from, to := i*n/k, (i+1)*n/k
		dst = appendTimes(dst, s.T[from:to], minT)
		if len(s.ST) > 0 {
			dst = appendStarts(dst, s.ST[from:to], s.T[from:to], minT)
		}
		dst = appendValues(dst, s.V[from:to])
	}
	return dst
}

func appendTimes(dst []byte, t []int64, minT int64) []byte {
	var scratch [blockSamples]int64
	x := scratch[:len(t)]
	for i, t := range t {
		x[i] = t - minT
	}
	return appendInts(dst, x)
}

func appendStarts(dst []byte, st, t []int64, minT int64) []byte {
	var scratch [blockSamples]int64
	x := scratch[:len(st)]
	zero, following := true, 0
	for i, start := range st {
		zero = zero && start == 0
		if i > 0 && start == t[i-1] {
			following++
		}
		x[i] = start - minT
	}
	switch {
	case zero:
		return append(dst, startsZero)
	case following <= len(st)/2:
		return appendInts(append(dst, startsFirst), x)
	}
	for i, start := range st {
		x[i] = start - t[max(i-1, 0)]
	}
	return appendInts(append(dst, startsPrevious), x)
}

// decodeFloats appends n floats to into and returns the rest of b.
func decodeFloats(b []byte, n int, info *Info, into *Samples) ([]byte, error) {
	k := blockCount(n)
	if len(b) < k*minBlockSize {
		return nil, fmt.Errorf("%w: %d bytes are too few for %d floats", ErrCorrupt, len(b), n)
	}
	first := len(into.T)
	into.T = slices.Grow(into.T, n)[:first+n]
	into.V = slices.Grow(into.V, n)[:first+n]
	withStarts := info.contains&containsStarts != 0
	if withStarts && len(into.ST) == 0 {
		into.ST = appendZeros(into.ST, first)
	}
	if withStarts || len(into.ST) > 0 {
		into.ST = appendZeros(into.ST, n)
	}
	var err error
	for i := range k {
		from, to := first+i*n/k, first+(i+1)*n/k
		t := into.T[from:to]
		if b, err = decodeTimes(b, t, info.MinT); err != nil {
			return nil, fmt.Errorf("timestamps of block %d: %w", i, err)
		}
		if from > first && t[0] <= into.T[from-1] {
			return nil, fmt.Errorf("%w: block %d is out of order", ErrCorrupt, i)
		}
		if withStarts {
			if b, err = decodeStarts(b, into.ST[from:to], t, info.MinT); err != nil {
				return nil, fmt.Errorf("start timestamps of block %d: %w", i, err)
			}
		}
		if b, err = decodeValues(b, into.V[from:to]); err != nil {
			return nil, fmt.Errorf("values of block %d: %w", i, err)
		}
	}
	return b, nil
}

// decodeTimes decodes timestamps into t and verifies that they ascend.
func decodeTimes(b []byte, t []int64, minT int64) ([]byte, error) {
	rest, err := decodeInts(b, t, minT)
	if err != nil {
		return nil, err
	}
	last := len(t) - 1
	if b[0] == intsRegular && last > 0 {
		// Equal steps ascend if they lead from the first timestamp to a larger last one without overflowing int64.
		step := uint64(t[1] - t[0])
		if t[0] < t[last] && t[0] < t[1] && step <= (uint64(t[last])-uint64(t[0]))/uint64(last) {
			return rest, nil
		}
	}
	if !isStrictlyAscending(t) {
		return nil, fmt.Errorf("%w: timestamps are not in order", ErrCorrupt)
	}
	return rest, nil
}

func decodeStarts(b []byte, st, t []int64, minT int64) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: missing", ErrCorrupt)
	}
	relative, b := b[0], b[1:]
	switch relative {
	case startsZero:
		clear(st)
		return b, nil
	case startsFirst:
		return decodeInts(b, st, minT)
	case startsPrevious:
	default:
		return nil, fmt.Errorf("%w: unknown encoding %d", ErrCorrupt, relative)
	}
	b, err := decodeInts(b, st, 0)
	before := t[0]
	for i := range st {
		st[i] += before
		before = t[i]
	}
	return b, err
}
