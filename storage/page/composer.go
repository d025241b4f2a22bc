package page

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/chunk"
)

// composer has the memory for building a page.
type composer struct {
	// numbers and texts are the fields of all entries, by column.
	numbers []uint64
	texts   [][]byte
	fields  chunk.Fields // of one entry
	joined  []byte
	made    []byte // the page, built here so that the destination grows only once

	slots         [slotCount]uint16 // hash table: 1 + index in a dictionary
	references    [MaxEntries]uint64
	dictionary    [MaxEntries]uint64
	distinct      [MaxEntries][]byte
	lengths, more [MaxEntries]uint64
	alphabet      []byte
}

const (
	slotBits  = 9
	slotCount = 1 << slotBits // at least twice MaxEntries
)

var composers = sync.Pool{New: func() any { return new(composer) }}

// release removes the values, and returns the composer to the pool.
func (e *composer) release() {
	clear(e.texts)
	clear(e.fields.Texts)
	clear(e.distinct[:])
	e.fields.Memory = e.fields.Memory[:0]
	composers.Put(e)
}

// cutValues cuts values into fields.
func (e *composer) cutValues(l *cutting, values [][]byte) {
	n := len(values)
	e.numbers = zeroedSlice(e.numbers, (1+l.numbers)*n)
	e.texts = zeroedSlice(e.texts, (1+l.texts)*n)
	f := &e.fields
	f.Numbers, f.Texts = zeroedSlice(f.Numbers, l.numbers), zeroedSlice(f.Texts, l.texts)
	for i, v := range values {
		clear(f.Numbers)
		clear(f.Texts)
		ok := l.cut(v, f)
		if ok {
			for k, x := range f.Numbers {
				e.numbers[(1+k)*n+i] = x
			}
			for k, x := range f.Texts {
				e.texts[(1+k)*n+i] = x
			}
			e.joined = l.join(e.joined[:0], f)
		}
		if !ok || !bytes.Equal(e.joined, v) {
			e.storeUncut(l, n, i, v)
		}
	}
}

// storeUncut stores value i of n in the column of uncut values.
func (e *composer) storeUncut(l *cutting, n, i int, v []byte) {
	for k := range l.numbers {
		e.numbers[(1+k)*n+i] = 0
	}
	for k := range l.texts {
		e.texts[(1+k)*n+i] = nil
	}
	e.numbers[i], e.texts[i] = 1, v
}

