package page

import (
	"fmt"
	"math"
)

// A column of n texts of any bytes, one per entry:
//
//	0  equal       length uvarint | text
//	1  pieces      affixes | column of n lengths | pieces, concatenated
//	2  planes      affixes | length uvarint | the first bytes of all pieces, the second, and so on
//	3  dictionary  d − 1, 1 byte | column of d texts | column of n references, each below d
//	4  shared      affixes | column of n shared lengths | column of n lengths | unshared bytes, concatenated
//	5  sized       column of n differences | texts, concatenated
//
// The first byte is the form. Forms 1, 4 and 5 may have the flag packed, which means that the concatenated bytes are
// packed: see packed.go. Affixes are the common prefix and suffix of all texts, and pieces are the bytes between them:
//
//	+----------------+----------------+--------+--------+
//	| prefix: length | suffix: length | prefix | suffix |
//	| uvarint        | uvarint        |        |        |
//	+----------------+----------------+--------+--------+
//
// In form 4, the first bytes of a piece are shared with the previous piece; every restartEvery-th piece shares none. In
// form 5, a difference is the length of a text minus its usual size (cuttings.go), zigzag-encoded. The column of texts
// in a dictionary has a form other than 3 and 5.
const (
	textsEqual      = 0
	textsPieces     = 1
	textsPlanes     = 2
	textsDictionary = 3
	textsShared     = 4
	textsSized      = 5

	textsPacked = 0x10 // flag
)

// restartEvery is the max number of texts of form 4 that are read to restore one text.
const restartEvery = 16

// texts is a parsed column of texts.
type texts struct {
	form           byte
	prefix, suffix []byte
	ends           []uint32 // of pieces in bytes; nil: all have length size
	size, n        int
	bytes          []byte
	packed         *packed // nil: the bytes aren't packed
	shared         numbers
	references     numbers
	dictionary     *texts
}

// extent returns the start and the end of the stored bytes of text i.
func (c *texts) extent(i int) (from, to int) {
	switch {
	case c.ends == nil:
		return i * c.size, (i + 1) * c.size
	case i == 0:
		return 0, int(c.ends[0])
	default:
		return int(c.ends[i-1]), int(c.ends[i])
	}
}

// appendStored appends the stored bytes of text i.
func (c *texts) appendStored(dst []byte, i int) []byte {
	from, to := c.extent(i)
	if c.packed != nil {
		return c.packed.appendTo(dst, from, to)
	}
	return append(dst, c.bytes[from:to]...)
}

// at returns text i. If the text isn't stored contiguously, it is assembled at the end of memory, which is returned.
func (c *texts) at(i int, memory []byte) (text, grown []byte) {
	switch {
	case c.form == textsEqual:
		return c.bytes, memory
	case c.form == textsDictionary:
		return c.dictionary.at(int(c.references.at(i)), memory)
	case c.packed == nil && len(c.prefix)+len(c.suffix) == 0 && (c.form == textsSized || c.form == textsPieces):
		from, to := c.extent(i)
		return c.bytes[from:to:to], memory
	}
	from := len(memory)
	memory = append(memory, c.prefix...)
	switch begin := len(memory); c.form {
	case textsPlanes:
		for k := range c.size {
			memory = append(memory, c.bytes[k*c.n+i])
		}
	case textsShared:
		for k := i - i%restartEvery; k <= i; k++ {
			memory = c.appendStored(memory[:begin+int(c.shared.at(k))], k)
		}
	default:
		memory = c.appendStored(memory, i)
	}
	memory = append(memory, c.suffix...)
	return memory[from:len(memory):len(memory)], memory
}

// readTexts reads a column of n texts. size returns the usual size of text i, for form 5. If size is nil, form 5 is
// invalid.
func (r *scanner) readTexts(n int, size func(i int) int) (c texts, err error) {
	form := r.readByte()
	c = texts{form: form &^ textsPacked, n: n}
	isPacked := form&textsPacked != 0
	if isPacked && (c.form == textsEqual || c.form == textsPlanes || c.form == textsDictionary) {
		return c, fmt.Errorf("%w: texts of form %d can't be packed", errCorrupt, c.form)
	}
	switch c.form {
	case textsEqual:
		c.bytes = r.readBytes(r.readLength())
	case textsPieces, textsPlanes, textsShared:
		err = r.readPieces(&c, isPacked)
	case textsDictionary:
		err = r.readTextDictionary(&c)
	case textsSized:
		if size == nil {
			return c, fmt.Errorf("%w: the sizes of texts are missing", errCorrupt)
		}
		err = r.readSized(&c, isPacked, size)
	default:
		return c, fmt.Errorf("%w: texts of unknown form %d", errCorrupt, c.form)
	}
	if err == nil && r.short {
		err = fmt.Errorf("%w: texts of form %d are truncated", errCorrupt, c.form)
	}
	return c, err
}

