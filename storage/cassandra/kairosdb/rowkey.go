package kairosdb

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrCorrupt means that KairosDB can't have written these bytes.
var ErrCorrupt = errors.New("kairosdb: corrupt")

// Names of types of points.
const (
	typeLong   = "kairos_long"
	typeDouble = "kairos_double"
	typeLegacy = "kairos_legacy"
)

// Row identifies a row of data_points.
type Row struct {
	Metric string
	// TimeMS is the start of the row in milliseconds.
	TimeMS int64
	// Type is the type of all points of the row.
	Type string
	Tags map[string]string
	// Key is the row's key in data_points.
	Key []byte
}

// IsNumber reports whether the row's points are numbers.
func (r *Row) IsNumber() bool {
	return r.Type == typeLong || r.Type == typeDouble || r.Type == typeLegacy
}

// String describes the row for operators.
func (r *Row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d %s", r.Metric, r.TimeMS, r.Type)
	for _, name := range slices.Sorted(maps.Keys(r.Tags)) {
		fmt.Fprintf(&b, " %s=%q", name, r.Tags[name])
	}
	return b.String()
}

// compareRows orders rows by their keys.
func compareRows(a, b Row) int { return bytes.Compare(a.Key, b.Key) }

// escapeInName and escapeInValue precede a ':' or '=' that is part of a name or a value.
const (
	escapeInName  = ':'
	escapeInValue = '='
)

// appendKey appends the key of a row, see doc.go. If plain is set, tags aren't escaped, as in releases before 1.3.
func appendKey(to []byte, r *Row, plain bool) []byte {
	to = appendKeyHead(to, r.Metric, r.TimeMS)
	if r.Type != typeLegacy {
		to = append(to, 0, byte(len(r.Type)))
		to = append(to, r.Type...)
	}
	names := slices.Collect(maps.Keys(r.Tags))
	slices.SortFunc(names, compareUTF16)
	for _, name := range names {
		if plain {
			to = append(append(append(append(to, name...), '='), r.Tags[name]...), ':')
			continue
		}
		to = append(appendEscaped(to, name, escapeInName), '=')
		to = append(appendEscaped(to, r.Tags[name], escapeInValue), ':')
	}
	return to
}

// appendKeyHead appends the common prefix of the keys of all rows of a metric and a row time.
func appendKeyHead(to []byte, metric string, timeMS int64) []byte {
	return binary.BigEndian.AppendUint64(append(append(to, metric...), 0), uint64(timeMS))
}

func appendEscaped(to []byte, s string, escape byte) []byte {
	for i := range len(s) {
		if s[i] == ':' || s[i] == '=' {
			to = append(to, escape)
		}
		to = append(to, s[i])
	}
	return to
}

// compareUTF16 compares strings like Java, by their UTF-16 code units.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y {
			return slices.Compare(utf16.AppendRune(nil, x), utf16.AppendRune(nil, y))
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

// parseKey parses a row's key. The result refers to key. It returns ErrCorrupt for an invalid key.
func parseKey(key []byte) (Row, error) {
	wrong := func(what string) (Row, error) { return Row{}, fmt.Errorf("%w: key %x: %s", ErrCorrupt, key, what) }
	end := bytes.IndexByte(key, 0)
	if end < 1 || len(key) < end+9 {
		return wrong("metric and time are missing")
	}
	r := Row{Metric: string(key[:end]), TimeMS: int64(binary.BigEndian.Uint64(key[end+1:])), Type: typeLegacy, Key: key}
	rest := key[end+9:]
	if len(rest) > 0 && rest[0] == 0 {
		if len(rest) < 2 || rest[1] > 127 || len(rest) < 2+int(rest[1]) {
			return wrong("the type is truncated")
		}
		r.Type, rest = string(rest[2:2+rest[1]]), rest[2+rest[1]:]
	}
	if !utf8.ValidString(r.Metric) || !utf8.ValidString(r.Type) || !utf8.Valid(rest) {
		return wrong("not valid UTF-8")
	}
	var ok bool
	if r.Tags, ok = parseTags(string(rest)); !ok {
		return wrong("the tags are truncated")
	}
	return r, nil
}

// parseTags parses all of s, which has the form name=value:name=value:
func parseTags(s string) (map[string]string, bool) {
	tags := map[string]string{}
	for s != "" {
		name, rest, ok := cutEscaped(s, '=', escapeInName)
		if !ok {
			return nil, false
		}
		value, rest, ok := cutEscaped(rest, ':', escapeInValue)
		if !ok {
			return nil, false
		}
		tags[name], s = value, rest
	}
	return tags, true
}

// cutEscaped returns the unescaped text before end, and the rest after end.
func cutEscaped(s string, end, escape byte) (before, after string, ok bool) {
	var b []byte
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case end:
			return string(b), s[i+1:], true
		case escape:
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b = append(b, s[i])
	}
	return "", "", false
}
