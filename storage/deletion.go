package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// deletion is a row of table delete: all that was stored of some series in a span of time is gone.
//
// Invariant: when the row is written, all that it deletes is sealed. So it is about sealed chunks only, and what is
// in the stage was written later. A chunk that is sealed while a delete stands names it, and is exempt from it.
type deletion struct {
	id string
	// when it was asked for; start and end are its bounds, both included. Milliseconds.
	when, start, end int64
	matchers         []*labels.Matcher
	// announced says that it isn't in force, but may come to be: its own row is on its way, or was. Chunks that are
	// sealed meanwhile name it, so that it never hides what came after it was announced.
	announced bool
	// held says which rows that are held of replicas it is about.
	held []heldCut
}

const (
	// deletionVersion is the first byte of a delete in force that says nothing of held rows, extendedVersion that of others.
	deletionVersion = 1
	extendedVersion = 2
	// deletionAnnounced is the flag of a delete that is announced.
	deletionAnnounced = 1
	// announcedTimestamp and deletionTimestamp are the write timestamps of the two: the second replaces the first, and
	// what takes both back has the second's.
	announcedTimestamp = 1
	deletionTimestamp  = 2
	// maxDeletionBytes bounds a delete's row.
	maxDeletionBytes = 64 << 10
	// maxDeletions bounds the deletes of a tenant that aren't cleaned.
	maxDeletions = 1000
)

var (
	// ErrTooManyDeletes says that a tenant has as many deletes as there may be, which must be cleaned first.
	ErrTooManyDeletes = fmt.Errorf("storage: %d deletes wait to be cleaned, and there may be no more: clean tombstones first", maxDeletions)
	// ErrBadDelete says that a delete can't be carried out as it was asked for.
	ErrBadDelete   = errors.New("storage: can't delete that")
	errBadDeletion = errors.New("storage: malformed delete")
)

// appendDeletion appends the row's value:
//
//	+---------+--------+--------+--------+-----------+-----------------------------+--------+
//	| version | when   | start  | end    | number of | type, name, value of each   | CRC-32C|
//	| 1 byte:1| varint | varint | varint | matchers  | 1 byte, text, text          | 4, LE  |
//	+---------+--------+--------+--------+-----------+-----------------------------+--------+
//
//	+---------+--------+--------+- - - - - -+-----------------------------+--------------+----------------------+--------+
//	| version | flags  | when   |  as above | type, name, value of each   | number of    | cluster, writer, seq | CRC-32C|
//	| 1 byte:2| 1 byte | varint |           | 1 byte, text, text          | cuts: uvarint| text, 16 b., uvarint | 4, LE  |
//	+---------+--------+--------+- - - - - -+-----------------------------+--------------+----------------------+--------+
//
// Flag 1: it is announced. A cut is how far the rows of held go that it is about. The types are 0 equal, 1 not equal, 2
// matches, 3 doesn't match. The checksum is over all bytes before it.
func appendDeletion(dst []byte, d *deletion) []byte {
	from := len(dst)
	extended := d.announced || len(d.held) > 0
	switch {
	case !extended:
		dst = append(dst, deletionVersion)
	case d.announced:
		dst = append(dst, extendedVersion, deletionAnnounced)
	default:
		dst = append(dst, extendedVersion, 0)
	}
	for _, t := range []int64{d.when, d.start, d.end} {
		dst = binary.AppendVarint(dst, t)
	}
	dst = binary.AppendUvarint(dst, uint64(len(d.matchers)))
	for _, m := range d.matchers {
		dst = appendString(appendString(append(dst, byte(slices.Index(matchTypes, m.Type))), m.Name), m.Value)
	}
	if extended {
		dst = appendCuts(dst, d.held)
	}
	return appendChecksum(dst, from)
}

func appendChecksum(dst []byte, from int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// openChecksum returns what stands before a checksum, which is at least one byte.
func openChecksum(b []byte) ([]byte, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: %d bytes", errBadDeletion, len(b))
	}
	b, sum := b[:len(b)-4], b[len(b)-4:]
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return nil, fmt.Errorf("%w: the checksum doesn't match", errBadDeletion)
	}
	return b, nil
}

// isAnnounced says whether a row's value is of a delete that is announced.
func isAnnounced(b []byte) bool {
	return len(b) > 1 && b[0] == extendedVersion && b[1]&deletionAnnounced != 0
}

// matchTypes are the types of matchers by their numbers in rows. Never reordered.
var matchTypes = []labels.MatchType{labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp}

