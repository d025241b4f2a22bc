package page

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"unsafe"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Page is a parsed page. It may be used concurrently. It refers to the parsed bytes.
type Page struct {
	head    Head
	n       int
	numbers []numbersAt
	texts   []textsAt
	bytes   int // size of the parsed bytes
	memory  int // size of unpacked columns in bytes
}

// numbersAt and textsAt are stored columns. place is the index of the number or text among the kind's fields, plus 1.
// Place 0 of the numbers is the column that marks uncut values, place 0 of the texts the column that contains them.
type numbersAt struct {
	numbers

	place int
}

type textsAt struct {
	texts

	place int
}

// Parse parses a page. It keeps b, which must not be modified afterwards. It returns errCorrupt for invalid bytes.
func Parse(b []byte) (*Page, error) {
	if len(b) < 4+checksumSize {
		return nil, fmt.Errorf("%w: %d bytes are not a page", errCorrupt, len(b))
	}
	body, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return nil, fmt.Errorf("%w: the checksum doesn't match", errCorrupt)
	}
	if body[0] != pageVersion {
		return nil, fmt.Errorf("%w: unknown version %d", errCorrupt, body[0])
	}
	p := &Page{head: Head{Kind: Kind(body[1])}, n: int(body[2]) + 1, bytes: len(b)}
	if p.head.Kind >= kindsEnd {
		return nil, fmt.Errorf("%w: unknown kind %d", errCorrupt, p.head.Kind)
	}
	r := &scanner{b: body[3:]}
	if p.head.Kind != Labels {
		p.head.Labels = string(r.readBytes(LabelsIDLen))
	}
	var err error
	if p.head.At, err = r.readPositions(p.n); err != nil {
		return nil, err
	}
	if err := p.parseColumns(r, &cuttings[p.head.Kind]); err != nil {
		return nil, err
	}
	if r.short || len(r.b) > 0 {
		return nil, fmt.Errorf("%w: the page is truncated, or has %d extra bytes", errCorrupt, len(r.b))
	}
	p.memory = r.memory
	return p, nil
}

// LabelsOf returns Head.Labels of a page, as a subslice of b. ok is false for pages of kind Labels, and for bytes that
// aren't a page: Parse returns their error. LabelsOf doesn't verify the checksum.
func LabelsOf(b []byte) (labels []byte, ok bool) {
	const from = 3
	if len(b) < from+LabelsIDLen || b[0] != pageVersion || Kind(b[1]) == Labels || Kind(b[1]) >= kindsEnd {
		return nil, false
	}
	return b[from : from+LabelsIDLen], true
}

// parseColumns parses the columns.
func (p *Page) parseColumns(r *scanner, l *cutting) error {
	there := r.readBytes(presentColumns(l))
	if there == nil {
		return fmt.Errorf("%w: its columns are truncated", errCorrupt)
	}
	has := func(k int) bool { return there[k/8]>>(k%8)&1 != 0 }
	for k := range 1 + l.numbers {
		if !has(k) {
			continue
		}
		column, err := r.readNumbers(p.n)
		if err != nil {
			return fmt.Errorf("number %d: %w", k, err)
		}
		p.numbers = append(p.numbers, numbersAt{numbers: column, place: k})
	}
	for k := range 1 + l.texts {
		if !has(1 + l.numbers + k) {
			continue
		}
		column, err := r.readTexts(p.n, p.sizes(l, k))
		if err != nil {
			return fmt.Errorf("text %d: %w", k, err)
		}
		p.texts = append(p.texts, textsAt{texts: column, place: k})
	}
	return nil
}

// sizes returns the usual sizes of a column of texts (see cutting), or nil if it has none.
func (p *Page) sizes(l *cutting, k int) func(i int) int {
	if k == 0 {
		return nil
	}
	head, count, ok := l.sizedBy(k - 1)
	if !ok {
		return nil
	}
	heads, counts := p.column(1+head), p.column(1+count)
	return func(i int) int { return l.size(k-1, heads.at(i), counts.at(i)) }
}

