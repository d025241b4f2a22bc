package storage

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
	// maxSlotExemplars is how many exemplars of a series and slot are kept, one every seven seconds of a slot of two
	// hours: the newest newestExemplars, and of those before them as many as there is room for, drawn evenly.
	maxSlotExemplars = 1024
	newestExemplars  = 256
	// maxExemplarRow is from how many bytes a row takes no further exemplar.
	maxExemplarRow = 64 << 10

	exemplarsVersion = 1
)

var errBadExemplar = errors.New("storage: malformed exemplar")

// appendExemplar appends an exemplar but for its time. Its bytes are in the order of values.
//
//	+------------------------------------------------+------+-------+------+----
//	| value's bits, big-endian: of negative ones all | name | value | name | …
//	| flipped, of others the sign    8 bytes         | text | text  | text |
//	+------------------------------------------------+------+-------+------+----
func appendExemplar(dst []byte, v float64, ls labels.Labels) []byte {
	bits := math.Float64bits(v)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	dst = binary.BigEndian.AppendUint64(dst, bits)
	ls.Range(func(l labels.Label) { dst = appendString(appendString(dst, l.Name), l.Value) })
	return dst
}

// parseExemplar is the inverse of appendExemplar.
func parseExemplar(t int64, b []byte, builder *labels.ScratchBuilder) (e exemplar.Exemplar, err error) {
	if len(b) < 8 {
		return e, fmt.Errorf("%w: %d bytes", errBadExemplar, len(b))
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
		if name, b, err = takeString(b); err == nil {
			value, b, err = takeString(b)
		}
		if err != nil {
			return e, fmt.Errorf("%w: truncated labels", errBadExemplar)
		}
		builder.Add(string(name), string(value))
	}
	builder.Sort()
	return exemplar.Exemplar{Labels: builder.Labels(), Value: math.Float64frombits(bits), Ts: t, HasTs: true}, nil
}

// storedExemplar is an exemplar with its time, and what appendExemplar makes of the rest.
type storedExemplar struct {
	t    int64
	data []byte
}

func (e storedExemplar) compare(o storedExemplar) int {
	return cmp.Or(cmp.Compare(e.t, o.t), bytes.Compare(e.data, o.data))
}

// keepExemplars sorts what was found of a series in a slot, and leaves out what is there twice. Where it is too much it
// leaves the newest, and of the others a sample: those of the least hashes, as bottom-k sketches draw them
// (Cohen and Kaplan, 2007). Done to parts, and then to what is left of all, it leaves the same: so it doesn't matter in
// which order, and in how many rows, they came.
func keepExemplars(list []storedExemplar) []storedExemplar {
	slices.SortFunc(list, storedExemplar.compare)
	list = slices.CompactFunc(list, func(a, b storedExemplar) bool { return a.compare(b) == 0 })
	if len(list) <= maxSlotExemplars {
		return list
	}
	older, newest := list[:len(list)-newestExemplars], list[len(list)-newestExemplars:]
	drawn := make([]drawnExemplar, len(older))
	for i, e := range older {
		drawn[i] = drawnExemplar{e.lot(), e}
	}
	slices.SortFunc(drawn, func(a, b drawnExemplar) int { return cmp.Or(cmp.Compare(a.lot, b.lot), a.compare(b.storedExemplar)) })
	kept := older[:0]
	for _, d := range drawn[:maxSlotExemplars-newestExemplars] {
		kept = append(kept, d.storedExemplar)
	}
	slices.SortFunc(kept, storedExemplar.compare)
	return append(kept, newest...)
}

type drawnExemplar struct {
	lot uint64
	storedExemplar
}

// lot is the number by which an exemplar is drawn: the same in every process, for ever.
func (e storedExemplar) lot() uint64 {
	h := xxhash.New()
	_, _ = h.Write(binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(e.t)))
	_, _ = h.Write(e.data)
	return h.Sum64()
}

// appendExemplars appends a row of sorted exemplars:
//
//	+---------+-----------+---------+----------+-----------+---------+----------+- - -+--------+
//	| version | first t   | length  | exemplar | t − the t | length  | exemplar |  …  | CRC-32C|
//	| 1 byte  | varint    | uvarint |          | before    | uvarint |          |     | 4, LE  |
//	|         |           |         |          | varint    |         |          |     |        |
//	+---------+-----------+---------+----------+-----------+---------+----------+- - -+--------+
//
// The checksum is over all bytes before it.
func appendExemplars(dst []byte, list []storedExemplar) []byte {
	from, t := len(dst), int64(0)
	dst = append(dst, exemplarsVersion)
	for _, e := range list {
		dst = binary.AppendVarint(dst, e.t-t)
		dst = binary.AppendUvarint(dst, uint64(len(e.data)))
		dst = append(dst, e.data...)
		t = e.t
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// parseExemplars appends the exemplars of a row. Their data are parts of b.
func parseExemplars(b []byte, into []storedExemplar) ([]storedExemplar, error) {
	if len(b) < 5 || b[0] != exemplarsVersion {
		return into, fmt.Errorf("%w: %d bytes, or an unknown version", errBadExemplar, len(b))
	}
	body := b[:len(b)-4]
	if want, got := binary.LittleEndian.Uint32(b[len(body):]), crc32.Checksum(body, castagnoli); want != got {
		return into, fmt.Errorf("%w: checksum %08x, computed %08x", errBadExemplar, want, got)
	}
	t, before := int64(0), len(into)
	for body = body[1:]; len(body) > 0; {
		d, n := binary.Varint(body)
		if n <= 0 {
			return into[:before], fmt.Errorf("%w: truncated", errBadExemplar)
		}
		data, rest, err := takeString(body[n:])
		if err != nil || len(data) < 8 {
			return into[:before], fmt.Errorf("%w: truncated", errBadExemplar)
		}
		t, body = t+d, rest
		into = append(into, storedExemplar{t, data})
	}
	return into, nil
}