// readPieces reads affixes and pieces.
func (r *scanner) readPieces(c *texts, isPacked bool) (err error) {
	prefix, suffix := r.readLength(), r.readLength()
	c.prefix, c.suffix = r.readBytes(prefix), r.readBytes(suffix)
	if c.form == textsPlanes {
		c.size = r.readLength()
		c.bytes = r.readBytes(c.size * c.n)
		return nil
	}
	if c.form == textsShared {
		if c.shared, err = r.readNumbers(c.n); err != nil {
			return err
		}
	}
	lengths, err := r.readNumbers(c.n)
	if err != nil {
		return err
	}
	if lengths.areEqual() && lengths.least <= uint64(r.maxBytes(isPacked)) {
		c.size = int(lengths.least)
		err = r.readStored(c, isPacked, c.size*c.n)
	} else {
		err = r.readRagged(c, isPacked, func(i int) uint64 { return lengths.at(i) })
	}
	if err == nil && c.form == textsShared && !r.short {
		return c.checkShared()
	}
	return err
}

// maxBytes returns the max number of bytes of texts that the rest of the page can have.
func (r *scanner) maxBytes(isPacked bool) int {
	if isPacked {
		return 8 * len(r.b)
	}
	return len(r.b)
}

// readStored reads n bytes of texts.
func (r *scanner) readStored(c *texts, isPacked bool, n int) (err error) {
	if isPacked {
		c.packed, err = r.readPacked(n)
		return err
	}
	c.bytes = r.readBytes(n)
	return nil
}

// readRagged reads texts whose lengths may differ. length returns the length of text i.
func (r *scanner) readRagged(c *texts, isPacked bool, length func(i int) uint64) error {
	c.ends = make([]uint32, c.n)
	end, most := uint64(0), min(uint64(r.maxBytes(isPacked)), math.MaxUint32)
	for i := range c.ends {
		n := length(i)
		if n > most || end+n > most {
			return fmt.Errorf("%w: text %d of %d bytes is truncated", errCorrupt, i, n)
		}
		end += n
		c.ends[i] = uint32(end)
	}
	return r.readStored(c, isPacked, int(end))
}

// checkShared returns an error if a text shares more bytes than the previous one has.
func (c *texts) checkShared() error {
	before := uint64(0)
	for i := range c.n {
		if i%restartEvery == 0 {
			before = 0
		}
		shared := c.shared.at(i)
		if shared > before {
			return fmt.Errorf("%w: text %d shares %d bytes with the previous text; the maximum is %d",
				errCorrupt, i, shared, before)
		}
		from, to := c.extent(i)
		before = shared + uint64(to-from)
	}
	return nil
}

func (r *scanner) readTextDictionary(c *texts) error {
	d := int(r.readByte()) + 1
	if len(r.b) > 0 && r.b[0] == textsDictionary {
		return fmt.Errorf("%w: a dictionary is itself encoded with a dictionary", errCorrupt)
	}
	dictionary, err := r.readTexts(d, nil)
	if err != nil {
		return err
	}
	if c.references, err = r.readNumbers(c.n); err != nil {
		return err
	}
	for i := range c.n {
		if ref := c.references.at(i); ref >= uint64(d) {
			return fmt.Errorf("%w: a reference to text %d, but there are only %d texts", errCorrupt, ref, d)
		}
	}
	c.dictionary = &dictionary
	return nil
}

func (r *scanner) readSized(c *texts, isPacked bool, size func(i int) int) error {
	differences, err := r.readNumbers(c.n)
	if err != nil {
		return err
	}
	return r.readRagged(c, isPacked, func(i int) uint64 {
		u := differences.at(i)
		return uint64(size(i)) + (u>>1 ^ -(u & 1)) // a negative result becomes larger than any length
	})
}
