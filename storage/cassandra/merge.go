package cassandra

import (
	"encoding/binary"

	"github.com/cassia-db/cassia/storage/engine"
)

// mergeBytes is up to what size small batches of one partition become one: from there on it is the bytes that cost, not the request.
const mergeBytes = 128 << 10

// merge joins small batches of one partition, which so take one request of Cassandra's. A request costs what a dozen rows do: names of a
// catalog come one by one, all of a label in one partition. The order of mutations in a partition stays, and batches are left as they are.
//
// Partitions aren't joined: a node applies what a request has for several of them one after the other, and waits for a sync of its
// commit log each time where commitlog_sync is group or batch.
func merge(batches []engine.Batch) []engine.Batch {
	type open struct{ at, bytes int }
	var merged []engine.Batch
	last := map[string]open{} // the batches that take more, by partition
	var key []byte
	for i := range batches {
		b := &batches[i]
		key = appendPartition(key[:0], b)
		size := sizeOf(b)
		if into, ok := last[string(key)]; ok && merged[into.at].Expires == b.Expires && into.bytes+size <= mergeBytes && len(merged[into.at].Mutations)+len(b.Mutations) <= maxStatements {
			to := &merged[into.at]
			to.Mutations = append(to.Mutations, b.Mutations...)
			last[string(key)] = open{into.at, into.bytes + size}
			continue
		}
		last[string(key)] = open{len(merged), size}
		merged = append(merged, engine.Batch{Table: b.Table, Partition: b.Partition, Mutations: b.Mutations[:len(b.Mutations):len(b.Mutations)], Expires: b.Expires})
	}
	return merged
}

// appendPartition appends what names a batch's partition among those of all tables.
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

// sizeOf is about how many bytes of clustering keys and values a batch has.
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
