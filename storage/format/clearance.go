package format

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
)

// Clearance is a row of the table named delete. It records which deletes of a tenant have been removed: all deletes
// requested before an instant, with exceptions. In a shared engine, a delete's row can reappear long after its removal,
// because a replica missed the removal. The clearance prevents such a row from hiding samples that were written since.
type Clearance struct {
	// Before is the instant in milliseconds.
	Before int64
	// Standing are the deletes requested before Before that have not been removed.
	Standing TombstoneIDs
}

const clearanceVersion = 1

// ClearanceID is the id of a clearance's row among the deletes: 16 zero bytes. No delete has this id.
var ClearanceID = string(make([]byte, engine.IDLen))

// Clears reports whether the delete has been removed according to the clearance.
func (c *Clearance) Clears(d *Tombstone) bool { return d.When < c.Before && !c.Standing.Has(d.ID) }

// AppendClearance appends the value of a clearance's row:
//
//	+---------+--------+-----------+---------------+--------+
//	| version | before | number of | deletes' ids, | CRC-32C|
//	| 1 byte:1| varint | deletes   | 16 bytes each | 4, LE  |
//	+---------+--------+-----------+---------------+--------+
func AppendClearance(dst []byte, c Clearance) []byte {
	from := len(dst)
	dst = binary.AppendVarint(append(dst, clearanceVersion), c.Before)
	dst = append(binary.AppendUvarint(dst, uint64(c.Standing.Count())), c.Standing...)
	return appendChecksum(dst, from)
}

// ParseClearance is the inverse of AppendClearance. It returns errMalformedTombstone for invalid bytes.
func ParseClearance(b []byte) (c Clearance, err error) {
	if b, err = openChecksum(b); err != nil {
		return c, err
	}
	if b[0] != clearanceVersion {
		return c, fmt.Errorf("%w: unknown version", errMalformedTombstone)
	}
	before, n := binary.Varint(b[1:])
	if n <= 0 {
		return c, fmt.Errorf("%w: truncated", errMalformedTombstone)
	}
	b = b[1+n:]
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) || len(b)-n != int(count)*engine.IDLen {
		return c, fmt.Errorf("%w: truncated", errMalformedTombstone)
	}
	return Clearance{Before: before, Standing: TombstoneIDs(bytes.Clone(b[n:]))}, nil
}
