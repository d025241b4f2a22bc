package query

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// chunkMemory caches raw chunks read by scans for few series. A dashboard panel reads the same series at each refresh,
// and scanning for a few series costs several times as much as decoding their chunks. An entry holds the result of one
// scan, even if the result was empty. The entry is valid as long as the engine's versions of both partitions that were
// read are unchanged: see engine.Versioned and design/queries.md. Any write to one of these partitions, and any drop of
// rows of their tables, invalidates the entry.
//
// The cache has two generations. An entry that is used moves to the young generation. When the young generation exceeds
// half of the capacity, the old generation is released and the young one becomes the old one.
type chunkMemory struct {
	capacity int64 // bytes

	mu         sync.Mutex
	young, old map[chunksKey]*cachedChunks
	bytes      int64 // size of young
	dropped    int64 // size of old
}

const (
	// chunkMemoryBytes is the capacity of a store's chunkMemory. It is enough for the chunks of about a thousand series
	// in a few slots.
	chunkMemoryBytes = 8 << 20
	// maxCachedSeries is the maximum number of series of a scan whose result is cached. With more series, starting the
	// scan is a smaller share of the cost.
	maxCachedSeries = 64
	// maxEntryBytes is the maximum size of an entry.
	maxEntryBytes = 64 << 10
	// entryOverhead is the approximate size of an entry without its chunks and ids. chunkOverhead is the size of a
	// chunk without its value.
	entryOverhead, chunkOverhead = 400, 32
)

// chunksKey identifies a scan by its slot and its first series.
type chunksKey struct {
	window, start  int64
	tenant, metric string
	place          format.ClassShard
	first          format.SeriesID
}

// cachedChunks are the chunks of some series in a slot. They are immutable.
type cachedChunks struct {
	version uint64
	ids     []format.SeriesID // of all series of the scan, in order, with or without chunks
	chunks  []cachedChunk     // in the order of their keys
	bytes   int64
}

type cachedChunk struct {
	series int // index in ids
	value  []byte
}

func newChunkMemory(capacity int64) *chunkMemory {
	return &chunkMemory{capacity: capacity, young: map[chunksKey]*cachedChunks{}}
}

// get returns the chunks cached under key for the given version. It returns nil if there are none.
func (m *chunkMemory) get(key chunksKey, version uint64) *cachedChunks {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.young[key]
	if e == nil {
		if e = m.old[key]; e == nil {
			return nil
		}
		delete(m.old, key)
		m.dropped -= e.bytes
		m.add(key, e)
	}
	if e.version != version {
		return nil
	}
	return e
}

// put stores e under key, replacing an existing entry.
func (m *chunkMemory) put(key chunksKey, e *cachedChunks) {
	key.tenant, key.metric = strings.Clone(key.tenant), strings.Clone(key.metric)
	e.bytes = entryOverhead + int64(len(key.tenant)+len(key.metric)+len(e.ids)*engine.IDLen)
	for _, c := range e.chunks {
		e.bytes += int64(len(c.value)) + chunkOverhead
	}
	if e.bytes > min(maxEntryBytes, m.capacity/2) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.old[key]; before != nil {
		delete(m.old, key)
		m.dropped -= before.bytes
	}
	m.add(key, e)
}

// add adds e to the young generation. The caller must hold the lock.
func (m *chunkMemory) add(key chunksKey, e *cachedChunks) {
	if before := m.young[key]; before != nil {
		m.bytes -= before.bytes
	}
	m.young[key] = e
	if m.bytes += e.bytes; m.bytes > m.capacity/2 {
		m.old, m.dropped = m.young, m.bytes
		m.young, m.bytes = map[chunksKey]*cachedChunks{}, 0
	}
}

// versionOf returns the version of the partitions that contain the raw chunks of a source. ok is false if these chunks
// can't be cached.
func (f *fetcher) versionOf(src *source) (version uint64, ok bool) {
	env := &f.sel.r.env
	f.partition = format.AppendSeriesPartition(
		f.partition[:0], src.window.window, f.sel.r.tenant, src.metric, src.place,
	)
	rows, ok := env.version(engine.Raw, f.partition)
	if !ok {
		return 0, false
	}
	pages, ok := env.version(engine.RawPages, f.partition)
	return rows + pages, ok // Both versions only grow, so their sum is unique.
}