// column returns a column of numbers. If the column isn't stored, its numbers are zero.
func (p *Page) column(place int) *numbers {
	for i := range p.numbers {
		if p.numbers[i].place == place {
			return &p.numbers[i].numbers
		}
	}
	return &numbers{}
}

// Head returns the head of the page. Its positions must not be modified.
func (p *Page) Head() Head { return p.head }

// Len returns the number of entries.
func (p *Page) Len() int { return p.n }

// MemoryBytes returns the approximate memory of the page in bytes, including the parsed bytes.
func (p *Page) MemoryBytes() int {
	columns := cap(p.numbers)*int(unsafe.Sizeof(numbersAt{})) + cap(p.texts)*int(unsafe.Sizeof(textsAt{}))
	for i := range p.texts {
		columns += 4 * len(p.texts[i].ends)
	}
	return p.bytes + p.memory + columns
}

// joiner has the memory for joining the fields of a value.
type joiner struct {
	numbers []uint64
	texts   [][]byte // all nil before and after use, up to the capacity
	fields  chunk.Fields
}

var joiners = sync.Pool{New: func() any { return new(joiner) }}

// Part selects fields of values of kind Rollups. A nil Part selects all fields.
type Part struct {
	numbers [1 + rollup.FieldNumbers]bool
	texts   [1 + rollup.FieldTexts]bool
}

// PartOf returns the fields that rollup.Decode reads with want.
func PartOf(want rollup.Columns) *Part {
	p := &Part{}
	numbers, texts := rollup.FieldsOf(want)
	p.numbers[0], p.texts[0] = true, true // marks of whole values, and the values
	copy(p.numbers[1:], numbers[:])
	copy(p.texts[1:], texts[:])
	return p
}

// AppendValue appends the value of entry i, 0 ≤ i < Len, byte for byte as it was passed to Append. If the entry can't
// be read, it returns errCorrupt and dst unchanged.
func (p *Page) AppendValue(dst []byte, i int) ([]byte, error) { return p.AppendPart(dst, i, nil) }

// AppendPart is like AppendValue for callers that need only some fields: the other fields may be missing in the value.
// For pages of kinds other than Rollups it appends the complete value.
func (p *Page) AppendPart(dst []byte, i int, part *Part) ([]byte, error) {
	if p.head.Kind != Rollups {
		part = nil
	}
	l := &cuttings[p.head.Kind]
	d := joiners.Get().(*joiner)
	defer d.release(p)
	d.numbers = zeroedSlice(d.numbers, 1+l.numbers)
	d.texts = slices.Grow(d.texts, 1+l.texts)[:1+l.texts]
	for k := range p.numbers {
		if c := &p.numbers[k]; part == nil || part.numbers[c.place] {
			d.numbers[c.place] = c.at(i)
		}
	}
	memory := d.fields.Memory[:0]
	for k := range p.texts {
		if c := &p.texts[k]; part == nil || part.texts[c.place] {
			d.texts[c.place], memory = c.at(i, memory)
		}
	}
	d.fields = chunk.Fields{Numbers: d.numbers[1:], Texts: d.texts[1:], Memory: memory}
	switch d.numbers[0] {
	case 0:
		return l.join(dst, &d.fields), nil
	case 1:
		return append(dst, d.texts[0]...), nil
	default:
		return dst, fmt.Errorf("%w: entry %d has the unknown encoding %d", errCorrupt, i, d.numbers[0])
	}
}

// release removes the references to the page's bytes, and returns the joiner to the pool.
func (d *joiner) release(p *Page) {
	for k := range p.texts {
		d.texts[p.texts[k].place] = nil
	}
	d.texts = d.texts[:0]
	d.fields.Numbers, d.fields.Texts = nil, nil
	joiners.Put(d)
}
