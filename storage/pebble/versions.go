package pebble

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// versions count the writes to partitions of tables that are remembered; partitions share counters.
//
//	counter     5        6                   7
//	write       | counted | applied | counted |► returns
//	reader           └ sees 6: what it scans now may lack the write, and is of no use once that has returned
type versions [1024]atomic.Uint64

// of returns the counter of a partition, given its prefix of keys.
func (v *versions) of(prefix []byte) *atomic.Uint64 { return &v[xxhash.Sum64(prefix)%uint64(len(v))] }

// Version implements engine.Versioned.
func (e *Engine) Version(t *engine.Table, partition engine.Key) (version uint64, ok bool) {
	if !t.Remembered || e.readOnly || engine.CheckKey(t.Partition, partition, false) != nil {
		return 0, false
	}
	var room [128]byte
	return e.versions.of(appendPartition(room[:0], t, partition)).Load(), true
}

// touched returns the counters of what batches write.
func (v *versions) touched(batches []engine.Batch) (list []*atomic.Uint64) {
	for i := range batches {
		if b := &batches[i]; b.Table.Remembered && len(b.Mutations) > 0 {
			list = append(list, v.of(appendPartition(nil, b.Table, b.Partition)))
		}
	}
	return list
}

// all returns every counter if a table is remembered.
func (v *versions) all(t *engine.Table) (list []*atomic.Uint64) {
	if t.Remembered {
		for i := range v {
			list = append(list, &v[i])
		}
	}
	return list
}

// counting runs a write between two counts, whatever becomes of it.
func counting(touched []*atomic.Uint64, write func() error) error {
	count := func() {
		for _, c := range touched {
			c.Add(1)
		}
	}
	count()
	defer count()
	return write()
}
