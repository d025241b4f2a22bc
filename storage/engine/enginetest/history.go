package enginetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// A history is a list of operations, as text with one operation per line, so that a history that fails can be read,
// shortened by hand, and run again:
//
//	put raw 3,0,"default","up",0 1,"0123456789abcdef",7,"fedcba9876543210" 100 "value"
//	delete stage 5,1 "0123456789abcdef",7 100
//	deleterange stage 5,1 "0123456789abcdef",7 "0123456789abcdef",9 100
//	clear r5m 3,0,"default","up",0 1 1,"0123456789abcdef",9
//	commit
//	scan stage 5,1 "0123456789abcdef" - 0 rows
//	drop raw 3
//	cas store "name" "item" nil "value"
//	reopen
//
// Puts, deletes and clears are executed by the next commit, with one Write.

// step is one line of a history.
type step struct {
	verb  string
	table *engine.Table
	// key is the partition key, or a prefix of a partition key for drop.
	key engine.Key
	// from is the clustering key of a put, delete or cas. from and to are the bounds of a scan, deleterange or clear.
	from, to  engine.Key
	timestamp int64
	value     []byte
	old       []byte // the expected value of a cas, nil if the row must not exist
	limit     int
	keysOnly  bool
}

// The verbs of steps. The verbs without a table are the last ones.
const (
	verbPut         = "put"
	verbDelete      = "delete"
	verbDeleteRange = "deleterange"
	verbClear       = "clear"
	verbScan        = "scan"
	verbDrop        = "drop"
	verbCAS         = "cas"
	verbCommit      = "commit"
	verbReopen      = "reopen"
	verbCrash       = "crash"
	verbCompact     = "compact"
)

func (s step) String() string {
	if s.table == nil {
		return s.verb
	}
	words := []string{s.verb, s.table.Name, formatKey(s.key)}
	switch s.verb {
	case verbPut:
		words = append(words, formatKey(s.from), strconv.FormatInt(s.timestamp, 10), strconv.Quote(string(s.value)))
	case verbDelete:
		words = append(words, formatKey(s.from), strconv.FormatInt(s.timestamp, 10))
	case verbDeleteRange:
		words = append(words, formatKey(s.from), formatKey(s.to), strconv.FormatInt(s.timestamp, 10))
	case verbClear:
		words = append(words, formatKey(s.from), formatKey(s.to))
	case verbScan:
		what := "rows"
		if s.keysOnly {
			what = "keys"
		}
		words = append(words, formatKey(s.from), formatKey(s.to), strconv.Itoa(s.limit), what)
	case verbCAS:
		old := "nil"
		if s.old != nil {
			old = strconv.Quote(string(s.old))
		}
		words = append(words, formatKey(s.from), old, strconv.Quote(string(s.value)))
	}
	return strings.Join(words, " ")
}

// writeHistory writes steps as text.
func writeHistory(w io.Writer, steps []step) error {
	for _, s := range steps {
		if _, err := fmt.Fprintln(w, s); err != nil {
			return err
		}
	}
	return nil
}

// readHistory is the inverse of writeHistory. It ignores empty lines and lines that start with #.
func readHistory(r io.Reader) ([]step, error) {
	var steps []step
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 8<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %s", n, err, line)
		}
		steps = append(steps, s)
	}
	return steps, lines.Err()
}

// words splits a line into words. It keeps the first error.
type words struct {
	rest string
	err  error
}

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// next returns the next word. A word may contain spaces within quotes.
func (w *words) next() string {
	w.rest = strings.TrimLeft(w.rest, " ")
	end := 0
	for end < len(w.rest) && w.rest[end] != ' ' {
		if w.rest[end] != '"' {
			end++
			continue
		}
		quoted, err := strconv.QuotedPrefix(w.rest[end:])
		if err != nil {
			w.fail("quotes: %w", err)
			return ""
		}
		end += len(quoted)
	}
	word := w.rest[:end]
	w.rest = w.rest[end:]
	if word == "" {
		w.fail("too short")
	}
	return word
}

