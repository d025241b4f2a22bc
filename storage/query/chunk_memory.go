package query

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// chunkMemory keeps raw chunks that queries have read of a few series: a panel is refreshed with the same series, and each scan for some
// of them costs several times what decoding their chunks does. An entry has what one scan found, also where that was
// nothing. It holds as long as the engine's versions of the two partitions that were read are the same, see engine.Versioned and
// design/queries.md: any write to one of them, and any drop of their tables' rows, makes it stale.
//
// There are two generations. Entries that are used move to the young one; when that has half of the capacity, the old one is let go of
// and the young one becomes old.
type chunkMemory struct {
	capacity int64 // bytes

	mu         sync.Mutex
	young, old map[chunksKey]*keptChunks
	bytes      int64 // of young
	dropped    int64 // of old
}

const (
	// chunkMemoryBytes is the capacity of a store's chunkMemory: the chunks that some thousand series have in a few slots.
	chunkMemoryBytes = 8 << 20
	// keptSeries is of how many series at most what one scan has found is kept: the more there are, the less the scan matters.
	keptSeries = 64
	// keptEntryBytes bounds an entry.
	keptEntryBytes = 64 << 10
	// keptOverhead is about what an entry takes besides its chunks and ids, and chunkOverhead a chunk besides its value.
	keptOverhead, chunkOverhead = 400, 32
)

// chunksKey names the first series of a scan, in a slot.
type chunksKey struct {
	window, start  int64
	tenant, metric string
	place          format.ClassShard
	first          format.SeriesID
}

// keptChunks are the chunks that some series have in a slot. They don't change.
type keptChunks struct {
	version uint64
	ids     []format.SeriesID // of all series that were looked for, in order
	chunks  []keptChunk       // in the order of their keys
	bytes   int64
}

type keptChunk struct {
	series int // index in ids
	value  []byte
}

func newChunkMemory(capacity int64) *chunkMemory {
	return &chunkMemory{capacity: capacity, young: map[chunksKey]*keptChunks{}}
}

// get returns the chunks that are kept under a key in this version; nil: none are.
func (m *chunkMemory) get(key chunksKey, version uint64) *keptChunks {
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

// put keeps chunks in the place of those that the key has.
func (m *chunkMemory) put(key chunksKey, e *keptChunks) {
	key.tenant, key.metric = strings.Clone(key.tenant), strings.Clone(key.metric)
	e.bytes = keptOverhead + int64(len(key.tenant)+len(key.metric)+len(e.ids)*engine.IDLen)
	for _, c := range e.chunks {
		e.bytes += int64(len(c.value)) + chunkOverhead
	}
	if e.bytes > min(keptEntryBytes, m.capacity/2) {
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

// add needs the lock.
func (m *chunkMemory) add(key chunksKey, e *keptChunks) {
	if before := m.young[key]; before != nil {
		m.bytes -= before.bytes
	}
	m.young[key] = e
	if m.bytes += e.bytes; m.bytes > m.capacity/2 {
		m.old, m.dropped = m.young, m.bytes
		m.young, m.bytes = map[chunksKey]*keptChunks{}, 0
	}
}

// versionOf returns the version of the partitions where raw chunks of a source are; ok is false if chunks of them can't be kept.
func (f *fetcher) versionOf(src *source) (version uint64, ok bool) {
	env := &f.sel.r.env
	f.partition = format.AppendSeriesPartition(f.partition[:0], src.window.window, f.sel.r.tenant, src.metric, src.place)
	rows, ok := env.version(engine.Raw, f.partition)
	if !ok {
		return 0, false
	}
	pages, ok := env.version(engine.RawPages, f.partition)
	return rows + pages, ok // Both only grow.
}

// scanOrRecall is scan that may keep what it finds, of few series. It is for a task of which versions were asked for before.
func (f *fetcher) scanOrRecall(ctx context.Context, start int64, wants []want) error {
	if !f.keeps || len(wants) > keptSeries {
		_, err := f.scan(ctx, start, wants)
		return err
	}
	key, memory := f.sel.keyOf(start, wants), f.sel.r.chunkMemory
	if e := memory.get(key, f.version); e != nil {
		if size, ok := f.recall(e, start, wants); ok {
			return f.sel.r.budget.Charge(size)
		}
	}
	from := len(f.chunks)
	whole, err := f.scan(ctx, start, wants)
	if err == nil && whole {
		memory.put(key, f.kept(f.chunks[from:], wants))
	}
	return err
}

// keyOf returns what names the chunks of wants, which are of one source, in a slot.
func (sel *selection) keyOf(start int64, wants []want) chunksKey {
	src := &sel.sources[wants[0].source]
	return chunksKey{window: src.window.window, start: start, tenant: sel.r.tenant, metric: src.metric, place: src.place, first: wants[0].of.id}
}

// recallTasks sets into got the chunks of the tasks, of so many wants, that are all kept, and returns the places of the others. It is for the caller's goroutine: to
// have others do it would take longer. Whoever asks for buckets reads from several tables, and has fetch do it all.
func (sel *selection) recallTasks(tasks []task, wants int, got [][]sealedChunk) (rest []int) {
	f := fetcher{sel: sel}
	for i := range tasks {
		if sel.width == 0 && len(tasks) > 1 && len(tasks[i].wants) <= keptSeries {
			if f.chunks == nil {
				f.chunks = make([]sealedChunk, 0, wants)
			}
			from := len(f.chunks)
			if f.recallTask(tasks[i].wants) {
				got[i] = f.chunks[from:len(f.chunks):len(f.chunks)]
				continue
			}
			f.chunks = f.chunks[:from]
		}
		rest = append(rest, i)
	}
	return rest
}

// recallTask appends the chunks of a task, of at most keptSeries, if they are all kept. What they would exceed of the budget is noticed by who reads them then.
func (f *fetcher) recallTask(wants []want) bool {
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
		e := f.sel.r.chunkMemory.get(f.sel.keyOf(start, wants), version)
		if e == nil {
			return false
		}
		n, ok := f.recall(e, start, wants)
		if !ok {
			return false
		}
		size += n
	}
	return f.sel.r.budget.Charge(size) == nil
}

// recall takes the chunks of wants, of so many bytes, from those that are kept; ok is false if one of the series isn't among them.
func (f *fetcher) recall(e *keptChunks, start int64, wants []want) (size int, ok bool) {
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
				f.chunks = append(f.chunks, sealedChunk{data: c.value, start: start, source: w.source, series: w.series})
				size += len(c.value)
			}
		}
	}
	return size, true
}

// kept copies the chunks that a scan for wants has found, whose memory is shared, into an entry.
func (f *fetcher) kept(found []sealedChunk, wants []want) *keptChunks {
	e := &keptChunks{version: f.version, ids: make([]format.SeriesID, len(wants)), chunks: make([]keptChunk, 0, len(found))}
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
			e.chunks = append(e.chunks, keptChunk{i, values[from:len(values):len(values)]})
		}
	}
	return e
}
