package format

import (
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// CommitReason is the value of a commit record, which is a row of the table named sealed. Readers that validate cached
// windows use only the keys; the reason distinguishes late samples from imports and maintenance in reports.
type CommitReason byte

// The reasons for a commit record.
const (
	// CommitSeal is a seal of staged samples. A second one of the same slot and partition means that samples arrived
	// late.
	CommitSeal CommitReason = 1
	// CommitImport is an import. An import writes one commit record before its rows and another commit record after
	// them.
	CommitImport CommitReason = 2
	// CommitMaintenance is any other rewrite: applied deletes, recomputed rollups, rows with a longer TTL.
	CommitMaintenance CommitReason = 3
)

// AppendCommitReason returns a commit record's value, one byte.
func AppendCommitReason(r CommitReason) []byte { return []byte{byte(r)} }

// CommitReasonOf is the inverse of AppendCommitReason. A reason that this release doesn't know counts as maintenance.
func CommitReasonOf(row engine.Row) CommitReason {
	if len(row.Value) == 1 {
		if r := CommitReason(row.Value[0]); r == CommitSeal || r == CommitImport {
			return r
		}
	}
	return CommitMaintenance
}

// CommitKey identifies a commit record within a window.
type CommitKey struct {
	Slot      int64
	Partition int
	ID        string
}

// CommitKeyOf returns the key of a commit record.
func CommitKeyOf(clustering engine.Key) CommitKey {
	return CommitKey{clustering[0].Int, int(clustering[1].Int), strings.Clone(clustering[2].Text)}
}

// CommitKey returns the key of the commit record that marks the delete as applied to the rollups of a slot.
func (d *Tombstone) CommitKey(slot int64) CommitKey { return CommitKey{Slot: slot, ID: d.ID} }
