package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

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

// heldRow is a held row that this process looks after.
type heldRow struct {
	era        int64
	replica    string
	writer     string
	seq        int64
	minT, maxT int64
	reach      int64
	samples    int
	bytes      int64
}

func heldPartition(at clusterName, era int64) engine.Key {
	return engine.Key{engine.Text(at.tenant), engine.Text(at.cluster), engine.Int(era)}
}

func (h *heldRow) key() engine.Key {
	return engine.Key{engine.Text(h.replica), engine.Text(h.writer), engine.Int(h.seq)}
}

// heldBuilder makes held values of samples.
type heldBuilder struct {
	w      blobWriter
	refs   map[*Series]uint32
	now    heldValue
	some   bool  // now has anything
	fresh  reach // without samples
	reach  reach // of now
	values [][]byte
	about  []heldValue
}

func (b *heldBuilder) begin() {
	b.refs = map[*Series]uint32{}
	b.w.Reset(0, 0)
	b.now, b.some = heldValue{}, false
}

// ref returns the number of a series in the blob, which defines it if need be.
func (b *heldBuilder) ref(s *Series) uint32 {
	ref := b.refs[s]
	if ref == 0 {
		ref = uint32(len(b.refs)) + 1
		b.refs[s] = ref
		b.w.Define(s.tenant.name, s.labels)
	}
	return ref
}

func (b *heldBuilder) add(e *entry) {
	b.room(e.t)
	b.now.samples++
	b.reach.add(e.t)
	if ref := b.ref(e.series); e.hist != nil {
		b.w.Histogram(ref, e.t, e.hist)
	} else {
		b.w.Float(ref, e.t, e.st, e.v)
	}
}

// addExemplar adds an exemplar, which doesn't count as a sample.
func (b *heldBuilder) addExemplar(e *exemplarEntry) {
	b.room(e.t)
	b.w.Exemplar(b.ref(e.series), e.t, e.data)
}

// room makes room for one more, at t.
func (b *heldBuilder) room(t int64) {
	if b.refs == nil {
		b.begin()
	} else if b.w.Len() >= heldFull {
		b.cut()
		b.begin()
	}
	if !b.some {
		b.now.minT, b.now.maxT, b.some, b.reach = t, t, true, b.fresh
	}
	b.now.minT, b.now.maxT = min(b.now.minT, t), max(b.now.maxT, t)
}

// cut ends a value.
func (b *heldBuilder) cut() {
	if !b.some {
		return
	}
	b.now.reach = b.reach.ms()
	b.values = append(b.values, appendHeld(nil, b.now, b.w.Finish()))
	b.about = append(b.about, b.now)
	b.now, b.some = heldValue{}, false
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

// readHeld reads one held row; ok is false when it is gone.
func (s *Store) readHeld(ctx context.Context, at clusterName, h *heldRow) (value []byte, ok bool, err error) {
	key := h.key()
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Held, Partition: heldPartition(at, h.era), From: key, To: key, Limit: 1}) {
		if err != nil {
			return nil, false, fmt.Errorf("storage: reading a held row: %w", err)
		}
		return slices.Clone(row.Value), true, nil
	}
	return nil, false, nil
}

// heldWords tells what a held row has.
func heldWords(value []byte) (string, error) {
	v, err := parseHeld(value)
	if err != nil {
		return "", err
	}
	blob, err := v.unpack()
	if err != nil {
		return "", err
	}
	words, err := blobWords(blob)
	return fmt.Sprintf("%d bytes, %d samples: %s", len(value), v.samples, words), err
}
