package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

// exempt are the ids of deletes, one after the other, in order, that a raw chunk is exempt from: it was sealed later,
// or what they delete is cut out of it.
type exempt []byte

func (e exempt) count() int { return len(e) / engine.IDLen }

func (e exempt) has(id string) bool {
	for at := 0; at+engine.IDLen <= len(e); at += engine.IDLen {
		if string(e[at:at+engine.IDLen]) == id {
			return true
		}
	}
	return false
}

// union returns the ids of both.
func (e exempt) union(o exempt) exempt {
	if len(o) == 0 || bytes.Equal(e, o) {
		return e
	}
	var ids [][]byte
	for _, list := range []exempt{e, o} {
		for id := range slices.Chunk(list, engine.IDLen) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, bytes.Compare)
	return bytes.Join(slices.CompactFunc(ids, bytes.Equal), nil)
}

// hidden returns the deletes that aren't among them.
func (e exempt) hidden(ds deletions) deletions {
	if len(e) == 0 {
		return ds
	}
	return ds.where(func(d *deletion) bool { return !e.has(d.id) })
}

// weight is what a raw chunk counts in the versions of rollups: one, and one for each delete that was, or is to be,
// applied to it. It never gets less: what is cleaned names the deletes that were counted before.
func (e exempt) weight(ds deletions) uint64 { return uint64(1 + e.count() + len(e.hidden(ds))) }

const (
	// exemptVersion is the first byte of a raw chunk that names deletes; those that don't begin with the chunk's own.
	exemptVersion = 2
	// exemptCleaned is the flag of a chunk that was cleaned: it lies under the hash of what it was before.
	exemptCleaned = 1
)

// rawChunk is the value of a row of raw.
type rawChunk struct {
	exempt  exempt
	cleaned bool
	// data is a chunk of package chunk; nil: all of it was deleted.
	data []byte
}

// appendRaw appends the value of a row of raw: the chunk as it is, where it names no deletes, or
//
//	+---------+--------+---------+---------------+--------+- - - - - - - -+
//	| version | flags  | number  | deletes' ids, | CRC-32C| chunk, or     |
//	| 1 byte:2| 1 byte | uvarint | 16 bytes each | 4, LE  | nothing       |
//	+---------+--------+---------+---------------+--------+- - - - - - - -+
//
// Flag 1: it was cleaned. The checksum is over the bytes before it; the chunk has its own.
func appendRaw(dst []byte, c rawChunk) []byte {
	if len(c.exempt) == 0 {
		return append(dst, c.data...)
	}
	from := len(dst)
	flags := byte(0)
	if c.cleaned {
		flags |= exemptCleaned
	}
	dst = append(dst, exemptVersion, flags)
	dst = binary.AppendUvarint(dst, uint64(c.exempt.count()))
	dst = append(dst, c.exempt...)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
	return append(dst, c.data...)
}

// openRaw is the inverse of appendRaw. What it returns leans on b. Its error is chunk.ErrCorrupt.
func openRaw(b []byte) (c rawChunk, err error) {
	if len(b) == 0 || b[0] != exemptVersion {
		return rawChunk{data: b}, nil
	}
	bad := func(why string) (rawChunk, error) {
		return rawChunk{}, fmt.Errorf("%w: the deletes that it names: %s", chunk.ErrCorrupt, why)
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
	c = rawChunk{exempt: exempt(b[head:end]), cleaned: b[1]&exemptCleaned != 0}
	if end+4 < len(b) {
		c.data = b[end+4:]
	}
	return c, nil
}

// decodeRaw appends what isn't deleted of a row of raw.
func decodeRaw(b []byte, ds deletions, into *chunk.Samples) (rawChunk, error) {
	c, err := openRaw(b)
	if err != nil || c.data == nil {
		return c, err
	}
	ds = c.exempt.hidden(ds)
	if len(ds) == 0 {
		return c, chunk.Decode(c.data, into)
	}
	var all chunk.Samples
	if err := chunk.Decode(c.data, &all); err != nil {
		return c, err
	}
	ds.hide(&all)
	into.AppendAll(&all)
	return c, nil
}

// openExemplars returns what isn't deleted of a row of exemplars. What it returns leans on b.
func openExemplars(b []byte, ds deletions) (list []storedExemplar, c rawChunk, err error) {
	if c, err = openRaw(b); err != nil || c.data == nil {
		return nil, c, err
	}
	if list, err = parseExemplars(c.data, nil); err != nil {
		return nil, c, err
	}
	if ds = c.exempt.hidden(ds); len(ds) > 0 {
		list = slices.DeleteFunc(list, func(e storedExemplar) bool { return ds.hides(e.t) })
	}
	return list, c, nil
}