// parseDeletion is the inverse of appendDeletion.
func parseDeletion(id string, b []byte) (*deletion, error) {
	b, err := openChecksum(b)
	if err != nil {
		return nil, err
	}
	d := &deletion{id: id, announced: isAnnounced(b)}
	extended := b[0] == extendedVersion && len(b) > 1
	switch {
	case extended:
		b = b[2:]
	case b[0] == deletionVersion:
		b = b[1:]
	default:
		return nil, fmt.Errorf("%w: an unknown version", errBadDeletion)
	}
	for _, t := range []*int64{&d.when, &d.start, &d.end} {
		v, n := binary.Varint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: truncated", errBadDeletion)
		}
		*t, b = v, b[n:]
	}
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) {
		return nil, fmt.Errorf("%w: truncated", errBadDeletion)
	}
	b = b[n:]
	for range count {
		if len(b) == 0 || int(b[0]) >= len(matchTypes) {
			return nil, fmt.Errorf("%w: a matcher of an unknown type", errBadDeletion)
		}
		kind := matchTypes[b[0]]
		name, rest, err := takeString(b[1:])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBadDeletion, err)
		}
		value, rest, err := takeString(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBadDeletion, err)
		}
		m, err := labels.NewMatcher(kind, string(name), string(value))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBadDeletion, err)
		}
		d.matchers, b = append(d.matchers, m), rest
	}
	if extended {
		if d.held, b, err = parseCuts(b); err != nil {
			return nil, err
		}
	}
	if len(b) > 0 || count == 0 {
		return nil, fmt.Errorf("%w: %d matchers, and %d bytes too many", errBadDeletion, count, len(b))
	}
	return d, nil
}

// covers says whether all of (start, end] is deleted.
func (d *deletion) covers(start, end int64) bool { return d.start <= start+1 && d.end >= end }

// touches says whether any time of (start, end] is deleted.
func (d *deletion) touches(start, end int64) bool { return d.start <= end && d.end > start }

// touchesSlot says whether any time of a slot is deleted.
func (d *deletion) touchesSlot(p *periods, slot int64) bool {
	return d.touches(p.slotStart(slot), p.slotEnd(slot))
}

// deletions are deletes of one tenant, in the order of their ids.
type deletions []*deletion

// where returns those for which keep holds.
func (ds deletions) where(keep func(*deletion) bool) (some deletions) {
	for _, d := range ds {
		if keep(d) {
			some = append(some, d)
		}
	}
	return some
}

// of returns those of a series.
func (ds deletions) of(ls labels.Labels) deletions {
	if len(ds) == 0 {
		return nil
	}
	return ds.where(func(d *deletion) bool { return matchesAll(ls, d.matchers) })
}

// inSlot returns those that touch a slot.
func (ds deletions) inSlot(p *periods, slot int64) deletions {
	return ds.where(func(d *deletion) bool { return d.touchesSlot(p, slot) })
}

// mayMatch returns those that may be about series of a metric.
func (ds deletions) mayMatch(metric string) deletions {
	return ds.where(func(d *deletion) bool { return nameMatches(d.matchers, metric) })
}

// inForce returns those that hide anything.
func (ds deletions) inForce() deletions {
	if !slices.ContainsFunc(ds, func(d *deletion) bool { return d.announced }) {
		return ds
	}
	return ds.where(func(d *deletion) bool { return !d.announced })
}

func (ds deletions) has(id string) bool {
	return slices.ContainsFunc(ds, func(d *deletion) bool { return d.id == id })
}

func (ds deletions) sort() {
	slices.SortFunc(ds, func(a, b *deletion) int { return strings.Compare(a.id, b.id) })
}

// ids returns the names of all, as a chunk that is exempt from them has them.
func (ds deletions) ids() exempt {
	var ids exempt
	for _, d := range ds {
		ids = append(ids, d.id...)
	}
	return ids
}

// hides says whether what is stored at a time is deleted.
func (ds deletions) hides(t int64) bool {
	return slices.ContainsFunc(ds, func(d *deletion) bool { return t >= d.start && t <= d.end })
}

// hide removes what is deleted from samples.
func (ds deletions) hide(s *chunk.Samples) { remove(s, ds.hides) }

// remove removes the samples at times for which gone holds.
func remove(s *chunk.Samples, gone func(t int64) bool) {
	if !slices.ContainsFunc(s.T, gone) && !slices.ContainsFunc(s.H, func(h chunk.Histogram) bool { return gone(h.T) }) {
		return
	}
	var left chunk.Samples
	for i, t := range s.T {
		if gone(t) {
			continue
		}
		st := int64(0)
		if len(s.ST) > 0 {
			st = s.ST[i]
		}
		left.AppendFloat(t, st, s.V[i])
	}
	for _, h := range s.H {
		if !gone(h.T) {
			left.AppendHistogram(h)
		}
	}
	*s = left
}

// hideBuckets removes the buckets from an index on of which all is deleted, and says whether there were any. What
// a delete cuts stays: a bucket can't be taken apart.
func (ds deletions) hideBuckets(b *rollup.Buckets, from int, width int64) bool {
	gone := func(end int64) bool {
		return slices.ContainsFunc(ds, func(d *deletion) bool { return d.covers(end-width, end) })
	}
	if len(ds) == 0 || !slices.ContainsFunc(b.End[from:], gone) {
		return false
	}
	b.Delete(from, gone)
	return true
}

// hideBucket says whether all of a bucket is deleted by one of those that count.
func (ds deletions) hideBucket(end, width int64, counts func(*deletion) bool) bool {
	for _, d := range ds {
		if d.covers(end-width, end) && counts(d) {
			return true
		}
	}
	return false
}

// touchBucket says whether one of them is about any time of a bucket.
func (ds deletions) touchBucket(end, width int64) bool {
	return slices.ContainsFunc(ds, func(d *deletion) bool { return d.touches(end-width, end) })
}

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
