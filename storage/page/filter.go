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

// filterVersion is the first byte of a filter of a page of labels. The filter is a Bloom filter of the terms of the
// page's series:
//
//	+---------+---------+--------+- - - - -+--------+
//	| version | entries | probes | bits    | crc32c |
//	| 1 byte  | − 1,    | 1 byte | n bytes | 4, LE  |
//	|         | 1 byte  |        |         |        |
//	+---------+---------+--------+- - - - -+--------+
//
// The terms of a series are, for each label except the metric's name, name length | name, and name length | name |
// value length | value, as in its labels row. If a is the low half of a term's xxhash64, and b the high half with its
// lowest bit set, the bits of the term are (a + i·b modulo 2^32) · 8·n / 2^32, for i from 0 to probes − 1; bit k of
// byte j is bit 8·j + k. A filter without bits has all terms. The checksum (Castagnoli) covers all bytes before it.
const filterVersion = 1

const (
	filterHead = 3
	// termBits is the number of bits per term, and filterProbes the number of bits that a term sets. About eight in a
	// thousand missing terms are false positives. With two more bits per term, about three in a thousand would be false
	// positives, but the additional bits would cost as many bytes to read as the pages that are opened unnecessarily.
	termBits     = 10
	filterProbes = 7
	// maxProbes is the max number of probes in a filter that ParseFilter accepts.
	maxProbes = 32
)

// AppendFilter appends the filter of a page of labels, which has 1 to MaxEntries values. The filter is smallest, and
// computed fastest, if consecutive values are similar. If a value isn't a labels row, the filter has all terms.
func AppendFilter(dst []byte, values [][]byte) []byte {
	from := len(dst)
	dst = append(dst, filterVersion, byte(len(values)-1), filterProbes)
	t := termSets.Get().(*termSet)
	if t.add(values) {
		bits := len(dst)
		dst = append(dst, make([]byte, (t.n*termBits+7)/8)...)
		t.setBits(dst[bits:])
	}
	t.release()
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// AppendOpenFilter appends a filter without bits, which has all terms, for a page of labels with 1 to MaxEntries
// values.
func AppendOpenFilter(dst []byte, values int) []byte {
	from := len(dst)
	dst = append(dst, filterVersion, byte(values-1), filterProbes)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// termSet has the hashes of distinct terms.
type termSet struct {
	slots  []uint64 // hash table whose size is a power of two; 0: free
	n      int
	before [maxLabels][]byte // the labels of the previous value
}

var termSets = sync.Pool{New: func() any { return &termSet{slots: make([]uint64, 1<<11)} }}

// release removes the terms, and returns the set to the pool.
func (t *termSet) release() {
	clear(t.slots)
	clear(t.before[:])
	t.n = 0
	termSets.Put(t)
}

// add adds the terms of labels rows. It returns false if a row can't be read.
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
			var before []byte // the label of the previous value at the same index
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

// cutPair returns the encoded name of the first label of b, the encoded label, and the bytes after it.
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

// notZero replaces the hash 0, which marks a free slot, by 1.
func notZero(hash uint64) uint64 { return max(hash, 1) }

// setBits sets the bits of all terms.
func (t *termSet) setBits(bits []byte) {
	for _, h := range t.slots {
		if h != 0 {
			for i := range uint32(filterProbes) {
				at := probeBit(h, i, len(bits))
				bits[at/8] |= 1 << (at % 8)
			}
		}
	}
}

// probeBit returns the i-th bit of a term in a filter of n bytes.
func probeBit(hash uint64, i uint32, n int) uint64 {
	a, b := uint32(hash), uint32(hash>>32)|1
	return uint64(a+i*b) * uint64(8*n) >> 32
}

// Filter is a parsed filter of a page of labels. It refers to the parsed bytes.
type Filter struct {
	// Entries is the number of series in the page.
	Entries int

	probes uint32
	bits   []byte
}

// ParseFilter parses a filter written by AppendFilter. It returns errCorrupt for invalid bytes.
func ParseFilter(b []byte) (Filter, error) {
	if len(b) < filterHead+checksumSize {
		return Filter{}, fmt.Errorf("%w: %d bytes are not a filter", errCorrupt, len(b))
	}
	body, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	switch {
	case crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum):
		return Filter{}, fmt.Errorf("%w: the checksum of the filter doesn't match", errCorrupt)
	case body[0] != filterVersion:
		return Filter{}, fmt.Errorf("%w: unknown version %d of a filter", errCorrupt, body[0])
	case body[2] == 0 || body[2] > maxProbes:
		return Filter{}, fmt.Errorf("%w: the filter has an invalid number of probes, %d", errCorrupt, body[2])
	}
	return Filter{Entries: int(body[1]) + 1, probes: uint32(body[2]), bits: body[filterHead:]}, nil
}

// has reports whether the page may have a term with this hash. A result of false is certain.
func (f *Filter) has(hash uint64) bool {
	if len(f.bits) == 0 {
		return true
	}
	for i := range f.probes {
		at := probeBit(hash, i, len(f.bits))
		if f.bits[at/8]>>(at%8)&1 == 0 {
			return false
		}
	}
	return true
}

// Check returns nil if the filter has all terms of the page of labels. Otherwise it returns errCorrupt, because queries
// would miss series.
func (f *Filter) Check(p *Page) error {
	if p.head.Kind != Labels || p.n != f.Entries {
		return fmt.Errorf("%w: the filter is for %d series, but the page has %s of %d", errCorrupt,
			f.Entries, p.head.Kind, p.n)
	}
	var value []byte
	for i := range p.n {
		var err error
		if value, err = p.AppendValue(value[:0], i); err != nil {
			return err
		}
		t := termSets.Get().(*termSet)
		readable := t.add([][]byte{value})
		missing := t.isMissingFrom(f)
		t.release()
		switch {
		case missing:
			return fmt.Errorf("%w: the filter doesn't match the labels of entry %d", errCorrupt, i)
		case !readable && len(f.bits) > 0:
			return fmt.Errorf("%w: the filter must match everything, because entry %d is unreadable", errCorrupt, i)
		}
	}
	return nil
}

// isMissingFrom reports whether any of the terms is missing in a filter.
func (t *termSet) isMissingFrom(f *Filter) bool {
	for _, h := range t.slots {
		if h != 0 && !f.has(h) {
			return true
		}
	}
	return false
}
