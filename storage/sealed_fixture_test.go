package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
)

// rowFixture writes sealed rows directly, without staging log and head. With it a test can quickly create many windows,
// or damaged ones.
type rowFixture struct {
	t       testing.TB
	s       *Store
	tenant  string
	batches []engine.Batch
	size    int
	known   map[string]bool
	// shards is the number of shards per metric. 0 means one shard.
	shards int64
}

func newRowFixture(t testing.TB, s *Store, tenant string) *rowFixture {
	return &rowFixture{t: t, s: s, tenant: tenant, known: map[string]bool{}}
}

// put adds a row to the next write.
func (w *rowFixture) put(table *engine.Table, partition, clustering engine.Key, value []byte) {
	last := len(w.batches) - 1
	same := last >= 0 && w.batches[last].Table == table && len(w.batches[last].Mutations) < 100
	for i := 0; same && i < len(partition); i++ {
		same = w.batches[last].Partition[i] == partition[i]
	}
	if !same {
		w.batches = append(w.batches, engine.Batch{Table: table, Partition: partition})
		last++
	}
	w.batches[last].Mutations = append(
		w.batches[last].Mutations, engine.Mutation{Clustering: clustering, Timestamp: 1, Value: value},
	)
	if w.size += len(value); w.size > 8<<20 {
		w.flush()
	}
}

func (w *rowFixture) flush() {
	require.NoError(w.t, w.s.eng.Write(w.t.Context(), w.batches))
	w.batches, w.size = nil, 0
}

// partition returns the partition of a series' rows.
func (w *rowFixture) partition(window int64, ls labels.Labels) engine.Key {
	shard := int64(0)
	if w.shards > 1 {
		id := format.SeriesIDOf(ls)
		shard = format.ShardOf(id, w.shards)
	}
	return format.SeriesPartition(
		window, w.tenant, ls.Get(labels.MetricName), format.ClassShardOf(retention.DefaultClass, shard),
	)
}

// labels writes the labels and names of a series in a window, unless it has written them already.
func (w *rowFixture) labels(window int64, ls labels.Labels) {
	id := format.SeriesIDOf(ls)
	once := func(table *engine.Table, partition, clustering engine.Key, value []byte) {
		name := []byte(table.Name)
		for _, v := range append(partition[:len(partition):len(partition)], clustering...) {
			name = append(binary.AppendVarint(append(name, v.Text...), v.Int), 0)
		}
		if !w.known[string(name)] {
			w.known[string(name)] = true
			w.put(table, partition, clustering, value)
		}
	}
	once(engine.Raw, w.partition(window, ls), format.RawLabelsKey(id.String()), format.AppendLabels(nil, ls))
	ls.Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			once(
				engine.Catalog, format.CatalogPartition(window, w.tenant, format.CatalogMetric, ""),
				engine.Key{engine.Text(l.Value)}, []byte{1},
			)
			if w.shards > 1 {
				once(
					engine.Shards, format.ShardsPartition(window, w.tenant), engine.Key{engine.Text(l.Value)},
					binary.AppendUvarint(nil, uint64(w.shards)),
				)
			}
		}
		once(
			engine.Catalog, format.CatalogPartition(window, w.tenant, format.CatalogLabel, ""),
			engine.Key{engine.Text(l.Name)}, []byte{1},
		)
		once(
			engine.Catalog, format.CatalogPartition(window, w.tenant, format.CatalogValue, l.Name),
			engine.Key{engine.Text(l.Value)}, []byte{1},
		)
	})
}

// chunk writes samples of a series as one chunk of a slot.
func (w *rowFixture) chunk(slot int64, ls labels.Labels, samples *chunk.Samples) {
	w.labels(w.s.period.RawWindowOfSlot(slot), ls)
	w.chunkBytes(slot, ls, chunk.AppendChunk(nil, samples))
}

func (w *rowFixture) chunkBytes(slot int64, ls labels.Labels, value []byte) {
	id, version := format.SeriesIDOf(ls), sha256.Sum256(value)
	key := format.ChunkKey(id.String(), w.s.period.SlotStart(slot), string(version[:engine.IDLen]))
	w.put(engine.Raw, w.partition(w.s.period.RawWindowOfSlot(slot), ls), key, value)
}

// mark writes the commit record that makes the written rows of a slot visible.
func (w *rowFixture) mark(slot int64) {
	w.flush()
	require.NoError(w.t, w.s.listWindow(w.t.Context(), w.tenant, w.s.period.RawWindowOfSlot(slot)))
	w.put(engine.Sealed, format.SealedPartition(w.s.period.RawWindowOfSlot(slot), w.tenant),
		engine.Key{engine.Int(slot), engine.Int(0), engine.Text(newID())}, []byte{1})
	w.flush()
}

// openUncheckedStore opens a store that isn't checked at the end, for tests with invalid data or too much data.
func openUncheckedStore(t testing.TB) *testStore {
	ts := &testStore{t: t, dir: t.TempDir(), opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.open()
	t.Cleanup(ts.closeUnchecked)
	return ts
}

func (ts *testStore) closeUnchecked() {
	require.NoError(ts.t, ts.Store.Close())
	require.NoError(ts.t, ts.eng.Close())
}
