package page

import (
	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// LabelCondition is a condition on the value of a label, other than the metric's name.
type LabelCondition struct {
	Name string
	// Values are all matching values, or nil if they are unknown. None of them may be empty, so that a series without
	// the label doesn't match.
	Values []string
	// Matches reports whether a value matches. The value is empty for a series without the label. It may be called
	// concurrently, and must not keep the value.
	Matches func(value string) bool
}

// Selector selects the series in pages of labels, and in labels rows, that meet all of its conditions. It may be used
// concurrently.
type Selector struct {
	conditions []LabelCondition
	// terms are lists of hashes of terms. A matching series has at least one term of each list. See AppendFilter.
	terms [][]uint64
}

// NewSelector returns a selector of the series that meet all conditions.
func NewSelector(conditions []LabelCondition) *Selector {
	s := &Selector{conditions: conditions}
	var term []byte
	for _, c := range conditions {
		term = format.AppendString(term[:0], c.Name)
		switch n := len(term); {
		case len(c.Values) > 0:
			hashes := make([]uint64, len(c.Values))
			for i, v := range c.Values {
				hashes[i] = notZero(xxhash.Sum64(format.AppendString(term[:n], v)))
			}
			s.terms = append(s.terms, hashes)
		case !c.Matches(""):
			s.terms = append(s.terms, []uint64{notZero(xxhash.Sum64(term))})
		}
	}
	return s
}

// MayMatch reports whether a page with this filter may have matching series. A result of false is certain.
func (s *Selector) MayMatch(f *Filter) bool {
	for _, hashes := range s.terms {
		found := false
		for _, h := range hashes {
			if found = f.has(h); found {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// MatchesRow reports whether the series of a labels row matches. It returns true for a value that can't be read.
func (s *Selector) MatchesRow(value []byte) bool {
	if len(value) == 0 || value[0] != format.LabelsVersion {
		return true
	}
	for i := range s.conditions {
		c := &s.conditions[i]
		found := []byte(nil)
		for rest := value[1:]; len(rest) > 0; {
			name, after, err := format.CutString(rest)
			if err != nil {
				return true
			}
			v, after, err := format.CutString(after)
			if err != nil {
				return true
			}
			if rest = after; string(name) == c.Name {
				found = v
			}
		}
		if !c.Matches(engine.UnsafeText(found)) {
			return false
		}
	}
	return true
}

// AppendEntries appends the matching entries of a page of labels, in ascending order. They include entries whose values
// aren't cut, which may or may not match. It tests each text of a dictionary once.
func (s *Selector) AppendEntries(dst []byte, p *Page) []byte {
	m := matchers.Get().(*matcher)
	defer m.release()
	m.beginPage(p)
	for i := range s.conditions {
		if m.left == 0 {
			return dst
		}
		m.applyCondition(&s.conditions[i])
	}
	for i := range p.n {
		if m.whole[i] || m.passes[i] {
			dst = append(dst, byte(i))
		}
	}
	return dst
}
