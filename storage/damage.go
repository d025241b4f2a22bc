package storage

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/cassia-db/cassia/storage/format"
)

// damage remembers the stage rows that can't be read, so that queries over their slots can say what they
// lack, and each is counted once.
type damage struct {
	mu   sync.Mutex
	rows map[damagedRow]error
}

type damagedRow struct {
	slot      int64
	partition int
	row       format.StageRow
}

// maxDamage bounds what is remembered row by row; the log has all of it. Beyond, one row of each slot and partition
// stands for all of them, for at most maxDamagedSlots.
const (
	maxDamage       = 100
	maxDamagedSlots = 10_000
)

// add says whether the row is new to it.
func (d *damage) add(at damagedRow, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.rows[at]; ok {
		return false
	}
	if d.rows == nil {
		d.rows = map[damagedRow]error{}
	}
	if len(d.rows) >= maxDamage {
		at.row = format.StageRow{}
	}
	if _, ok := d.rows[at]; !ok && len(d.rows) < maxDamagedSlots {
		d.rows[at] = err
	}
	return true
}

// tellDamage warns of damaged rows that may hold samples of the request. Whose they are isn't known.
func (r *request) tellDamage() {
	d := &r.s.damage
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []damagedRow
	for at := range d.rows {
		if r.s.period.SlotStart(at.slot) < r.maxT && r.s.period.SlotEnd(at.slot) >= r.minT {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b damagedRow) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.partition, b.partition),
			strings.Compare(a.row.Writer, b.row.Writer), cmp.Compare(a.row.Seq, b.row.Seq))
	})
	for _, at := range found {
		r.tell(d.rows[at])
	}
}