func (w *words) number() int64 {
	n, err := strconv.ParseInt(w.next(), 10, 64)
	if err != nil {
		w.fail("number: %w", err)
	}
	return n
}

func (w *words) text() []byte {
	word := w.next()
	s, err := strconv.Unquote(word)
	if err != nil {
		w.fail("text %s: %w", word, err)
	}
	return []byte(s)
}

func (w *words) key() engine.Key {
	key, err := parseKey(w.next())
	if err != nil {
		w.fail("key: %w", err)
	}
	return key
}

func (w *words) table() *engine.Table {
	name := w.next()
	for _, t := range engine.Tables {
		if t.Name == name {
			return t
		}
	}
	w.fail("unknown table %s", name)
	return nil
}

func parseStep(line string) (step, error) {
	w := &words{rest: line}
	s := step{verb: w.next()}
	switch s.verb {
	case verbCommit, verbReopen, verbCrash, verbCompact:
	case verbPut, verbDelete, verbDeleteRange, verbClear, verbScan, verbDrop, verbCAS:
		s.table, s.key = w.table(), w.key()
		parseOperands(w, &s)
	default:
		w.fail("unknown verb")
	}
	if strings.TrimSpace(w.rest) != "" {
		w.fail("too long")
	}
	return s, w.err
}

func parseOperands(w *words, s *step) {
	switch s.verb {
	case verbPut:
		s.from, s.timestamp, s.value = w.key(), w.number(), w.text()
	case verbDelete:
		s.from, s.timestamp = w.key(), w.number()
	case verbDeleteRange:
		s.from, s.to, s.timestamp = w.key(), w.key(), w.number()
	case verbClear:
		s.from, s.to = w.key(), w.key()
	case verbScan:
		s.from, s.to, s.limit = w.key(), w.key(), int(w.number())
		s.keysOnly = w.next() == "keys"
	case verbCAS:
		s.from = w.key()
		if strings.HasPrefix(strings.TrimLeft(w.rest, " "), "nil ") {
			w.next()
		} else {
			s.old = w.text()
		}
		s.value = w.text()
	}
}

// formatKey returns a key as text: its fields separated by commas, with quoted texts, or "-" for a key without fields.
// An empty text is written as the integer 0, because both are the same engine.Value.
func formatKey(key engine.Key) string {
	if len(key) == 0 {
		return "-"
	}
	var b strings.Builder
	for i, v := range key {
		if i > 0 {
			b.WriteByte(',')
		}
		if v.Text != "" {
			b.WriteString(strconv.Quote(v.Text))
		} else {
			b.WriteString(strconv.FormatInt(v.Int, 10))
		}
	}
	return b.String()
}

var errKeyText = errors.New("not a key")

// parseKey is the inverse of formatKey.
func parseKey(s string) (engine.Key, error) {
	if s == "-" {
		return nil, nil
	}
	var key engine.Key
	for more := true; more; {
		var v engine.Value
		if strings.HasPrefix(s, `"`) {
			quoted, err := strconv.QuotedPrefix(s)
			if err != nil {
				return nil, fmt.Errorf("%w: %s", errKeyText, s)
			}
			if v.Text, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("%w: %s", errKeyText, s)
			}
			s = s[len(quoted):]
			if s != "" && s[0] != ',' {
				return nil, fmt.Errorf("%w: %s", errKeyText, s)
			}
			more = s != ""
			s = strings.TrimPrefix(s, ",")
		} else {
			var field string
			var err error
			field, s, more = strings.Cut(s, ",")
			if v.Int, err = strconv.ParseInt(field, 10, 64); err != nil {
				return nil, fmt.Errorf("%w: %s", errKeyText, field)
			}
		}
		key = append(key, v)
	}
	return key, nil
}
