package engine

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// Kind is the type of a key field. Engines map it to their own type: an order-preserving encoding on Pebble, a CQL type
// on Cassandra.
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

// Table declares a table of wide rows. A row is found by its complete partition key, and the rows of a partition are
// ordered by clustering key. Partitions have no order. Engines that sort keys store the partition fields in the
// declared order, so that Drop by a prefix removes one range.
type Table struct {
	// ID is the first byte of the table's keys on Pebble. It is never reused.
	ID byte
	// Name is the table's name in CQL, in metrics and in messages.
	Name string
	// Partition and Clustering are the key, most significant field first.
	Partition, Clustering []Field
	// Converging is true if a row may be written again. The write with the highest timestamp wins, in any order of the
	// writes. At the same timestamp, the value that is larger by bytes wins. Rows of a converging table are never
	// deleted individually. In other tables a key has the same content forever, and writing it again has no effect.
	// Different content may only be written with a higher timestamp, and only by a caller that has made sure that the
	// first write can't be applied later.
	Converging bool
	// Conditional is true if rows of the table are written only by CompareAndSet.
	Conditional bool
	// Remembered is true if readers cache the rows of a partition, see Versioned.
	Remembered bool
}

func (t *Table) String() string { return t.Name }

// Value is one field of a key: Int for KindInt, Text for KindText and KindID (as raw bytes).
type Value struct {
	Text string
	Int  int64
}

// Int returns a KindInt value.
func Int(v int64) Value { return Value{Int: v} }

// Text returns a KindText or KindID value.
func Text(s string) Value { return Value{Text: s} }

// Key is a partition or clustering key, or a prefix of one of them.
type Key []Value

// Clone returns a copy that shares no memory with k, because texts of a key may be valid only temporarily. It returns
// nil if k is nil.
func (k Key) Clone() Key {
	clone := slices.Clone(k)
	for i := range clone {
		clone[i].Text = strings.Clone(clone[i].Text)
	}
	return clone
}

// CheckKey returns an error if key doesn't match fields. If prefix is true, key may have fewer fields.
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

// UnsafeText returns b as a string without copying. The string is valid until b is modified.
func UnsafeText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
