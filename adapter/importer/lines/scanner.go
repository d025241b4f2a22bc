package lines

import (
	"encoding/json"
	"fmt"
)

// scanner is a scanner of JSON text. It decodes only the requested values.
type scanner struct {
	b []byte
	i int
}

// maxDepth bounds the nesting of values.
const maxDepth = 20

func (s *scanner) skipSpace() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\r' || s.b[s.i] == '\n') {
		s.i++
	}
}

// syntaxError returns an error with the text at the current position.
func (s *scanner) syntaxError(want string) error {
	if s.i >= len(s.b) {
		return fmt.Errorf("ends where %s is expected", want)
	}
	return fmt.Errorf("expected %s at byte %d, found %s", want, s.i+1, quoteText(s.b[s.i:min(len(s.b), s.i+20)]))
}

// skipByte advances past c and returns true if c is the next character.
func (s *scanner) skipByte(c byte) bool {
	s.skipSpace()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// readObject calls member with the name of each member. member must read the value.
func (s *scanner) readObject(member func(name []byte) error) error {
	if !s.skipByte('{') {
		return s.syntaxError("{")
	}
	if s.skipByte('}') {
		return nil
	}
	for {
		s.skipSpace()
		name, err := s.readString()
		if err != nil {
			return err
		}
		if !s.skipByte(':') {
			return s.syntaxError(":")
		}
		s.skipSpace()
		if err := member([]byte(name)); err != nil {
			return err
		}
		if s.skipByte('}') {
			return nil
		}
		if !s.skipByte(',') {
			return s.syntaxError(", or }")
		}
	}
}

// readArray calls element for each element. element must read it.
func (s *scanner) readArray(element func() error) error {
	if !s.skipByte('[') {
		return s.syntaxError("[")
	}
	if s.skipByte(']') {
		return nil
	}
	for {
		s.skipSpace()
		if err := element(); err != nil {
			return err
		}
		if s.skipByte(']') {
			return nil
		}
		if !s.skipByte(',') {
			return s.syntaxError(", or ]")
		}
	}
}

// skipValue skips a value of any type.
func (s *scanner) skipValue(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values are nested more than %d levels deep", maxDepth)
	}
	if s.skipSpace(); s.i >= len(s.b) {
		return s.syntaxError("a value")
	}
	switch s.b[s.i] {
	case '{':
		return s.readObject(func([]byte) error { return s.skipValue(depth + 1) })
	case '[':
		return s.readArray(func() error { return s.skipValue(depth + 1) })
	case '"':
		_, err := s.readQuoted()
		return err
	case 'n':
		return s.readWord("null")
	case 't':
		return s.readWord("true")
	case 'f':
		return s.readWord("false")
	}
	if len(s.readNumber()) == 0 {
		return s.syntaxError("a value")
	}
	return nil
}

func (s *scanner) readWord(w string) error {
	if s.i+len(w) > len(s.b) || string(s.b[s.i:s.i+len(w)]) != w {
		return s.syntaxError(w)
	}
	s.i += len(w)
	return nil
}

// readNumber returns the next characters that can be part of a number.
func (s *scanner) readNumber() []byte {
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

// readQuoted returns the next string undecoded, with its quotes.
func (s *scanner) readQuoted() ([]byte, error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, s.syntaxError("a string")
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
	return nil, s.syntaxError(`"`)
}

// readString returns the next string, decoded.
func (s *scanner) readString() (string, error) {
	raw, err := s.readQuoted()
	if err != nil {
		return "", err
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c == '\\' || c < ' ' || c >= 0x80 {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return "", fmt.Errorf("%s is not a valid string", quoteText(raw))
			}
			return text, nil
		}
	}
	return string(raw[1 : len(raw)-1]), nil
}
