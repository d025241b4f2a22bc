package engine

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// Kind is the type of a key field. Engines map it to their own: an order-preserving encoding on Pebble,
// a CQL type on Cassandra.
type Kind uint8

const (
	// KindInt is a signed 64-bit integer, ordered numerically.
	KindInt Kind = iota + 1
	// KindText is UTF-8 text of any length up to MaxKeyText, ordered by bytes.
	KindText
	// KindID is exactly IDLen bytes (a series, a writer, a content hash), ordered by bytes.
	KindID
)

// IDLen is the length in bytes of every KindID field.
const IDLen = 16

// Field is one typed column of a key.
type Field struct {
	Name string
	Kind Kind
}

// Table declares a wide-row table. Rows are found by their whole partition key; within a partition they
// are ordered by the clustering key. Nothing orders partitions, but on engines that sort keys the
// partition fields come in the declared order, so that Drop by a prefix is one range.
type Table struct {
	// ID is the table's first key byte on Pebble. It is never reused.
	ID byte
	// Name is the table's name in CQL, in metrics and in what people read.
	Name string
	// Partition and Clustering are the key, most significant field first.
	Partition, Clustering []Field
	// Converging: a row may be written again, and the greatest timestamp wins (at one
	// timestamp the greater value, by bytes), whatever arrives first. Otherwise a key names one content
	// for ever: writing it again is harmless. Something else may only be written with a greater timestamp, by a
	// caller who can be sure that the first isn't on its way any more.
	// Rows of a converging table are never deleted one by one.
	Converging bool
	// Conditional: the table's rows are written by CompareAndSet only.
	Conditional bool
	// Remembered: readers cache the rows of a partition, see Versioned.
	Remembered bool
}

func (t *Table) String() string { return t.Name }

// Value is one field of a key: Int for KindInt, Text for KindText and KindID (as raw bytes).
type Value struct {
	Text string
	Int  int64
}

// Int is a KindInt value.
func Int(v int64) Value { return Value{Int: v} }

// Text is a KindText or KindID value.
func Text(s string) Value { return Value{Text: s} }

// Key lists values of a partition or clustering key, or of a prefix of one.
type Key []Value

// Clone returns a copy that shares no memory with k, whose texts may be valid for a while only; nil if k is nil.
func (k Key) Clone() Key {
	clone := slices.Clone(k)
	for i := range clone {
		clone[i].Text = strings.Clone(clone[i].Text)
	}
	return clone
}

// CheckKey returns an error if key doesn't fit fields; prefix allows it to be shorter.
func CheckKey(fields []Field, key Key, prefix bool) error {
	if len(key) > len(fields) || (!prefix && len(key) != len(fields)) {
		return fmt.Errorf("%w: the key has %d fields, but the table declares %d", ErrBadKey, len(key), len(fields))
	}
	for i, v := range key {
		switch f := fields[i]; f.Kind {
		case KindInt:
			if v.Text != "" {
				return fmt.Errorf("%w: %s is an integer, got text %q", ErrBadKey, f.Name, v.Text)
			}
		case KindText:
			if len(v.Text) > MaxKeyText {
				return fmt.Errorf("%w: %s has %d bytes; the maximum is %d", ErrBadKey, f.Name, len(v.Text), MaxKeyText)
			}
		case KindID:
			if len(v.Text) != IDLen {
				return fmt.Errorf("%w: %s has %d bytes; it must have %d", ErrBadKey, f.Name, len(v.Text), IDLen)
			}
		}
	}
	return nil
}

// UnsafeText returns b as a text that is valid as long as b isn't changed.
func UnsafeText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
