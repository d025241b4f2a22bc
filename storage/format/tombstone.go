package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
)

// Tombstone is a row of the table named delete: all stored samples of the matching series in a time range are deleted.
//
// Invariant: when the row is written, all samples that it deletes are sealed. So it applies to sealed chunks only, and
// samples in the staging log were written later. A chunk that is sealed while a delete exists contains its id and is
// exempt from it.
type Tombstone struct {
	// ID is the clustering key of the row, 16 random bytes.
	ID string
	// When is the time of the request. Start and End are the first and last timestamp that are deleted. All are in
	// milliseconds.
	When, Start, End int64
	Matchers         []*labels.Matcher
	// Announced is set if the delete isn't in force yet: its final row has not been written, or may be applied later.
	// Chunks that are sealed in the meantime contain the id of the delete, so that the delete never hides samples that
	// arrived after the announcement.
	Announced bool
	// Held determines the held rows of replicas to which the delete also applies: the rows that existed when the delete
	// was requested.
	Held []HeldCut
}

const (
	tombstoneVersion = 1
	// flagAnnounced is the flag of an announced delete.
	flagAnnounced = 1
	// AnnouncedTimestamp and TombstoneTimestamp are the write timestamps of the row of an announced delete, and of the
	// row of a delete in force. The second row replaces the first. The removal of the row also has TombstoneTimestamp.
	AnnouncedTimestamp = 1
	TombstoneTimestamp = 2
	// MaxTombstoneBytes is the max size of the row without its held cuts, MaxHeldCutBytes the max size of the held
	// cuts.
	MaxTombstoneBytes = 64 << 10
	MaxHeldCutBytes   = 256 << 10
)

// errMalformedTombstone is returned for an invalid row of the table named delete.
var errMalformedTombstone = errors.New("format: malformed delete")

// AppendTombstone appends the value of a delete's row:
//
//	+---------+--------+--------+--------+--------+-----------+---------------------------+---------+----------------------+--------+
//	| version | flags  | when   | start  | end    | number of | type, name, value of each | number  | cluster, writer, seq | CRC-32C|
//	| 1 byte:1| 1 byte | varint | varint | varint | matchers  | 1 byte, text, text        | of cuts | text, 16 b., uvarint | 4, LE  |
//	+---------+--------+--------+--------+--------+-----------+---------------------------+---------+----------------------+--------+
//
// Flag 1: the delete is announced. A cut is the last held row to which the delete applies. The types are 0 equal, 1 not
// equal, 2 matches, 3 doesn't match. The checksum covers all bytes before it.
func AppendTombstone(dst []byte, d *Tombstone) []byte {
	from := len(dst)
	flags := byte(0)
	if d.Announced {
		flags = flagAnnounced
	}
	dst = append(dst, tombstoneVersion, flags)
	for _, t := range []int64{d.When, d.Start, d.End} {
		dst = binary.AppendVarint(dst, t)
	}
	dst = binary.AppendUvarint(dst, uint64(len(d.Matchers)))
	for _, m := range d.Matchers {
		dst = AppendString(AppendString(append(dst, byte(slices.Index(matchTypes, m.Type))), m.Name), m.Value)
	}
	return appendChecksum(appendCuts(dst, d.Held), from)
}

// openChecksum verifies the checksum and returns the bytes before it, at least one.
func openChecksum(b []byte) ([]byte, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: only %d bytes", errMalformedTombstone, len(b))
	}
	b, sum := b[:len(b)-4], b[len(b)-4:]
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return nil, fmt.Errorf("%w: the checksum doesn't match", errMalformedTombstone)
	}
	return b, nil
}

// IsAnnounced reports whether a row's value is an announced delete.
func IsAnnounced(b []byte) bool {
	return len(b) > 1 && b[0] == tombstoneVersion && b[1]&flagAnnounced != 0
}

// matchTypes are the types of matchers by their numbers in rows. They must never be reordered.
var matchTypes = []labels.MatchType{labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp}

