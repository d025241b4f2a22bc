package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/golang/snappy"

	"github.com/cassia-db/cassia/storage/engine"
)

// A held row has samples of a replica that isn't the elected one:
//
//	+---------+--------------+--------+---------------+---------------------+---------+---------------------------+
//	| version | CRC-32C of   | min t  | max t − min t | 0, or               | samples | a blob that stands alone, |
//	| 1 byte  | what follows | varint | uvarint       | max t − reach t + 1 | uvarint | as a snappy block         |
//	|         | 4 bytes LE   |        |               | uvarint             |         |                           |
//	+---------+--------------+--------+---------------+---------------------+---------+---------------------------+
//
// The reach is how far they showed, when they came, that their replica had gone on; 0: they showed nothing. Version 1
// doesn't have it.
const (
	heldVersion = 2
	heldHeader  = 5
	// heldFull is the size from which a held blob takes no further sample. With the greatest record, and where
	// snappy makes it longer by a sixth, it stays below engine.MaxValue.
	heldFull = 256 << 10
)

var errBadHeld = errors.New("storage: malformed held row")

// heldValue is what a held row tells of itself.
type heldValue struct {
	minT, maxT int64
	reach      int64 // math.MinInt64: none
	samples    int
	blob       []byte // packed
}

func heldPartition(tenant, cluster string, era int64) engine.Key {
	return engine.Key{engine.Text(tenant), engine.Text(cluster), engine.Int(era)}
}

func heldKey(replica, writer string, seq int64) engine.Key {
	return engine.Key{engine.Text(replica), engine.Text(writer), engine.Int(seq)}
}

func appendHeld(dst []byte, about heldValue, blob []byte) []byte {
	at := len(dst)
	dst = append(dst, heldVersion, 0, 0, 0, 0)
	dst = binary.AppendVarint(dst, about.minT)
	dst = binary.AppendUvarint(dst, uint64(about.maxT-about.minT))
	reach := uint64(0)
	if about.reach != math.MinInt64 {
		reach = uint64(about.maxT-about.reach) + 1
	}
	dst = binary.AppendUvarint(dst, reach)
	dst = binary.AppendUvarint(dst, uint64(about.samples))
	dst = append(dst, snappy.Encode(nil, blob)...)
	binary.LittleEndian.PutUint32(dst[at+1:], crc32.Checksum(dst[at+heldHeader:], castagnoli))
	return dst
}

// parseHeld reads what a held row tells of itself; the blob refers to b.
func parseHeld(b []byte) (v heldValue, err error) {
	if len(b) < heldHeader || b[0] == 0 || b[0] > heldVersion {
		return v, fmt.Errorf("%w: %d bytes, or an unknown version", errBadHeld, len(b))
	}
	version := b[0]
	if want, got := binary.LittleEndian.Uint32(b[1:]), crc32.Checksum(b[heldHeader:], castagnoli); want != got {
		return v, fmt.Errorf("%w: checksum %08x, computed %08x", errBadHeld, want, got)
	}
	b = b[heldHeader:]
	var n int
	if v.minT, n = binary.Varint(b); n <= 0 {
		return v, fmt.Errorf("%w: no time", errBadHeld)
	}
	b = b[n:]
	width, n := binary.Uvarint(b)
	if n <= 0 {
		return v, fmt.Errorf("%w: no end", errBadHeld)
	}
	b = b[n:]
	back := uint64(0)
	if version > 1 {
		if back, n = binary.Uvarint(b); n <= 0 {
			return v, fmt.Errorf("%w: no reach", errBadHeld)
		}
		b = b[n:]
	}
	samples, n := binary.Uvarint(b)
	if n <= 0 || samples > engine.MaxValue {
		return v, fmt.Errorf("%w: no number of samples", errBadHeld)
	}
	v.maxT, v.samples, v.blob = v.minT+int64(width), int(samples), b[n:]
	if v.maxT < v.minT {
		return v, fmt.Errorf("%w: it ends before it begins", errBadHeld)
	}
	switch v.reach = v.maxT - int64(back-1); {
	case version == 1:
		v.reach = v.minT
	case back == 0:
		v.reach = math.MinInt64
	case v.reach > v.maxT:
		return v, fmt.Errorf("%w: its reach overflows", errBadHeld)
	}
	return v, nil
}

// unpack returns the blob of a held value.
func (v *heldValue) unpack() ([]byte, error) {
	size, err := snappy.DecodedLen(v.blob)
	if err != nil || size > engine.MaxValue {
		return nil, fmt.Errorf("%w: its blob claims %d bytes (%v)", errBadHeld, size, err)
	}
	blob, err := snappy.Decode(nil, v.blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadHeld, err)
	}
	return blob, nil
}
