package page

import (
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// matcher has the memory for matching the entries of a page.
type matcher struct {
	p *Page
	// whole marks the entries that aren't cut. passes marks the entries that have met all conditions so far, and left
	// is their number.
	whole, passes [MaxEntries]bool
	left          int
	names, values distinct
	places        [MaxEntries]uint8 // index of the label in each of names, counted from 1; 0: missing
	read          uint8             // index of the label whose texts are in values; 0: none
	met           [MaxEntries]uint8 // of values: whether the condition is met, not met, or untested
	unset         bool              // whether a missing label meets the condition
}

const (
	untested = iota
	isMet
	isNotMet
)

var matchers = sync.Pool{New: func() any { return new(matcher) }}

func (m *matcher) release() {
	m.p = nil
	m.names.releasePage()
	m.values.releasePage()
	matchers.Put(m)
}

// beginPage prepares the matcher for a page.
func (m *matcher) beginPage(p *Page) {
	m.p, m.left, m.read = p, p.n, 0
	whole := p.column(0)
	for i := range p.n {
		m.whole[i] = whole.at(i) != 0
		m.passes[i] = !m.whole[i]
	}
	m.names.read(p.text(1), p.n)
}

// applyCondition removes the entries that don't meet a condition.
func (m *matcher) applyCondition(c *LabelCondition) {
	for k, names := range m.names.texts {
		m.places[k] = placeOf(names, c.Name)
	}
	m.unset, m.left = c.Matches(""), 0
	of := uint8(0) // the index for which met is valid
	for i := range m.p.n {
		if m.whole[i] {
			m.left++
			continue
		}
		if !m.passes[i] {
			continue
		}
		place := m.places[m.names.of[i]]
		if place == 0 {
			m.passes[i] = m.unset
		} else {
			if place != of {
				m.readColumn(place)
				of = place
			}
			m.passes[i] = m.isMetBy(c, m.values.of[i])
		}
		if m.passes[i] {
			m.left++
		}
	}
}

// readColumn reads the texts of the labels at a place into values.
func (m *matcher) readColumn(place uint8) {
	if m.read != place {
		m.values.read(m.p.text(1+int(place)), m.p.n)
		m.read = place
	}
	clear(m.met[:len(m.values.texts)])
}

// isMetBy reports whether a text of values meets a condition.
func (m *matcher) isMetBy(c *LabelCondition, k uint8) bool {
	if m.met[k] == untested {
		m.met[k] = isNotMet
		if c.Matches(engine.UnsafeText(m.values.texts[k])) {
			m.met[k] = isMet
		}
	}
	return m.met[k] == isMet
}

// placeOf returns the index of a label among the names of a series, counted from 1, or 0 if the label is missing.
func placeOf(names []byte, name string) uint8 {
	for k := uint8(1); len(names) > 0 && k <= maxLabels; k++ {
		one, rest, err := format.CutString(names)
		if err != nil {
			return 0
		}
		if string(one) == name {
			return k
		}
		names = rest
	}
	return 0
}

// text returns a column of texts. If the column isn't stored, its texts are empty.
func (p *Page) text(place int) *texts {
	for i := range p.texts {
		if p.texts[i].place == place {
			return &p.texts[i].texts
		}
	}
	return &noTexts
}

var noTexts = texts{form: textsEqual}

// distinct has the texts of a column without repetitions: the texts of a dictionary, or one per run of equal texts.
type distinct struct {
	texts  [][]byte
	of     [MaxEntries]uint8 // the index in texts of each entry's text
	memory []byte
}

// releasePage removes the references to the page's bytes.
func (d *distinct) releasePage() {
	clear(d.texts)
	d.texts, d.memory = d.texts[:0], d.memory[:0]
}

// read reads a column of n texts.
func (d *distinct) read(c *texts, n int) {
	d.texts, d.memory = d.texts[:0], d.memory[:0]
	switch c.form {
	case textsEqual:
		d.texts = append(d.texts, c.bytes)
		clear(d.of[:n])
	case textsDictionary:
		d.each(c.dictionary, c.dictionary.n, func(_ int, text []byte) { d.texts = append(d.texts, text) })
		for i := range n {
			d.of[i] = uint8(c.references.at(i))
		}
	default:
		d.each(c, n, func(i int, text []byte) {
			if last := len(d.texts) - 1; last < 0 || string(d.texts[last]) != string(text) {
				d.texts = append(d.texts, text)
			}
			d.of[i] = uint8(len(d.texts) - 1)
		})
	}
}

// each calls visit with each text of a column without a dictionary, in order.
func (d *distinct) each(c *texts, n int, visit func(i int, text []byte)) {
	if c.form != textsShared {
		for i := range n {
			var text []byte
			text, d.memory = c.at(i, d.memory)
			visit(i, text)
		}
		return
	}
	before := []byte(nil) // the part of the previous text between the affixes
	for i := range n {
		from := len(d.memory)
		d.memory = append(d.memory, c.prefix...)
		begin := len(d.memory)
		d.memory = c.appendStored(append(d.memory, before[:c.shared.at(i)]...), i)
		before = d.memory[begin:len(d.memory):len(d.memory)]
		d.memory = append(d.memory, c.suffix...)
		visit(i, d.memory[from:len(d.memory):len(d.memory)])
	}
}