// zeroedSlice returns n zero values in the memory of s.
func zeroedSlice[E any](s []E, n int) []E {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// appendColumns appends the columns of n entries.
func (e *composer) appendColumns(dst []byte, l *cutting, n int) []byte {
	there := len(dst)
	for range presentColumns(l) {
		dst = append(dst, 0)
	}
	mark := func(k int) { dst[there+k/8] |= 1 << (k % 8) }
	for k := range 1 + l.numbers {
		if x := e.numbers[k*n:][:n]; !isAllZero(x) {
			mark(k)
			dst = e.appendNumbers(dst, x)
		}
	}
	for k := range 1 + l.texts {
		if x := e.texts[k*n:][:n]; !isAllEmpty(x) {
			mark(1 + l.numbers + k)
			dst = e.appendTexts(dst, x, e.sizes(l, k, n))
		}
	}
	return dst
}

// presentColumns returns the number of bytes that have one bit per column of a kind.
func presentColumns(l *cutting) int { return (2 + l.numbers + l.texts + 7) / 8 }

func isAllZero(x []uint64) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

func isAllEmpty(x [][]byte) bool {
	for _, v := range x {
		if len(v) != 0 {
			return false
		}
	}
	return true
}

// sizes returns the usual sizes of a column of texts (see cutting), or nil if it has none.
func (e *composer) sizes(l *cutting, k, n int) []uint64 {
	if k == 0 {
		return nil
	}
	head, count, ok := l.sizedBy(k - 1)
	if !ok {
		return nil
	}
	heads, counts := e.numbers[(1+head)*n:][:n], e.numbers[(1+count)*n:][:n]
	for i := range n {
		e.more[i] = uint64(l.size(k-1, heads[i], counts[i]))
	}
	return e.more[:n]
}

// appendTexts appends the column of x, which has 1 to MaxEntries texts.
func (e *composer) appendTexts(dst []byte, x [][]byte, sizes []uint64) []byte {
	d := e.distinctTexts(x)
	if d == 1 {
		dst = binary.AppendUvarint(append(dst, textsEqual), uint64(len(x[0])))
		return append(dst, x[0]...)
	}
	from := len(dst)
	if sizes != nil {
		dst = e.appendSized(dst, x, sizes)
	} else {
		dst = e.appendPieces(dst, x)
	}
	if d == 0 {
		return dst
	}
	middle := len(dst)
	dst = append(dst, textsDictionary, byte(d-1))
	dst = e.appendPieces(dst, e.distinct[:d])
	dst = appendBits(dst, e.references[:len(x)])
	if len(dst)-middle < middle-from {
		return append(dst[:from], dst[middle:]...)
	}
	return dst[:middle]
}

// distinctTexts sets distinct and the references of x, and returns the number of distinct texts, or 0 if there are too
// many for a dictionary.
func (e *composer) distinctTexts(x [][]byte) (d int) {
	clear(e.slots[:])
	for i, v := range x {
		slot := xxhash.Sum64(v) % slotCount
		for e.slots[slot] != 0 && !bytes.Equal(e.distinct[e.slots[slot]-1], v) {
			slot = (slot + 1) % slotCount
		}
		if e.slots[slot] == 0 {
			if d > len(x)*3/4 {
				return 0
			}
			e.distinct[d] = v
			d++
			e.slots[slot] = uint16(d)
		}
		e.references[i] = uint64(e.slots[slot] - 1)
	}
	return d
}

// appendSized appends a column of form sized.
func (e *composer) appendSized(dst []byte, x [][]byte, sizes []uint64) []byte {
	for i, v := range x {
		e.lengths[i] = chunk.Zigzag(int64(len(v)) - int64(sizes[i]))
	}
	at := len(dst)
	dst = appendBits(append(dst, textsSized), e.lengths[:len(x)])
	from := len(dst)
	for _, v := range x {
		dst = append(dst, v...)
	}
	dst, packed := e.packBytes(dst, from)
	if packed {
		dst[at] |= textsPacked
	}
	return dst
}

// appendPieces appends a column of form pieces, planes or shared.
func (e *composer) appendPieces(dst []byte, x [][]byte) []byte {
	prefix, suffix := affixes(x)
	at := len(dst)
	dst = append(dst, textsPieces)
	dst = binary.AppendUvarint(dst, uint64(prefix))
	dst = binary.AppendUvarint(dst, uint64(suffix))
	dst = append(dst, x[0][:prefix]...)
	dst = append(dst, x[0][len(x[0])-suffix:]...)
	equal, shares := e.measurePieces(x, prefix, suffix)
	lengths := len(dst)
	if shares > len(x) {
		dst[at] = textsShared
		for i := range x {
			e.lengths[i] -= e.more[i]
		}
		dst = appendBits(dst, e.more[:len(x)])
	} else {
		clear(e.more[:len(x)])
	}
	dst = appendBits(dst, e.lengths[:len(x)])
	from := len(dst)
	for i, v := range x {
		dst = append(dst, v[prefix+int(e.more[i]):len(v)-suffix]...)
	}
	dst, packed := e.packBytes(dst, from)
	if packed {
		dst[at] |= textsPacked
	}
	if packed || !equal || dst[at] == textsShared || e.lengths[0] > planesMax {
		return dst
	}
	dst[at] = textsPlanes
	dst = binary.AppendUvarint(dst[:lengths], e.lengths[0])
	for k := prefix; k < len(x[0])-suffix; k++ {
		for _, v := range x {
			dst = append(dst, v[k])
		}
	}
	return dst
}

// measurePieces sets lengths to the lengths of the pieces of x, and more to the number of bytes that each piece shares
// with the previous one. It returns whether all lengths are equal, and the total number of shared bytes.
func (e *composer) measurePieces(x [][]byte, prefix, suffix int) (equal bool, shares int) {
	equal = true
	var before []byte
	for i, v := range x {
		piece := v[prefix : len(v)-suffix]
		e.lengths[i], e.more[i] = uint64(len(piece)), 0
		equal = equal && len(v) == len(x[0])
		if i%restartEvery != 0 {
			e.more[i] = uint64(sharedLength(piece, before))
			shares += int(e.more[i])
		}
		before = piece
	}
	return equal, shares
}

// planesMax is the max length of pieces of form planes.
const planesMax = 32

// affixes returns the length of the common prefix of all of x, and of the common suffix after that.
func affixes(x [][]byte) (prefix, suffix int) {
	first := x[0]
	prefix = len(first)
	for _, v := range x[1:] {
		prefix = sharedLength(v, first[:prefix])
	}
	suffix = len(first) - prefix
	for _, v := range x[1:] {
		k := 0
		for k < min(suffix, len(v)-prefix) && v[len(v)-1-k] == first[len(first)-1-k] {
			k++
		}
		suffix = k
	}
	return prefix, suffix
}

func sharedLength(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
