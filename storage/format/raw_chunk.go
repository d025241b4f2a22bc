package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

// TombstoneIDs are ids of deletes, 16 bytes each, sorted and concatenated. A raw chunk is exempt from the deletes whose
// ids it contains: it was sealed after the delete, or the deleted samples have already been removed from it.
type TombstoneIDs []byte

// Count returns the number of ids.
func (e TombstoneIDs) Count() int { return len(e) / engine.IDLen }

// Has reports whether e contains an id.
func (e TombstoneIDs) Has(id string) bool {
	for at := 0; at+engine.IDLen <= len(e); at += engine.IDLen {
		if string(e[at:at+engine.IDLen]) == id {
			return true
		}
	}
	return false
}

// Union returns the ids of e and o, without duplicates. It may return e itself.
func (e TombstoneIDs) Union(o TombstoneIDs) TombstoneIDs {
	if len(o) == 0 || bytes.Equal(e, o) {
		return e
	}
	var ids [][]byte
	for _, list := range []TombstoneIDs{e, o} {
		for id := range slices.Chunk(list, engine.IDLen) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, bytes.Compare)
	return bytes.Join(slices.CompactFunc(ids, bytes.Equal), nil)
}

// SelectApplying returns the deletes whose ids are not in e. Of ds, these are the deletes that apply to a chunk whose
// exempt ids are e.
func (e TombstoneIDs) SelectApplying(ds Tombstones) Tombstones {
	if len(e) == 0 {
		return ds
	}
	return ds.Filter(func(d *Tombstone) bool { return !e.Has(d.ID) })
}

// Weight returns the contribution of a raw chunk to the version of rollups: one, plus one for each delete that has been
// or will be applied to it. It never decreases, because a cleaned chunk contains the ids of the deletes that were
// counted before.
func (e TombstoneIDs) Weight(ds Tombstones) uint64 {
	return uint64(1 + e.Count() + len(e.SelectApplying(ds)))
}

const (
	// envelopeVersion is the first byte of a raw chunk with ids of deletes. Other raw chunks start with the chunk's own
	// version.
	envelopeVersion = 2
	// flagCleaned is the flag of a cleaned chunk. The key of such a chunk has the hash of the value before the
	// cleaning.
	flagCleaned = 1
)

// RawChunk is the value of a row of chunks or exemplars in table raw.
type RawChunk struct {
	// Exempt are the deletes that don't apply to the row.
	Exempt TombstoneIDs
	// Cleaned is set if the row was rewritten without the samples of these deletes.
	Cleaned bool
	// Data is a chunk of package chunk, or the bytes of AppendExemplars. It is nil if all samples were deleted.
	Data []byte
}

// AppendRawChunk appends the row's value: Data alone if c has no ids of deletes, or else
//
//	+---------+--------+---------+---------------+--------+- - - - - - - -+
//	| version | flags  | number  | deletes' ids, | CRC-32C| chunk, or     |
//	| 1 byte:2| 1 byte | uvarint | 16 bytes each | 4, LE  | nothing       |
//	+---------+--------+---------+---------------+--------+- - - - - - - -+
//
// Flag 1: the row was cleaned. The checksum is over the bytes before it; the chunk has its own checksum.
func AppendRawChunk(dst []byte, c RawChunk) []byte {
	if len(c.Exempt) == 0 {
		return append(dst, c.Data...)
	}
	from := len(dst)
	flags := byte(0)
	if c.Cleaned {
		flags |= flagCleaned
	}
	dst = append(dst, envelopeVersion, flags)
	dst = binary.AppendUvarint(dst, uint64(c.Exempt.Count()))
	dst = append(dst, c.Exempt...)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
	return append(dst, c.Data...)
}

// ParseRawChunk is the inverse of AppendRawChunk. The result refers to b. It returns chunk.ErrCorrupt if the ids of
// deletes are invalid. It doesn't check Data.
func ParseRawChunk(b []byte) (c RawChunk, err error) {
	if len(b) == 0 || b[0] != envelopeVersion {
		return RawChunk{Data: b}, nil
	}
	bad := func(why string) (RawChunk, error) {
		return RawChunk{}, fmt.Errorf("%w: the list of deletes: %s", chunk.ErrCorrupt, why)
	}
	if len(b) < 3 {
		return bad("truncated")
	}
	count, n := binary.Uvarint(b[2:])
	head := 2 + n
	if n <= 0 || count > uint64(len(b)) || len(b) < head+int(count)*engine.IDLen+4 {
		return bad("truncated")
	}
	end := head + int(count)*engine.IDLen
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return bad("the checksum doesn't match")
	}
	c = RawChunk{Exempt: TombstoneIDs(b[head:end]), Cleaned: b[1]&flagCleaned != 0}
	if end+4 < len(b) {
		c.Data = b[end+4:]
	}
	return c, nil
}

// DecodeRawChunk decodes a row of chunks and appends to into the samples to which none of ds applies. It returns
// chunk.ErrCorrupt for an invalid row.
func DecodeRawChunk(b []byte, ds Tombstones, into *chunk.Samples) (RawChunk, error) {
	c, err := ParseRawChunk(b)
	if err != nil || c.Data == nil {
		return c, err
	}
	ds = c.Exempt.SelectApplying(ds)
	if len(ds) == 0 {
		return c, chunk.Decode(c.Data, into)
	}
	var all chunk.Samples
	if err := chunk.Decode(c.Data, &all); err != nil {
		return c, err
	}
	ds.RemoveDeleted(&all)
	into.AppendAll(&all)
	return c, nil
}

// DecodeRawExemplars returns the exemplars of a row to which none of ds applies. The result refers to b. It returns
// chunk.ErrCorrupt or ErrMalformedExemplar for an invalid row.
func DecodeRawExemplars(b []byte, ds Tombstones) (list []Exemplar, c RawChunk, err error) {
	if c, err = ParseRawChunk(b); err != nil || c.Data == nil {
		return nil, c, err
	}
	if list, err = parseExemplars(c.Data, nil); err != nil {
		return nil, c, err
	}
	if ds = c.Exempt.SelectApplying(ds); len(ds) > 0 {
		list = slices.DeleteFunc(list, func(e Exemplar) bool { return ds.Hides(e.T) })
	}
	return list, c, nil
}

// RowVersion returns the version in the key of a sealed row of samples or exemplars in raw: the first bytes of the
// SHA-256 of its value. A cleaned row keeps its version.
func RowVersion(value []byte) string {
	sum := sha256.Sum256(value)
	return string(sum[:engine.IDLen])
}

// RawChunkEnd returns the max timestamp ≤ at of a raw chunk's samples, or a timestamp ≤ at-margin if there are none within
// margin before at. It returns at if the chunk is corrupt.
func RawChunkEnd(value []byte, at, margin int64) int64 {
	raw, err := ParseRawChunk(value)
	if err != nil {
		return at
	}
	if len(raw.Data) == 0 { // Its samples were removed.
		return at - margin
	}
	info, err := chunk.Header(raw.Data)
	switch {
	case err != nil:
		return at
	case info.MinT > at:
		return at - margin
	case info.MaxT <= at:
		return info.MaxT
	}
	var samples chunk.Samples
	if err := chunk.Decode(raw.Data, &samples); err != nil {
		return at
	}
	return max(at-margin, samples.MaxTimeUntil(at))
}
