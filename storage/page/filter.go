package page

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/format"
)

// A filter of a page of labels, a Bloom filter of the terms that its series have:
//
//	+---------+---------+--------+- - - - -+--------+
//	| version | entries | probes | bits    | crc32c |
//	| 1 byte  | − 1,    | 1 byte | n bytes | 4, LE  |
//	|         | 1 byte  |        |         |        |
//	+---------+---------+--------+- - - - -+--------+
//
// The terms of a series are, for each label but the metric's name, name length | name, and name length | name | value length | value,
// as they stand in its labels row. Of a term's xxhash64, the low half is a and the high half, made odd, is b. Its bits are, for i from 0 to
// probes − 1, those at (a + i·b modulo 2^32) · 8·n / 2^32; bit k of byte j is at 8·j + k. A filter without bits has all terms. The checksum
// (Castagnoli) is over all bytes before it.
const filterVersion = 1

const (
	filterHead = 3
	// termBits is how many bits a filter has for each term, and filterProbes how many of them a term sets: of a thousand terms that no
	// series has, a filter has about eight. Two bits more would have it be three, and take as many bytes to read as the pages that are opened in vain.
	termBits     = 10
	filterProbes = 7
	// maxProbes is the greatest number of probes that is read.
	maxProbes = 32
)

// AppendFilter appends the filter of a page of labels, which has 1 to MaxEntries values. It is smallest, and made fastest, where values that
// follow each other are alike. Where a value is none of a labels row, the filter has all terms.
func AppendFilter(dst []byte, values [][]byte) []byte {
	from := len(dst)
	dst = append(dst, filterVersion, byte(len(values)-1), filterProbes)
	t := termSets.Get().(*termSet)
	if t.add(values) {
		bits := len(dst)
		dst = append(dst, make([]byte, (t.n*termBits+7)/8)...)
		t.mark(dst[bits:])
	}
	t.release()
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// AppendOpenFilter appends a filter without bits, which any term passes, of a page of labels with 1 to MaxEntries values.
func AppendOpenFilter(dst []byte, values int) []byte {
	from := len(dst)
	dst = append(dst, filterVersion, byte(values-1), filterProbes)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// termSet are the hashes of different terms.
type termSet struct {
	slots  []uint64 // hash table of a power of two; 0: free
	n      int
	before [maxLabels][]byte // the pairs of the value before
}

var termSets = sync.Pool{New: func() any { return &termSet{slots: make([]uint64, 1<<11)} }}

// release forgets the terms, and returns the set to the pool.
func (t *termSet) release() {
	clear(t.slots)
	clear(t.before[:])
	t.n = 0
	termSets.Put(t)
}

// add adds the terms of values of labels rows. It returns false if one can't be read.
func (t *termSet) add(values [][]byte) bool {
	for _, v := range values {
		if len(v) == 0 || v[0] != format.LabelsVersion {
			return false
		}
		rest := v[1:]
		for k := 0; len(rest) > 0; k++ {
			name, pair, after, err := cutPair(rest)
			if err != nil {
				return false
			}
			rest = after
			var before []byte // what the value before has there
			if k < maxLabels {
				before, t.before[k] = t.before[k], pair
			}
			if bytes.Equal(pair, before) {
				continue
			}
			if !bytes.HasPrefix(before, name) {
				t.insert(xxhash.Sum64(name))
			}
			t.insert(xxhash.Sum64(pair))
		}
	}
	return true
}

// cutPair returns the name of the first label of b, and the label, both as they stand there; value is at the label's end.
func cutPair(b []byte) (name, pair, rest []byte, err error) {
	_, after, err := format.CutString(b)
	if err != nil {
		return nil, nil, nil, err
	}
	_, rest, err = format.CutString(after)
	if err != nil {
		return nil, nil, nil, err
	}
	return b[:len(b)-len(after)], b[:len(b)-len(rest)], rest, nil
}

// insert adds a term, by its hash.
func (t *termSet) insert(hash uint64) {
	hash = notZero(hash)
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots, t.n = make([]uint64, 2*len(old)), 0
		for _, h := range old {
			if h != 0 {
				t.insert(h)
			}
		}
	}
	mask := uint64(len(t.slots) - 1)
	at := hash & mask
	for t.slots[at] != 0 {
		if t.slots[at] == hash {
			return
		}
		at = (at + 1) & mask
	}
	t.slots[at] = hash
	t.n++
}

// notZero stands for a hash where 0 has another meaning.
func notZero(hash uint64) uint64 { return max(hash, 1) }

// mark sets the bits of all terms.
func (t *termSet) mark(bits []byte) {
	for _, h := range t.slots {
		if h != 0 {
			for i := range uint32(filterProbes) {
				at := probe(h, i, len(bits))
				bits[at/8] |= 1 << (at % 8)
			}
		}
	}
}

// probe returns the i-th bit of a term in a filter of n bytes.
func probe(hash uint64, i uint32, n int) uint64 {
	a, b := uint32(hash), uint32(hash>>32)|1
	return uint64(a+i*b) * uint64(8*n) >> 32
}

// Filter is the filter of a page of labels. It refers to the bytes that it was parsed from.
type Filter struct {
	// Entries is how many series the page has.
	Entries int

	probes uint32
	bits   []byte
}

// ParseFilter reads what AppendFilter has appended. It returns ErrCorrupt for anything else.
func ParseFilter(b []byte) (Filter, error) {
	if len(b) < filterHead+checksumSize {
		return Filter{}, fmt.Errorf("%w: %d bytes are not a filter", ErrCorrupt, len(b))
	}
	body, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	switch {
	case crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum):
		return Filter{}, fmt.Errorf("%w: the checksum of the filter doesn't match", ErrCorrupt)
	case body[0] != filterVersion:
		return Filter{}, fmt.Errorf("%w: unknown version %d of a filter", ErrCorrupt, body[0])
	case body[2] == 0 || body[2] > maxProbes:
		return Filter{}, fmt.Errorf("%w: a filter of %d probes", ErrCorrupt, body[2])
	}
	return Filter{Entries: int(body[1]) + 1, probes: uint32(body[2]), bits: body[filterHead:]}, nil
}

