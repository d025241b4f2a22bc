package format

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
)

const (
	// MaxSlotExemplars is the max number of exemplars per series and slot, one every seven seconds of a slot of two
	// hours: the newest NewestExemplars, and a uniform sample of the older ones.
	MaxSlotExemplars = 1024
	NewestExemplars  = 256
	// MaxExemplarRow is the size in bytes from which no more exemplars are added to a row.
	MaxExemplarRow = 64 << 10

	exemplarsVersion = 1
)

// ErrMalformedExemplar is returned for an invalid exemplar or row of exemplars.
var ErrMalformedExemplar = errors.New("format: malformed exemplar")

// AppendExemplar appends an exemplar without its timestamp. The bytes sort like the values.
//
//	+------------------------------------------------+------+-------+------+----
//	| value's bits, big-endian: of negative ones all | name | value | name | …
//	| flipped, of others the sign    8 bytes         | text | text  | text |
//	+------------------------------------------------+------+-------+------+----
func AppendExemplar(dst []byte, v float64, ls labels.Labels) []byte {
	bits := math.Float64bits(v)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	dst = binary.BigEndian.AppendUint64(dst, bits)
	ls.Range(func(l labels.Label) { dst = AppendString(AppendString(dst, l.Name), l.Value) })
	return dst
}

// ParseExemplar is the inverse of AppendExemplar. It returns ErrMalformedExemplar for invalid bytes.
func ParseExemplar(t int64, b []byte, builder *labels.ScratchBuilder) (e exemplar.Exemplar, err error) {
	if len(b) < 8 {
		return e, fmt.Errorf("%w: only %d bytes", ErrMalformedExemplar, len(b))
	}
	bits := binary.BigEndian.Uint64(b)
	if bits>>63 != 0 {
		bits &^= 1 << 63
	} else {
		bits = ^bits
	}
	builder.Reset()
	for b = b[8:]; len(b) > 0; {
		var name, value []byte
		if name, b, err = CutString(b); err == nil {
			value, b, err = CutString(b)
		}
		if err != nil {
			return e, fmt.Errorf("%w: truncated labels", ErrMalformedExemplar)
		}
		builder.Add(string(name), string(value))
	}
	builder.Sort()
	return exemplar.Exemplar{Labels: builder.Labels(), Value: math.Float64frombits(bits), Ts: t, HasTs: true}, nil
}

// Exemplar is a stored exemplar: its timestamp in milliseconds, and the rest as encoded by AppendExemplar.
type Exemplar struct {
	T    int64
	Data []byte
}

// Compare orders exemplars by timestamp, value and labels.
func (e Exemplar) Compare(o Exemplar) int {
	return cmp.Or(cmp.Compare(e.T, o.T), bytes.Compare(e.Data, o.Data))
}

// SelectExemplars sorts the exemplars of a series and slot, removes duplicates, and keeps at most MaxSlotExemplars: the
// newest NewestExemplars, and among the older ones those with the lowest hashes, as bottom-k sketches do (Cohen and
// Kaplan, 2007). Selecting from parts of the exemplars, and then from the joined results, gives the same result. So the
// result doesn't depend on the order of arrival or on the number of rows. It is stored in the memory of list.
func SelectExemplars(list []Exemplar) []Exemplar {
	slices.SortFunc(list, Exemplar.Compare)
	list = slices.CompactFunc(list, func(a, b Exemplar) bool { return a.Compare(b) == 0 })
	if len(list) <= MaxSlotExemplars {
		return list
	}
	older, newest := list[:len(list)-NewestExemplars], list[len(list)-NewestExemplars:]
	drawn := make([]drawnExemplar, len(older))
	for i, e := range older {
		drawn[i] = drawnExemplar{e.drawHash(), e}
	}
	slices.SortFunc(drawn, func(a, b drawnExemplar) int {
		return cmp.Or(cmp.Compare(a.lot, b.lot), a.Compare(b.Exemplar))
	})
	kept := older[:0]
	for _, d := range drawn[:MaxSlotExemplars-NewestExemplars] {
		kept = append(kept, d.Exemplar)
	}
	slices.SortFunc(kept, Exemplar.Compare)
	return append(kept, newest...)
}

type drawnExemplar struct {
	lot uint64
	Exemplar
}

// drawHash returns the hash by which an exemplar is selected. It must be the same in every process and release.
func (e Exemplar) drawHash() uint64 {
	h := xxhash.New()
	_, _ = h.Write(binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(e.T)))
	_, _ = h.Write(e.Data)
	return h.Sum64()
}

// AppendExemplars appends a row of sorted exemplars:
//
//	+---------+-----------+---------+----------+-----------+---------+----------+- - -+--------+
//	| version | first t   | length  | exemplar | t − the t | length  | exemplar |  …  | CRC-32C|
//	| 1 byte  | varint    | uvarint |          | before    | uvarint |          |     | 4, LE  |
//	|         |           |         |          | varint    |         |          |     |        |
//	+---------+-----------+---------+----------+-----------+---------+----------+- - -+--------+
//
// The checksum is over all bytes before it.
func AppendExemplars(dst []byte, list []Exemplar) []byte {
	from, t := len(dst), int64(0)
	dst = append(dst, exemplarsVersion)
	for _, e := range list {
		dst = binary.AppendVarint(dst, e.T-t)
		dst = binary.AppendUvarint(dst, uint64(len(e.Data)))
		dst = append(dst, e.Data...)
		t = e.T
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// parseExemplars is the inverse of AppendExemplars. It appends to into. The exemplars' Data are subslices of b.
func parseExemplars(b []byte, into []Exemplar) ([]Exemplar, error) {
	if len(b) < 5 || b[0] != exemplarsVersion {
		return into, fmt.Errorf("%w: %d bytes are too few, or the version is unknown", ErrMalformedExemplar, len(b))
	}
	body := b[:len(b)-4]
	if want, got := binary.LittleEndian.Uint32(b[len(body):]), crc32.Checksum(body, castagnoli); want != got {
		return into, fmt.Errorf("%w: checksum %08x, computed %08x", ErrMalformedExemplar, want, got)
	}
	t, before := int64(0), len(into)
	for body = body[1:]; len(body) > 0; {
		d, n := binary.Varint(body)
		if n <= 0 {
			return into[:before], fmt.Errorf("%w: truncated", ErrMalformedExemplar)
		}
		data, rest, err := CutString(body[n:])
		if err != nil || len(data) < 8 {
			return into[:before], fmt.Errorf("%w: truncated", ErrMalformedExemplar)
		}
		t, body = t+d, rest
		into = append(into, Exemplar{t, data})
	}
	return into, nil
}
