package lines

import (
	"encoding/json"
	"fmt"
)

// scan walks through a JSON text. It makes nothing of it that isn't asked for.
type scan struct {
	b []byte
	i int
}

// maxDepth bounds how deep values may lie in each other.
const maxDepth = 20

func (s *scan) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\r' || s.b[s.i] == '\n') {
		s.i++
	}
}

// wrong returns an error with the text that stands there instead.
func (s *scan) wrong(want string) error {
	if s.i >= len(s.b) {
		return fmt.Errorf("ends where %s is expected", want)
	}
	return fmt.Errorf("expected %s at byte %d, found %s", want, s.i+1, quoted(s.b[s.i:min(len(s.b), s.i+20)]))
}

// take passes over a character, if it is there.
func (s *scan) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// object calls member at each value, with its name, to read the value.
func (s *scan) object(member func(name []byte) error) error {
	if !s.take('{') {
		return s.wrong("{")
	}
	if s.take('}') {
		return nil
	}
	for {
		s.space()
		name, err := s.unquoted()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.wrong(":")
		}
		s.space()
		if err := member([]byte(name)); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.wrong(", or }")
		}
	}
}

// array calls element at each.
func (s *scan) array(element func() error) error {
	if !s.take('[') {
		return s.wrong("[")
	}
	if s.take(']') {
		return nil
	}
	for {
		s.space()
		if err := element(); err != nil {
			return err
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.wrong(", or ]")
		}
	}
}

// value passes over any value.
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

// number returns the characters that numbers are made of.
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

// text returns a string as it stands there, with its quotes.
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

// unquoted returns a string.
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
