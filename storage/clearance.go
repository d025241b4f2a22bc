package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
)

// clearance says which deletes were removed: all that were asked for before an instant, but for some. Where several
// processes share an engine, a row whose removal a replica has missed may come back long afterwards; it must not hide
// what was written since.
type clearance struct {
	before   int64 // milliseconds
	standing exempt
}

const clearanceVersion = 3

// clearanceID is the id of its row, among the deletes.
var clearanceID = string(make([]byte, engine.IDLen))

// has says whether a delete was removed.
func (c *clearance) has(d *deletion) bool { return d.when < c.before && !c.standing.has(d.id) }

// appendClearance appends the row's value:
//
//	+---------+--------+-----------+---------------+--------+
//	| version | before | number of | deletes' ids, | CRC-32C|
//	| 1 byte:3| varint | deletes   | 16 bytes each | 4, LE  |
//	+---------+--------+-----------+---------------+--------+
func appendClearance(dst []byte, c clearance) []byte {
	from := len(dst)
	dst = binary.AppendVarint(append(dst, clearanceVersion), c.before)
	dst = append(binary.AppendUvarint(dst, uint64(c.standing.count())), c.standing...)
	return appendChecksum(dst, from)
}

// parseClearance is the inverse of appendClearance.
func parseClearance(b []byte) (c clearance, err error) {
	if b, err = openChecksum(b); err != nil {
		return c, err
	}
	if b[0] != clearanceVersion {
		return c, fmt.Errorf("%w: an unknown version", errBadDeletion)
	}
	before, n := binary.Varint(b[1:])
	if n <= 0 {
		return c, fmt.Errorf("%w: truncated", errBadDeletion)
	}
	b = b[1+n:]
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) || len(b)-n != int(count)*engine.IDLen {
		return c, fmt.Errorf("%w: truncated", errBadDeletion)
	}
	return clearance{before: before, standing: exempt(bytes.Clone(b[n:]))}, nil
}