// has reports whether the page may have a term with this hash; false: it has none.
func (f *Filter) has(hash uint64) bool {
	if len(f.bits) == 0 {
		return true
	}
	for i := range f.probes {
		at := probe(hash, i, len(f.bits))
		if f.bits[at/8]>>(at%8)&1 == 0 {
			return false
		}
	}
	return true
}

// Check returns nil if the filter is one of a page of labels, and ErrCorrupt if it lacks a term of the page's, so that series would be missed.
func (f *Filter) Check(p *Page) error {
	if p.head.Kind != Labels || p.n != f.Entries {
		return fmt.Errorf("%w: the filter is for %d series, but the page has %s of %d", ErrCorrupt, f.Entries, p.head.Kind, p.n)
	}
	var value []byte
	for i := range p.n {
		var err error
		if value, err = p.AppendValue(value[:0], i); err != nil {
			return err
		}
		t := termSets.Get().(*termSet)
		readable := t.add([][]byte{value})
		missing := t.missing(f)
		t.release()
		switch {
		case missing:
			return fmt.Errorf("%w: the filter is missing labels of entry %d", ErrCorrupt, i)
		case !readable && len(f.bits) > 0:
			return fmt.Errorf("%w: the filter has bits, but entry %d is unreadable", ErrCorrupt, i)
		}
	}
	return nil
}

// missing reports whether a filter lacks any of the terms.
func (t *termSet) missing(f *Filter) bool {
	for _, h := range t.slots {
		if h != 0 && !f.has(h) {
			return true
		}
	}
	return false
}