// readChunks appends the chunks of the given series in the slot that starts at start. It uses cached chunks if there
// are any. Otherwise it scans, and caches the result if the scan is for few series. For few series, the caller must
// first set f.version and f.keeps to the results of versionOf.
func (f *fetcher) readChunks(ctx context.Context, start int64, wants []wantedSeries) error {
	if !f.keeps || len(wants) > maxCachedSeries {
		_, err := f.scan(ctx, start, wants)
		return err
	}
	key, memory := f.sel.chunksKeyOf(start, wants), f.sel.r.chunkMemory
	if e := memory.get(key, f.version); e != nil {
		if size, ok := f.appendCached(e, start, wants); ok {
			return f.sel.r.budget.Charge(size)
		}
	}
	from := len(f.chunks)
	whole, err := f.scan(ctx, start, wants)
	if err == nil && whole {
		memory.put(key, f.newCachedChunks(f.chunks[from:], wants))
	}
	return err
}

// chunksKeyOf returns the cache key of a scan in a slot for the given series. The series must belong to one source.
func (sel *selection) chunksKeyOf(start int64, wants []wantedSeries) chunksKey {
	src := &sel.sources[wants[0].source]
	return chunksKey{
		window: src.window.window, start: start, tenant: sel.r.tenant, metric: src.metric, place: src.place,
		first: wants[0].of.id,
	}
}

// readCachedTasks sets got to the chunks of the tasks whose chunks are all cached, and returns the indexes of the other
// tasks. wants is the number of series in all tasks. readCachedTasks runs in the caller's goroutine, because passing
// the work to other goroutines would take longer. It returns all tasks if there is only one, and for a query for
// buckets, which reads multiple tables.
func (sel *selection) readCachedTasks(tasks []task, wants int, got [][]sealedChunk) (rest []int) {
	f := fetcher{sel: sel}
	for i := range tasks {
		if sel.width == 0 && len(tasks) > 1 && len(tasks[i].wants) <= maxCachedSeries {
			if f.chunks == nil {
				f.chunks = make([]sealedChunk, 0, wants)
			}
			from := len(f.chunks)
			if f.appendCachedTask(tasks[i].wants) {
				got[i] = f.chunks[from:len(f.chunks):len(f.chunks)]
				continue
			}
			f.chunks = f.chunks[:from]
		}
		rest = append(rest, i)
	}
	return rest
}

// appendCachedTask appends the chunks of a task, and returns true if all of them are cached. It also returns false if
// they exceed the budget: the caller then reads the task with fetch, which returns the error. The task must have at
// most maxCachedSeries series.
func (f *fetcher) appendCachedTask(wants []wantedSeries) bool {
	src := &f.sel.sources[wants[0].source]
	version, ok := f.versionOf(src)
	if !ok {
		return false
	}
	size := 0
	for _, slot := range src.window.slots {
		if f.sel.r.env.Period.SlotEnd(slot) <= src.hidden {
			continue
		}
		start := f.sel.r.env.Period.SlotStart(slot)
		e := f.sel.r.chunkMemory.get(f.sel.chunksKeyOf(start, wants), version)
		if e == nil {
			return false
		}
		n, ok := f.appendCached(e, start, wants)
		if !ok {
			return false
		}
		size += n
	}
	return f.sel.r.budget.Charge(size) == nil
}

// appendCached appends the chunks of the given series from a cached entry, and returns their size in bytes. ok is false
// if the entry doesn't cover all these series.
func (f *fetcher) appendCached(e *cachedChunks, start int64, wants []wantedSeries) (size int, ok bool) {
	from, id, next := len(f.chunks), 0, 0
	for i := range wants {
		w := &wants[i]
		for id < len(e.ids) && bytes.Compare(e.ids[id][:], w.of.id[:]) < 0 {
			id++
		}
		if id == len(e.ids) || e.ids[id] != w.of.id {
			f.chunks = f.chunks[:from]
			return 0, false
		}
		for ; next < len(e.chunks) && e.chunks[next].series <= id; next++ {
			if c := &e.chunks[next]; c.series == id {
				f.chunks = append(f.chunks, sealedChunk{
					data: c.value, start: start, source: w.source, series: w.series,
				})
				size += len(c.value)
			}
		}
	}
	return size, true
}

// newCachedChunks returns an entry with copies of the chunks that a scan found for the given series. The chunks are
// copied because they share memory with other chunks, which the entry would otherwise retain.
func (f *fetcher) newCachedChunks(found []sealedChunk, wants []wantedSeries) *cachedChunks {
	e := &cachedChunks{
		version: f.version, ids: make([]format.SeriesID, len(wants)), chunks: make([]cachedChunk, 0, len(found)),
	}
	size := 0
	for i := range found {
		size += len(found[i].data)
	}
	values := make([]byte, 0, size)
	for i := range wants {
		e.ids[i] = wants[i].of.id
		for ; len(found) > 0 && found[0].series == wants[i].series; found = found[1:] {
			from := len(values)
			values = append(values, found[0].data...)
			e.chunks = append(e.chunks, cachedChunk{i, values[from:len(values):len(values)]})
		}
	}
	return e
}
