package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
)

// LabelsVersion is the first byte written by AppendLabels.
const LabelsVersion = 1

// ErrMalformedLabels is returned for invalid labels, and for an invalid text in another row.
var ErrMalformedLabels = errors.New("format: malformed labels")

// AppendLabels appends the value of a labels row: the labels of a series without its metric's name, which is in the
// row's key:
//
//	+---------+-----------+------+-----------+-------+----
//	| version | name len  | name | value len | value | …
//	| 1 byte  | uvarint   |      | uvarint   |       |
//	+---------+-----------+------+-----------+-------+----
func AppendLabels(dst []byte, ls labels.Labels) []byte {
	dst = append(dst, LabelsVersion)
	ls.Range(func(l labels.Label) {
		if l.Name != labels.MetricName {
			dst = AppendString(AppendString(dst, l.Name), l.Value)
		}
	})
	return dst
}

// LabelsSize returns the approximate number of bytes that AppendLabels appends. It isn't too low if no name or value is
// longer than 127 bytes.
func LabelsSize(ls labels.Labels) (n int) {
	n = 1
	ls.Range(func(l labels.Label) { n += len(l.Name) + len(l.Value) + 2 })
	return n
}

// ParseLabels is the inverse of AppendLabels. It returns ErrMalformedLabels for invalid bytes.
func ParseLabels(b []byte, metric string, builder *labels.ScratchBuilder) (labels.Labels, error) {
	if err := parseLabels(b, metric, builder); err != nil {
		return labels.EmptyLabels(), err
	}
	return builder.Labels(), nil
}

// parseLabels sets the labels of the builder, as parts of b.
func parseLabels(b []byte, metric string, builder *labels.ScratchBuilder) error {
	builder.Reset()
	builder.Add(labels.MetricName, metric)
	add := func(name, value []byte) { builder.Add(engine.UnsafeText(name), engine.UnsafeText(value)) }
	if err := EachLabel(b, add); err != nil {
		return err
	}
	builder.Sort()
	return nil
}

// EachLabel calls label for each name and value in b, which AppendLabels encoded, in the stored order. The arguments of
// label are subslices of b. EachLabel returns ErrMalformedLabels if b is invalid, possibly after calls of label.
func EachLabel(b []byte, label func(name, value []byte)) error {
	if len(b) == 0 || b[0] != LabelsVersion {
		return fmt.Errorf("%w: unknown version", ErrMalformedLabels)
	}
	for b = b[1:]; len(b) > 0; {
		name, rest, err := CutString(b)
		if err != nil {
			return err
		}
		value, rest, err := CutString(rest)
		if err != nil {
			return err
		}
		label(name, value)
		b = rest
	}
	return nil
}

// AppendString appends a text: its length as uvarint, then its bytes.
func AppendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// CutString is the inverse of AppendString. It returns the text at the start of b, as a subslice, and the bytes after
// it. It returns ErrMalformedLabels if b is too short.
func CutString(b []byte) (s, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, fmt.Errorf("%w: truncated", ErrMalformedLabels)
	}
	return b[w : w+int(n)], b[w+int(n):], nil
}
