package wordings

import (
	"slices"
	"strings"
	"unicode"
)

// shownAttributes contains the attributes of elements whose values are displayed or are spoken by a screen reader.
var shownAttributes = []string{"title", "aria-label", "label", "placeholder", "alt", "name", "note", "aside", "help", "text", "what", "empty", "caption", "unit", "hint", "head", "children"}

// pageTexts returns the texts of a source file of the web page: text between tags, displayed attributes, and string
// literals with multiple words.
func pageTexts(rel, content string) []Text {
	s := &scanner{rel: rel, text: []rune(content), line: 1}
	s.scanScript(false)
	return s.texts
}

// scanner parses TypeScript with elements (TSX), only as far as needed to separate texts from code.
type scanner struct {
	rel   string
	text  []rune
	at    int
	line  int
	last  rune // last rune of code that isn't white space
	texts []Text
}

func (s *scanner) peek(n int) rune {
	if s.at+n < len(s.text) {
		return s.text[s.at+n]
	}
	return 0
}

func (s *scanner) next() rune {
	r := s.text[s.at]
	s.at++
	if r == '\n' {
		s.line++
	}
	return r
}

func (s *scanner) isDone() bool { return s.at >= len(s.text) }

func (s *scanner) startsWith(with string) bool {
	return strings.HasPrefix(string(s.text[s.at:min(len(s.text), s.at+len(with))]), with)
}

func (s *scanner) skipPast(until string) {
	for !s.isDone() && !s.startsWith(until) {
		s.next()
	}
	for range until {
		if !s.isDone() {
			s.next()
		}
	}
}

// scanScript scans code up to its closing brace or the end of the file. If mute is set, string literals aren't texts.
func (s *scanner) scanScript(mute bool) {
	for depth := 0; !s.isDone(); {
		switch r := s.peek(0); {
		case s.startsWith("//"):
			s.skipPast("\n")
			continue
		case s.startsWith("/*"):
			s.skipPast("*/")
			continue
		case r == '\'' || r == '"':
			line := s.line
			s.add(line, s.scanQuoted(), mute, false)
		case r == '`':
			s.scanTemplate(mute)
		case r == '/' && s.operatorBefore():
			s.scanRegexp()
		case r == '<' && s.operatorBefore() && (unicode.IsLetter(s.peek(1)) || s.peek(1) == '>'):
			s.scanElement()
			s.last = ')'
			continue
		case r == '{':
			depth++
			s.next()
		case r == '}':
			if depth == 0 {
				s.next()
				return
			}
			depth--
			s.next()
		default:
			s.next()
		}
		if r := s.text[s.at-1]; !unicode.IsSpace(r) {
			s.last = r
		}
	}
}

// operatorBefore reports whether a value may start at the current position, because an operator or an opening bracket
// precedes it.
func (s *scanner) operatorBefore() bool {
	if s.last == 0 || strings.ContainsRune("(,=?:&|{}[>;!", s.last) {
		return true
	}
	before := strings.TrimRight(string(s.text[max(0, s.at-12):s.at]), " \n")
	return strings.HasSuffix(before, "return")
}

func (s *scanner) scanQuoted() string {
	quote := s.next()
	var b strings.Builder
	for !s.isDone() {
		r := s.next()
		if r == quote {
			break
		}
		if r == '\\' && !s.isDone() {
			r = s.next()
		}
		b.WriteRune(r)
	}
	return b.String()
}

// scanTemplate scans a template literal. Embedded expressions are replaced by codeMark, and texts in them become
// separate texts.
func (s *scanner) scanTemplate(mute bool) {
	line := s.line
	s.next()
	var b strings.Builder
	for !s.isDone() && s.peek(0) != '`' {
		if s.startsWith("${") {
			s.next()
			s.next()
			s.last = '{'
			b.WriteString(codeMark)
			s.scanScript(mute)
			continue
		}
		b.WriteRune(s.next())
	}
	if !s.isDone() {
		s.next()
	}
	s.add(line, b.String(), mute, false)
}

func (s *scanner) scanRegexp() {
	s.next()
	for inClass := false; !s.isDone() && s.peek(0) != '\n'; {
		switch r := s.next(); {
		case r == '\\':
			s.next()
		case r == '[':
			inClass = true
		case r == ']':
			inClass = false
		case r == '/' && !inClass:
			return
		}
	}
}

// scanElement scans an element, including its contents. The scanner must be at the element's <.
func (s *scanner) scanElement() {
	s.next()
	s.name()
	for !s.isDone() {
		switch r := s.peek(0); {
		case s.startsWith("/>"):
			s.next()
			s.next()
			return
		case r == '>':
			s.next()
			s.scanChildren()
			return
		case r == '{':
			s.next()
			s.last = '{'
			s.scanScript(true)
		case unicode.IsLetter(r):
			s.scanAttribute()
		default:
			s.next()
		}
	}
}

func (s *scanner) name() string {
	var b strings.Builder
	for !s.isDone() && (unicode.IsLetter(s.peek(0)) || unicode.IsDigit(s.peek(0)) || strings.ContainsRune("-._:", s.peek(0))) {
		b.WriteRune(s.next())
	}
	return b.String()
}

func (s *scanner) scanAttribute() {
	isShown := slices.Contains(shownAttributes, s.name())
	if s.peek(0) != '=' {
		return
	}
	s.next()
	switch s.peek(0) {
	case '"', '\'':
		line := s.line
		s.add(line, s.scanQuoted(), !isShown, true)
	case '{':
		s.next()
		s.last = '{'
		s.scanScript(!isShown)
	}
}

// scanChildren scans the contents of an element and its closing tag.
func (s *scanner) scanChildren() {
	line := s.line
	var b strings.Builder
	flush := func() {
		s.add(line, b.String(), false, true)
		b.Reset()
	}
	for !s.isDone() {
		switch {
		case s.startsWith("</"):
			flush()
			s.skipPast(">")
			return
		case s.peek(0) == '<' && s.isInline():
			s.skipPast(">")
		case s.peek(0) == '<':
			flush()
			s.scanElement()
			line = s.line
		case s.peek(0) == '{':
			if strings.TrimSpace(b.String()) == "" {
				line = s.line
			}
			b.WriteString(codeMark)
			s.next()
			s.last = '{'
			before := s.line
			s.scanScript(false)
			b.WriteString(strings.Repeat("\n", s.line-before))
		default:
			b.WriteRune(s.next())
		}
	}
}

// isInline reports whether the next element is a line break, which doesn't end a text.
func (s *scanner) isInline() bool { return s.startsWith("<br") }

// add adds a text. whole is set if the text is displayed unchanged; then even a single word is added.
func (s *scanner) add(line int, text string, mute, whole bool) {
	prose := isProse(text)
	if mute || !whole && !prose && !isLabel(text) || strings.TrimSpace(text) == "" || countWords(text) == 0 {
		return
	}
	for strings.HasPrefix(text, "\n") || strings.HasPrefix(text, " ") {
		if text[0] == '\n' {
			line++
		}
		text = text[1:]
	}
	s.texts = append(s.texts, Text{Page, s.rel, line, strings.ReplaceAll(text, "’", "'")})
}

// isLabel reports whether a string literal is a phrase that starts with a capital letter.
func isLabel(text string) bool {
	fields := strings.Fields(text)
	return len(fields) > 1 && unicode.IsUpper([]rune(fields[0])[0]) && isProse(text+" and more")
}
