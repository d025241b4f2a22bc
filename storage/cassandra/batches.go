package cassandra

import (
	"encoding/binary"

	"github.com/cassia-db/cassia/storage/engine"
)

// mergeBytes is the max size of batches of one partition that are merged. For larger batches, the cost of a request
// depends on its bytes, so merging saves nothing.
const mergeBytes = 128 << 10

// mergeBatches joins small batches of one partition, so that they take one request. A request costs as much as a dozen
// rows, and some partitions get many small batches: the names of a catalog, for example, are written as one batch each.
// mergeBatches keeps the order of the mutations in a partition, and doesn't modify the batches.
//
// Batches of different partitions aren't merged: a node applies the partitions of a request sequentially, and waits for
// a sync of its commit log for each if commitlog_sync is group or batch.
func mergeBatches(batches []engine.Batch) []engine.Batch {
	type open struct{ at, bytes int }
	var merged []engine.Batch
	last := map[string]open{} // the batches that can still grow, by partition
	var key []byte
	for i := range batches {
		b := &batches[i]
		key = appendPartition(key[:0], b)
		size := sizeOf(b)
		if into, ok := last[string(key)]; ok && merged[into.at].Expires == b.Expires && into.bytes+size <= mergeBytes &&
			len(merged[into.at].Mutations)+len(b.Mutations) <= maxStatements {
			to := &merged[into.at]
			to.Mutations = append(to.Mutations, b.Mutations...)
			last[string(key)] = open{into.at, into.bytes + size}
			continue
		}
		last[string(key)] = open{len(merged), size}
		merged = append(merged, engine.Batch{
			Table: b.Table, Partition: b.Partition, Mutations: b.Mutations[:len(b.Mutations):len(b.Mutations)],
			Expires: b.Expires,
		})
	}
	return merged
}

// appendPartition appends a key that identifies a batch's table and partition.
func appendPartition(to []byte, b *engine.Batch) []byte {
	to = append(to, b.Table.ID)
	for i, v := range b.Partition {
		if b.Table.Partition[i].Kind == engine.KindInt {
			to = binary.BigEndian.AppendUint64(to, uint64(v.Int))
			continue
		}
		to = binary.AppendUvarint(to, uint64(len(v.Text)))
		to = append(to, v.Text...)
	}
	return to
}

// sizeOf returns the approximate size in bytes of a batch's clustering keys and values.
func sizeOf(b *engine.Batch) int {
	n := 0
	for i := range b.Mutations {
		m := &b.Mutations[i]
		n += rowOverhead + len(m.Value)
		for j := range m.Clustering {
			n += 8 + len(m.Clustering[j].Text)
		}
	}
	return n
}