// ParseTombstone is the inverse of AppendTombstone. id is the row's clustering key. It returns errMalformedTombstone
// for invalid bytes.
func ParseTombstone(id string, b []byte) (*Tombstone, error) {
	b, err := openChecksum(b)
	if err != nil {
		return nil, err
	}
	if len(b) < 2 || b[0] != tombstoneVersion {
		return nil, fmt.Errorf("%w: unknown version", errMalformedTombstone)
	}
	d := &Tombstone{ID: id, Announced: IsAnnounced(b)}
	b = b[2:]
	for _, t := range []*int64{&d.When, &d.Start, &d.End} {
		v, n := binary.Varint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: truncated", errMalformedTombstone)
		}
		*t, b = v, b[n:]
	}
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) {
		return nil, fmt.Errorf("%w: truncated", errMalformedTombstone)
	}
	b = b[n:]
	for range count {
		if len(b) == 0 || int(b[0]) >= len(matchTypes) {
			return nil, fmt.Errorf("%w: unknown matcher type", errMalformedTombstone)
		}
		kind := matchTypes[b[0]]
		name, rest, err := CutString(b[1:])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformedTombstone, err)
		}
		value, rest, err := CutString(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformedTombstone, err)
		}
		m, err := labels.NewMatcher(kind, string(name), string(value))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformedTombstone, err)
		}
		d.Matchers, b = append(d.Matchers, m), rest
	}
	if d.Held, b, err = parseCuts(b); err != nil {
		return nil, err
	}
	if len(b) > 0 || count == 0 {
		return nil, fmt.Errorf("%w: %d matchers, followed by %d extra bytes", errMalformedTombstone, count, len(b))
	}
	return d, nil
}

// Covers reports whether all of (start, end] is deleted.
func (d *Tombstone) Covers(start, end int64) bool { return d.Start <= start+1 && d.End >= end }

// Touches reports whether any time of (start, end] is deleted.
func (d *Tombstone) Touches(start, end int64) bool { return d.Start <= end && d.End > start }

// TouchesSlot reports whether any time of a slot is deleted.
func (d *Tombstone) TouchesSlot(p *Periods, slot int64) bool {
	return d.Touches(p.SlotStart(slot), p.SlotEnd(slot))
}

// HeldCut selects held rows to which a delete applies: the rows that Writer wrote for the replicas of Cluster, up to
// number Seq. These rows existed when the delete was requested; rows with higher numbers are newer.
type HeldCut struct {
	Cluster, Writer string
	Seq             int64
}

// CoversHeld reports whether a held row existed when the delete was requested.
func (d *Tombstone) CoversHeld(cluster, writer string, seq int64) bool {
	return slices.ContainsFunc(d.Held, func(c HeldCut) bool {
		return c.Cluster == cluster && c.Writer == writer && seq <= c.Seq
	})
}

func appendCuts(dst []byte, cuts []HeldCut) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(cuts)))
	for _, c := range cuts {
		dst = append(AppendString(dst, c.Cluster), c.Writer...)
		dst = binary.AppendUvarint(dst, uint64(c.Seq))
	}
	return dst
}

func parseCuts(b []byte) (cuts []HeldCut, rest []byte, err error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: truncated", errMalformedTombstone)
	}
	b = b[n:]
	for range count {
		cluster, rest, err := CutString(b)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errMalformedTombstone, err)
		}
		if len(rest) < engine.IDLen {
			return nil, nil, fmt.Errorf("%w: truncated", errMalformedTombstone)
		}
		seq, n := binary.Uvarint(rest[engine.IDLen:])
		if n <= 0 || seq > MaxTime {
			return nil, nil, fmt.Errorf("%w: the number of a row of held samples is missing", errMalformedTombstone)
		}
		cuts = append(cuts, HeldCut{string(cluster), string(rest[:engine.IDLen]), int64(seq)})
		b = rest[engine.IDLen+n:]
	}
	return cuts, b, nil
}
