package page

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// errCorrupt means that bytes are not a page written by this package.
var errCorrupt = errors.New("page: corrupt")

// MaxEntries is the max number of entries of a page.
const MaxEntries = 256

// LabelsIDLen is the length of Head.Labels in bytes, unless it is empty.
const LabelsIDLen = 16

// Kind is the kind of a page's entries. The numbers are stored, so they are never reused.
type Kind uint8

const (
	// Labels means values of labels rows, as encoded by format.AppendLabels.
	Labels Kind = iota
	// Chunks means values of rows of raw chunks, as encoded by format.AppendRawChunk.
	Chunks
	// Rollups means values of rows of rollup chunks, as encoded by package rollup.
	Rollups

	kindsEnd
)

// Head describes the entries of a page, without their values.
type Head struct {
	Kind Kind
	// Labels is the version of the labels page with the series of the entries, LabelsIDLen bytes. It is empty in pages
	// of kind Labels, and only in these.
	Labels string
	// At are the positions of the entries' series in that labels page, one per entry, ascending, below MaxEntries. nil
	// means all positions from 0 to the number of entries minus 1; the Head of a parsed page with these positions
	// always has nil.
	At []byte
}

// pageVersion is the first byte of a page:
//
//	+---------+--------+---------+- - - - - - -+-----------+------------+---------+--------+
//	| version | kind   | entries | labels page | positions | columns    | columns | crc32c |
//	| 1 byte  | 1 byte | − 1,    | 16 bytes    |           | there,     |         | 4, LE  |
//	|         |        | 1 byte  |             |           | 1 bit each |         |        |
//	+---------+--------+---------+- - - - - - -+-----------+------------+---------+--------+
//	                             └ not of labels ┘
//
// The columns are, in this order: a number per entry, 0 if its value is cut, 1 if it is whole; the numbers of the kind;
// a text per entry, which is the value if it is whole; the kind's texts. Bit k of byte j belongs to column 8·j +
// k. A column that isn't stored has only zeros, or empty texts. The checksum (Castagnoli) covers all bytes before it.
// See numbers.go, texts.go and positions.go for the parts, and cuttings.go, chunk.CutChunk and rollup.CutChunk for the
// fields.
const pageVersion = 1

const checksumSize = 4

// Append appends the page of 1 to MaxEntries values. It panics if the number of values or the head violates the
// documentation of Head, which is a bug of the caller. Values may be any bytes; values that aren't of the head's kind
// take more space. The same arguments always give the same bytes. If the engine compresses multiple pages together,
// pages are smallest if the entries have the same order in all of them, such as the order of their labels.
func Append(dst []byte, h Head, values [][]byte) []byte {
	h.mustBeValid(len(values))
	l := &cuttings[h.Kind]
	e := composers.Get().(*composer)
	defer e.release()
	made := append(e.made[:0], pageVersion, byte(h.Kind), byte(len(values)-1))
	made = append(made, h.Labels...)
	made = appendPositions(made, h.At)
	e.cutValues(l, values)
	made = e.appendColumns(made, l, len(values))
	e.made = binary.LittleEndian.AppendUint32(made, crc32.Checksum(made, castagnoli))
	return append(dst, e.made...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mustBeValid panics unless the head is valid for n entries.
func (h *Head) mustBeValid(n int) {
	switch {
	case n == 0 || n > MaxEntries:
		panic(fmt.Sprintf("page: a page of %d entries", n))
	case h.Kind >= kindsEnd:
		panic(fmt.Sprintf("page: unknown kind %d", h.Kind))
	case (h.Kind == Labels) != (h.Labels == ""), h.Labels != "" && len(h.Labels) != LabelsIDLen:
		panic(fmt.Sprintf("page: kind %d with labels in a page named by %d bytes", h.Kind, len(h.Labels)))
	case h.At != nil && len(h.At) != n:
		panic(fmt.Sprintf("page: %d positions of %d entries", len(h.At), n))
	}
	for i := 1; i < len(h.At); i++ {
		if h.At[i] <= h.At[i-1] {
			panic(fmt.Sprintf("page: position %d follows %d", h.At[i], h.At[i-1]))
		}
	}
}
