package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/golang/snappy"

	"github.com/cassia-db/cassia/storage/engine"
)

// A held row contains samples of a replica that isn't the elected one:
//
//	+---------+--------------+--------+---------------+---------------------+---------+---------------------------+
//	| version | CRC-32C of   | min t  | max t − min t | 0, or               | samples | a self-contained blob,    |
//	| 1 byte  | the rest     | varint | uvarint       | max t − reach t + 1 | uvarint | as a snappy block         |
//	|         | 4 bytes LE   |        |               | uvarint             |         |                           |
//	+---------+--------------+--------+---------------+---------------------+---------+---------------------------+
//
// The reach is the latest time at which the replica is known to have been alive, judging by when its samples were
// received. It is stored as 0 if it is unknown.
const (
	heldVersion = 1
	heldHeader  = 5
	// HeldFull is the size in bytes at which the blob of a held row is full: no more samples are added to it. With the
	// largest possible sample, and snappy's expansion by up to a sixth, the row is still smaller than engine.MaxValue.
	HeldFull = 256 << 10
)

// ErrMalformedHeld is returned for an invalid held row.
var ErrMalformedHeld = errors.New("format: malformed row of held samples")

// HeldValue is the value of a held row.
type HeldValue struct {
	// MinT and MaxT are the min and max timestamps of the samples in milliseconds.
	MinT, MaxT int64
	// Reach is the latest time, in milliseconds, at which the replica is known to have been alive, judging by when its
	// samples were received. It is math.MinInt64 if this is unknown.
	Reach   int64
	Samples int
	// Blob is compressed, see Unpack.
	Blob []byte
}

// HeldPartition returns the partition key of the rows held for a tenant's cluster in an era.
func HeldPartition(tenant, cluster string, era int64) engine.Key {
	return engine.Key{engine.Text(tenant), engine.Text(cluster), engine.Int(era)}
}

// HeldKey returns the clustering key of a held row.
func HeldKey(replica, writer string, seq int64) engine.Key {
	return engine.Key{engine.Text(replica), engine.Text(writer), engine.Int(seq)}
}

// AppendHeld appends the value of a held row. about has the fields of the value except Blob. blob is the uncompressed
// blob; AppendHeld compresses it.
func AppendHeld(dst []byte, about HeldValue, blob []byte) []byte {
	at := len(dst)
	dst = append(dst, heldVersion, 0, 0, 0, 0)
	dst = binary.AppendVarint(dst, about.MinT)
	dst = binary.AppendUvarint(dst, uint64(about.MaxT-about.MinT))
	reach := uint64(0)
	if about.Reach != math.MinInt64 {
		reach = uint64(about.MaxT-about.Reach) + 1
	}
	dst = binary.AppendUvarint(dst, reach)
	dst = binary.AppendUvarint(dst, uint64(about.Samples))
	dst = append(dst, snappy.Encode(nil, blob)...)
	binary.LittleEndian.PutUint32(dst[at+1:], crc32.Checksum(dst[at+heldHeader:], castagnoli))
	return dst
}

// ParseHeld is the inverse of AppendHeld. The Blob of the result is a subslice of b. It returns ErrMalformedHeld for
// invalid bytes.
func ParseHeld(b []byte) (v HeldValue, err error) {
	if len(b) < heldHeader || b[0] != heldVersion {
		return v, fmt.Errorf("%w: %d bytes are too few, or the version is unknown", ErrMalformedHeld, len(b))
	}
	if want, got := binary.LittleEndian.Uint32(b[1:]), crc32.Checksum(b[heldHeader:], castagnoli); want != got {
		return v, fmt.Errorf("%w: checksum %08x, computed %08x", ErrMalformedHeld, want, got)
	}
	b = b[heldHeader:]
	var n int
	if v.MinT, n = binary.Varint(b); n <= 0 {
		return v, fmt.Errorf("%w: the time is missing", ErrMalformedHeld)
	}
	b = b[n:]
	width, n := binary.Uvarint(b)
	if n <= 0 {
		return v, fmt.Errorf("%w: the end is missing", ErrMalformedHeld)
	}
	b = b[n:]
	back, n := binary.Uvarint(b)
	if n <= 0 {
		return v, fmt.Errorf("%w: the progress of the replica is missing", ErrMalformedHeld)
	}
	b = b[n:]
	samples, n := binary.Uvarint(b)
	if n <= 0 || samples > engine.MaxValue {
		return v, fmt.Errorf("%w: the number of samples is missing", ErrMalformedHeld)
	}
	v.MaxT, v.Samples, v.Blob = v.MinT+int64(width), int(samples), b[n:]
	if v.MaxT < v.MinT {
		return v, fmt.Errorf("%w: the end is before the start", ErrMalformedHeld)
	}
	switch v.Reach = v.MaxT - int64(back-1); {
	case back == 0:
		v.Reach = math.MinInt64
	case v.Reach > v.MaxT:
		return v, fmt.Errorf("%w: the progress of the replica is out of range", ErrMalformedHeld)
	}
	return v, nil
}

// Unpack returns the decompressed blob, or ErrMalformedHeld.
func (v *HeldValue) Unpack() ([]byte, error) {
	size, err := snappy.DecodedLen(v.Blob)
	if err != nil || size > engine.MaxValue {
		return nil, fmt.Errorf("%w: the blob has an invalid decompressed size of %d bytes (%v)",
			ErrMalformedHeld, size, err)
	}
	blob, err := snappy.Decode(nil, v.Blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformedHeld, err)
	}
	return blob, nil
}

// Walk unpacks the blob and passes its records to sink: see BlobReader.Walk.
func (v *HeldValue) Walk(sink BlobSink) error {
	blob, err := v.Unpack()
	if err != nil {
		return err
	}
	var reader BlobReader
	if err := reader.Open(blob); err != nil {
		return err
	}
	return reader.Walk(sink)
}
