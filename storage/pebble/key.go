package pebble

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cassia-db/cassia/storage/engine"
)

// The encodings of key fields, drawn in doc.go. They are part of the format: see formatVersion.
const (
	// intZero is added to integers that are encoded in one byte, from intSmallMin to intSmallMax.
	intZero     = 0x80
	intSmallMin = -120
	intSmallMax = 119
	// intPositive and intNegative are the bases of tags of integers with more bytes: of 0xf8 to 0xff for 1 to 8 bytes
	// of a positive integer, and of 0x07 to 0x00 for 1 to 8 bytes of a negative one.
	intPositive = 0xf7 // plus the number of bytes that follow
	intNegative = 0x08 // minus the number of bytes that follow

	textEnd     = 0x00
	textEscape  = 0x01
	escapedEnd  = 0x01 // after textEscape: a byte 0x00
	escapedSelf = 0x02 // after textEscape: a byte 0x01
)

var errBadKey = errors.New("not a key of this table")

// appendKey appends key's encoding to dst. The key must match fields, or be a prefix.
func appendKey(dst []byte, fields []engine.Field, key engine.Key) []byte {
	for i := range key {
		switch fields[i].Kind {
		case engine.KindInt:
			dst = appendInt(dst, key[i].Int)
		case engine.KindText:
			dst = appendText(dst, key[i].Text)
		case engine.KindID:
			dst = append(dst, key[i].Text...)
		}
	}
	return dst
}

// appendPartition appends the prefix of all row keys of a partition, which no other row key has.
func appendPartition(dst []byte, t *engine.Table, partition engine.Key) []byte {
	return appendKey(append(dst, t.ID), t.Partition, partition)
}

func appendInt(dst []byte, v int64) []byte {
	if intSmallMin <= v && v <= intSmallMax {
		return append(dst, byte(v+intZero))
	}
	n := intBytes(v)
	if v > 0 {
		dst = append(dst, byte(intPositive+n))
	} else {
		dst = append(dst, byte(intNegative-n))
	}
	for shift := 8 * (n - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(v>>shift))
	}
	return dst
}

// intBytes returns the number of low bytes of v, at least one, that distinguish it from other values of its sign.
func intBytes(v int64) int {
	u := uint64(v)
	if v < 0 {
		u = ^u
	}
	return (bits.Len64(u|1) + 7) / 8
}

func appendText(dst []byte, s string) []byte {
	for {
		i := indexEscaped(s)
		if i < 0 {
			return append(append(dst, s...), textEnd)
		}
		dst = append(dst, s[:i]...)
		if s[i] == textEnd {
			dst = append(dst, textEscape, escapedEnd)
		} else {
			dst = append(dst, textEscape, escapedSelf)
		}
		s = s[i+1:]
	}
}

func indexEscaped(s string) int {
	for i := range len(s) {
		if s[i] <= textEscape {
			return i
		}
	}
	return -1
}

// afterPrefix appends the smallest key that is larger than all keys that start with prefix. The first byte of prefix
// must not be 0xff.
func afterPrefix(dst, prefix []byte) []byte {
	n := len(prefix)
	for prefix[n-1] == 0xff {
		n--
	}
	dst = append(dst, prefix[:n]...)
	dst[len(dst)-1]++
	return dst
}

// keyDecoder decodes keys and reuses its memory.
type keyDecoder struct {
	key     engine.Key
	scratch []byte
}

// decode decodes a key. The result is valid until the next call, and as long as b is unchanged: the texts of the result
// refer to b, which avoids copying an id per row.
func (d *keyDecoder) decode(fields []engine.Field, b []byte) (engine.Key, error) {
	d.key = d.key[:0]
	d.scratch = d.scratch[:0]
	rest := b
	for _, f := range fields {
		v, after, err := d.cutValue(f.Kind, rest)
		if err != nil {
			return nil, fmt.Errorf("%w: field %s of %s", err, f.Name, hex.EncodeToString(b))
		}
		d.key, rest = append(d.key, v), after
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d extra bytes in %s", errBadKey, len(rest), hex.EncodeToString(b))
	}
	return d.key, nil
}

// cutValue returns a field's value and the bytes after it.
func (d *keyDecoder) cutValue(kind engine.Kind, b []byte) (v engine.Value, rest []byte, err error) {
	switch kind {
	case engine.KindInt:
		v.Int, rest, err = cutInt(b)
	case engine.KindText:
		v.Text, rest, err = d.cutText(b)
	case engine.KindID:
		if len(b) < engine.IDLen {
			return v, nil, errBadKey
		}
		v.Text, rest = engine.UnsafeText(b[:engine.IDLen]), b[engine.IDLen:]
	}
	return v, rest, err
}

func cutInt(b []byte) (v int64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errBadKey
	}
	tag := int(b[0])
	b = b[1:]
	n, negative := 0, false
	switch {
	case tag > intPositive:
		n = tag - intPositive
	case tag < intNegative:
		n, negative = intNegative-tag, true
	default:
		return int64(tag) - intZero, b, nil
	}
	if len(b) < n {
		return 0, nil, errBadKey
	}
	var u uint64
	if negative {
		u = ^uint64(0)
	}
	for _, c := range b[:n] {
		u = u<<8 | uint64(c)
	}
	v = int64(u)
	// A value has only one encoding; otherwise a row could be stored under two keys.
	small := intSmallMin <= v && v <= intSmallMax
	if (v < 0) != negative || small || intBytes(v) != n {
		return 0, nil, errBadKey
	}
	return v, b[n:], nil
}

func (d *keyDecoder) cutText(b []byte) (s string, rest []byte, err error) {
	end := bytes.IndexByte(b, textEnd)
	if end < 0 {
		return "", nil, errBadKey
	}
	text, rest := b[:end], b[end+1:]
	i := bytes.IndexByte(text, textEscape)
	if i < 0 {
		return engine.UnsafeText(text), rest, nil
	}
	// If scratch must grow, texts decoded earlier still refer to the old array.
	start := len(d.scratch)
	for ; i >= 0; i = bytes.IndexByte(text, textEscape) {
		if i+1 == len(text) {
			return "", nil, errBadKey
		}
		d.scratch = append(d.scratch, text[:i]...)
		switch text[i+1] {
		case escapedEnd:
			d.scratch = append(d.scratch, textEnd)
		case escapedSelf:
			d.scratch = append(d.scratch, textEscape)
		default:
			return "", nil, errBadKey
		}
		text = text[i+2:]
	}
	d.scratch = append(d.scratch, text...)
	return engine.UnsafeText(d.scratch[start:]), rest, nil
}
