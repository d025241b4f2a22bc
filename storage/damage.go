package storage

import "sync"

// damage remembers the stage rows that can't be read, so that queries over their slots can say what they
// lack, and each is counted once.
type damage struct {
	mu   sync.Mutex
	rows map[damagedRow]error
}

type damagedRow struct {
	slot      int64
	partition int
	row       stageRow
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
		at.row = stageRow{}
	}
	if _, ok := d.rows[at]; !ok && len(d.rows) < maxDamagedSlots {
		d.rows[at] = err
	}
	return true
}
