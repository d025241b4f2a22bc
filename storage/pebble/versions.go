package pebble

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// versions count the writes to partitions of tables that are remembered; partitions share counters. A write is begun before it is
// applied and over when it is synced, or has failed, also if its caller has left. An applied write can be seen before it is over,
// and a reader that has seen it may act on it; so while one is under way there is no version. There are so many because the work in the
// background looks at all windows of all tenants: it reads those again whose counters others have changed.
type versions [16384]writeCount

type writeCount struct{ begun, over atomic.Uint64 }

// of returns the counter of a partition, given its prefix of keys.
func (v *versions) of(prefix []byte) *writeCount { return &v[xxhash.Sum64(prefix)%uint64(len(v))] }

// Version implements engine.Versioned.
func (e *Engine) Version(t *engine.Table, partition engine.Key) (version uint64, ok bool) {
	if !t.Remembered || e.readOnly || engine.CheckKey(t.Partition, partition, false) != nil {
		return 0, false
	}
	var room [128]byte
	c := e.versions.of(appendPartition(room[:0], t, partition))
	over := c.over.Load() // First: if as many were begun later on, none was under way in between.
	version = c.begun.Load()
	return version, version == over
}

// touched returns the counters of what batches write.
func (v *versions) touched(batches []engine.Batch) (list []*writeCount) {
	for i := range batches {
		if b := &batches[i]; b.Table.Remembered && len(b.Mutations) > 0 {
			list = append(list, v.of(appendPartition(nil, b.Table, b.Partition)))
		}
	}
	return list
}

// all returns every counter if a table is remembered.
func (v *versions) all(t *engine.Table) (list []*writeCount) {
	if t.Remembered {
		for i := range v {
			list = append(list, &v[i])
		}
	}
	return list
}

// counting runs a write and counts it, whatever becomes of it.
func counting(touched []*writeCount, write func() error) error {
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
