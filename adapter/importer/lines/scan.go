package lines

import (
	"encoding/json"
	"fmt"
)

// scan is a scanner of JSON text. It decodes only the requested values.
type scan struct {
	b []byte
	i int
}

// maxDepth bounds the nesting of values.
const maxDepth = 20

func (s *scan) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\r' || s.b[s.i] == '\n') {
		s.i++
	}
}

// wrong returns an error with the text at the current position.
func (s *scan) wrong(want string) error {
	if s.i >= len(s.b) {
		return fmt.Errorf("ends where %s is expected", want)
	}
	return fmt.Errorf("expected %s at byte %d, found %s", want, s.i+1, quoted(s.b[s.i:min(len(s.b), s.i+20)]))
}

// skip advances past c and returns true if c is the next character.
func (s *scan) skip(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// object calls member with the name of each member. member must read the value.
func (s *scan) object(member func(name []byte) error) error {
	if !s.skip('{') {
		return s.wrong("{")
	}
	if s.skip('}') {
		return nil
	}
	for {
		s.space()
		name, err := s.unquoted()
		if err != nil {
			return err
		}
		if !s.skip(':') {
			return s.wrong(":")
		}
		s.space()
		if err := member([]byte(name)); err != nil {
			return err
		}
		if s.skip('}') {
			return nil
		}
		if !s.skip(',') {
			return s.wrong(", or }")
		}
	}
}

// array calls element for each element. element must read it.
func (s *scan) array(element func() error) error {
	if !s.skip('[') {
		return s.wrong("[")
	}
	if s.skip(']') {
		return nil
	}
	for {
		s.space()
		if err := element(); err != nil {
			return err
		}
		if s.skip(']') {
			return nil
		}
		if !s.skip(',') {
			return s.wrong(", or ]")
		}
	}
}

// value skips a value of any type.
func (s *scan) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values are nested more than %d levels deep", maxDepth)
	}
	if s.space(); s.i >= len(s.b) {
		return s.wrong("a value")
	}
	switch s.b[s.i] {
	case '{':
		return s.object(func([]byte) error { return s.value(depth + 1) })
	case '[':
		return s.array(func() error { return s.value(depth + 1) })
	case '"':
		_, err := s.text()
		return err
	case 'n':
		return s.word("null")
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	}
	if len(s.number()) == 0 {
		return s.wrong("a value")
	}
	return nil
}

func (s *scan) word(w string) error {
	if s.i+len(w) > len(s.b) || string(s.b[s.i:s.i+len(w)]) != w {
		return s.wrong(w)
	}
	s.i += len(w)
	return nil
}

// number returns the next characters that can be part of a number.
func (s *scan) number() []byte {
	from := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			s.i++
			continue
		}
		break
	}
	return s.b[from:s.i]
}

// text returns the next string undecoded, with its quotes.
func (s *scan) text() ([]byte, error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, s.wrong("a string")
	}
	from := s.i
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return s.b[from:s.i], nil
		}
	}
	s.i = len(s.b)
	return nil, s.wrong(`"`)
}

// unquoted returns the next string, decoded.
func (s *scan) unquoted() (string, error) {
	raw, err := s.text()
	if err != nil {
		return "", err
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c == '\\' || c < ' ' || c >= 0x80 {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return "", fmt.Errorf("%s is not a valid string", quoted(raw))
			}
			return text, nil
		}
	}
	return string(raw[1 : len(raw)-1]), nil
}
