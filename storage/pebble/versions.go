package pebble

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// versions count the writes to partitions of tables with Remembered set. Partitions share counters. A write starts
// before it is applied, and ends when it is synced or has failed, even if its caller has returned earlier. An applied
// write is visible before it ends, and a reader may act on it, so partitions have no version while a write to them is
// under way. The number of counters is high because background work reads all windows of all tenants, and reads a
// window again if a write to another partition has changed its counter.
type versions [16384]writeCount

type writeCount struct{ begun, over atomic.Uint64 }

// counterOf returns the counter of a partition with this key prefix.
func (v *versions) counterOf(prefix []byte) *writeCount {
	return &v[xxhash.Sum64(prefix)%uint64(len(v))]
}

// Version implements engine.Versioned.
func (e *Engine) Version(t *engine.Table, partition engine.Key) (version uint64, ok bool) {
	if !t.Remembered || e.readOnly || engine.CheckKey(t.Partition, partition, false) != nil {
		return 0, false
	}
	var room [128]byte
	c := e.versions.counterOf(appendPartition(room[:0], t, partition))
	// Read over first: if it equals the number of started writes read later, no write was under way in between.
	over := c.over.Load()
	version = c.begun.Load()
	return version, version == over
}

// countersOf returns the counters of the partitions to which batches write.
func (v *versions) countersOf(batches []engine.Batch) (list []*writeCount) {
	for i := range batches {
		if b := &batches[i]; b.Table.Remembered && len(b.Mutations) > 0 {
			list = append(list, v.counterOf(appendPartition(nil, b.Table, b.Partition)))
		}
	}
	return list
}

// allCounters returns all counters if the table has Remembered set.
func (v *versions) allCounters(t *engine.Table) (list []*writeCount) {
	if t.Remembered {
		for i := range v {
			list = append(list, &v[i])
		}
	}
	return list
}

// countWrite runs a write and counts it, even if it fails.
func countWrite(touched []*writeCount, write func() error) error {
	for _, c := range touched {
		c.begun.Add(1)
	}
	defer func() {
		for _, c := range touched {
			c.over.Add(1)
		}
	}()
	return write()
}
