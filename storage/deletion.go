package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
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
)

var errBadDeletion = errors.New("storage: malformed delete")

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

// heldCut says that a delete is about what a writer holds of a cluster's replicas up to a number: those rows were there
// when it was asked for. What it holds with greater ones came later.
type heldCut struct {
	cluster, writer string
	seq             int64
}

// maxCutBytes bounds what a delete says of held rows.
const maxCutBytes = 256 << 10

// cuts says whether a held row was there when the delete was asked for.
func (d *deletion) cuts(cluster, writer string, seq int64) bool {
	return slices.ContainsFunc(d.held, func(c heldCut) bool { return c.cluster == cluster && c.writer == writer && seq <= c.seq })
}

func appendCuts(dst []byte, cuts []heldCut) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(cuts)))
	for _, c := range cuts {
		dst = append(appendString(dst, c.cluster), c.writer...)
		dst = binary.AppendUvarint(dst, uint64(c.seq))
	}
	return dst
}

func parseCuts(b []byte) (cuts []heldCut, rest []byte, err error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: truncated", errBadDeletion)
	}
	b = b[n:]
	for range count {
		cluster, rest, err := takeString(b)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errBadDeletion, err)
		}
		if len(rest) < engine.IDLen {
			return nil, nil, fmt.Errorf("%w: truncated", errBadDeletion)
		}
		seq, n := binary.Uvarint(rest[engine.IDLen:])
		if n <= 0 || seq > maxTime {
			return nil, nil, fmt.Errorf("%w: no number of a held row", errBadDeletion)
		}
		cuts = append(cuts, heldCut{string(cluster), string(rest[:engine.IDLen]), int64(seq)})
		b = rest[engine.IDLen+n:]
	}
	return cuts, b, nil
}
