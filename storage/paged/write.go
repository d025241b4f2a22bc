package paged

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Write applies batches like engine.Engine.Write, with one call of the engine's Write. It packs rows of new series into
// pages if they are in a batch of raw, r5m or r1h that consists of Puts that expire together. The labels rows must
// match the ids of their series. In the batch, the chunks of a series must follow its labels row. Other rows are
// written unchanged, including large rows, raw chunks that name deletes, all but one of the chunks of a series with the
// same start, and chunks of slots longer than a day, see latest. A packed batch becomes multiple batches of rows and of
// pages, each atomic. Write retains references to values, which must not be modified afterwards.
func (r *Rows) Write(ctx context.Context, batches []engine.Batch) error {
	defer r.beginWrite(batches)()
	memory := packings.Get().(*packing)
	defer memory.release()
	found := r.findNew(batches, memory)
	if len(found) == 0 || engine.CheckClearing(batches) != nil { // The engine returns the error.
		return r.eng.Write(ctx, batches)
	}
	r.chooseBits(found, memory)
	var out []engine.Batch
	wrote := writtenCache{ids: map[labelsKey]ids{}}
	for i := range batches {
		if len(found) == 0 || found[0].batch != &batches[i] {
			out = append(out, batches[i])
			continue
		}
		p := packer{
			newSeries: found[0], limits: r.limits, fewest: min(r.o.Least, r.limits.fewest), wrote: &wrote,
			salt: r.newSalt(),
		}
		p.pack()
		out = append(out, p.batches()...)
		found = found[1:]
	}
	failed := true
	defer func() { r.levels.wrote(out, failed) }()
	if err := r.eng.Write(ctx, out); err != nil {
		return err
	}
	failed = false
	for of, ids := range wrote.ids {
		r.cacheIDs(of, ids)
	}
	for _, w := range wrote.pages {
		r.written.add(w.of.clone(), w.open, w.of.size(w.bytes))
	}
	return nil
}

// newSalt returns random bytes that make the keys of data pages unique. After a page is removed in a shared engine, its
// key stays deleted for a while, and the same entries may be written again, for example by an import. It returns nil if
// one process owns the engine.
func (r *Rows) newSalt() []byte {
	if !r.o.Shared {
		return nil
	}
	salt := make([]byte, engine.IDLen)
	_, _ = rand.Read(salt) // Read never returns an error; it ends the process instead.
	return salt
}

// WriteRows applies batches like engine.Engine.Write, and writes all rows unchanged.
func (r *Rows) WriteRows(ctx context.Context, batches []engine.Batch) error {
	defer r.beginWrite(batches)()
	return r.writeRows(ctx, batches)
}

// writeRows is like WriteRows, for callers that already exclude Compact.
func (r *Rows) writeRows(ctx context.Context, batches []engine.Batch) error {
	failed := true
	defer func() { r.levels.wrote(batches, failed) }()
	err := r.eng.Write(ctx, batches)
	failed = err != nil
	return err
}

// beginWrite prevents Compact from reading and replacing rollups until the returned function is called.
func (r *Rows) beginWrite(batches []engine.Batch) (end func()) {
	for i := range batches {
		if t := batches[i].Table; t == engine.R5m || t == engine.R1h {
			r.rollups.RLock()
			return r.rollups.RUnlock
		}
	}
	return func() {}
}

// newSeries are the series of a batch that are packed, in the order of their ids.
type newSeries struct {
	batch  *engine.Batch
	tables *tables
	series []newSeriesRows
	places []int // memory of their chunks, in the order of series
	bits   int   // of their buckets
	many   bool  // the filters of their labels pages contain labels
	memory *packing
}

// newSeriesRows is a new series with the indices of its mutations in the batch.
type newSeriesRows struct {
	id     string
	labels int
	chunks []int // in the order of their starts
}

// packing is memory that Writes reuse.
type packing struct {
	series []newSeriesRows // of all batches
	places []int           // of their chunks
	ids    []string        // of the series of a partition
	sorted []newSeriesRows // of a labels page
	values [][]byte        // of a page
}

var packings = sync.Pool{New: func() any { return new(packing) }}

// alloc returns memory for n series of a batch, and for the indices of n chunks.
func (m *packing) alloc(n int) ([]newSeriesRows, []int) {
	if cap(m.series)-len(m.series) < n { // Slices already taken keep the previous memory.
		n := max(n, 2*cap(m.series))
		m.series, m.places = make([]newSeriesRows, 0, n), make([]int, 0, n)
	}
	from, to := len(m.series), len(m.series)+n
	m.series, m.places = m.series[:to], m.places[:to]
	return m.series[from:from:to], m.places[from:from:to]
}

// release drops references to series and values, and returns the memory to the pool.
func (m *packing) release() {
	clear(m.series)
	clear(m.ids[:cap(m.ids)])
	clear(m.sorted[:cap(m.sorted)])
	clear(m.values[:cap(m.values)])
	m.series, m.places, m.ids, m.sorted, m.values = m.series[:0], m.places[:0], m.ids[:0], m.sorted[:0], m.values[:0]
	packings.Put(m)
}

// findNew returns the batches with series to be packed.
func (r *Rows) findNew(batches []engine.Batch, memory *packing) (found []newSeries) {
	var x identifier
	for i := range batches {
		b := &batches[i]
		t := tablesOf(b.Table)
		if t == nil || !isPackable(b) {
			continue
		}
		n := newSeries{batch: b, tables: t, memory: memory}
		n.collect(r.limits.entryBytes, &x)
		if len(n.series) < r.o.Least {
			continue
		}
		for _, s := range n.series {
			slices.SortStableFunc(s.chunks, func(a, b int) int {
				return cmp.Compare(
					n.batch.Mutations[a].Clustering[t.start].Int, n.batch.Mutations[b].Clustering[t.start].Int,
				)
			})
		}
		byID := func(a, b newSeriesRows) int { return strings.Compare(a.id, b.id) }
		if !slices.IsSortedFunc(n.series, byID) {
			slices.SortFunc(n.series, byID)
		}
		found = append(found, n)
	}
	return found
}

// isPackable reports whether rows of a batch may be packed: all mutations must be Puts with valid keys. The engine
// rejects other keys.
func isPackable(b *engine.Batch) bool {
	for i := range b.Mutations {
		m := &b.Mutations[i]
		if m.Op != engine.Put || engine.CheckKey(b.Table.Clustering, m.Clustering, false) != nil {
			return false
		}
	}
	return len(b.Mutations) > 0 && engine.CheckKey(b.Table.Partition, b.Partition, false) == nil
}

// metricOf returns the metric of a partition.
func metricOf(partition engine.Key) string { return format.MetricOf(partition) }

// collect adds the series whose labels rows are in the batch, each with its chunks up to the next labels row. The store
// writes rows in this order.
func (n *newSeries) collect(most int, x *identifier) {
	t := n.tables
	seen := map[string]bool{} // ids out of order
	for j := range n.batch.Mutations {
		m := &n.batch.Mutations[j]
		if len(m.Value) > most {
			continue
		}
		switch m.Clustering[0].Int {
		case format.KindLabels:
			n.collectLabels(m, j, x, seen)
		case format.KindChunk:
			if last := len(n.series) - 1; last >= 0 && n.series[last].id == m.Clustering[t.series].Text {
				n.collectChunk(&n.series[last], m, j)
			}
		}
	}
}

// collectLabels adds the series of a mutation that writes its labels.
func (n *newSeries) collectLabels(m *engine.Mutation, j int, x *identifier, seen map[string]bool) {
	t := n.tables
	id := m.Clustering[t.series].Text
	if m.Clustering[t.start].Int != 0 {
		return
	}
	if t.isRaw() && m.Clustering[3].Text != noID {
		return
	}
	if of, err := x.id(m.Value, metricOf(n.batch.Partition)); err != nil || string(of[:]) != id {
		return
	}
	if n.series == nil {
		n.series, n.places = n.memory.alloc(max(len(n.batch.Mutations)/2, 1))
	}
	if len(n.series) == 0 || n.series[len(n.series)-1].id < id && len(seen) == 0 {
		n.series = append(n.series, newSeriesRows{id: id, labels: j})
		return
	}
	if len(seen) == 0 {
		for _, s := range n.series {
			seen[s.id] = true
		}
	}
	if !seen[id] {
		seen[id] = true
		n.series = append(n.series, newSeriesRows{id: id, labels: j})
	}
}

// collectChunk adds the chunk that a mutation writes to a new series, if it can be packed.
func (n *newSeries) collectChunk(s *newSeriesRows, m *engine.Mutation, j int) {
	t := n.tables
	start := m.Clustering[t.start].Int
	if m.Timestamp > maxTimestamp(start) || !t.isChunk(m) {
		return
	}
	for _, other := range s.chunks {
		if n.batch.Mutations[other].Clustering[t.start].Int == start {
			return
		}
	}
	n.places = append(n.places, j)
	last := len(n.places)
	s.chunks = n.places[last-len(s.chunks)-1 : last : last]
}

// isChunk reports whether a mutation writes a chunk whose key and rank can be derived from a page.
func (t *tables) isChunk(m *engine.Mutation) bool {
	if !t.isRaw() {
		_, err := rollup.Header(m.Value)
		return err == nil
	}
	raw, err := format.ParseRawChunk(m.Value)
	if err != nil || len(raw.Data) == 0 || len(raw.Data) != len(m.Value) {
		return false
	}
	version := hashOf(m.Value)
	return m.Clustering[3].Text == string(version[:])
}

// chooseBits decides how many bits the ids of a bucket share, and whether filters contain labels. It decides once for
// adjacent batches of the same partition.
func (r *Rows) chooseBits(found []newSeries, memory *packing) {
	for from := 0; from < len(found); {
		to := from + 1
		for to < len(found) && found[to].tables == found[from].tables &&
			engine.Compare(found[to].batch.Partition, found[from].batch.Partition) == 0 {
			to++
		}
		all := memory.ids[:0]
		for _, n := range found[from:to] {
			for _, s := range n.series {
				all = append(all, s.id)
			}
		}
		if !slices.IsSorted(all) {
			slices.Sort(all)
		}
		memory.ids = all
		bits := bitsFor(all, r.limits.bucket)
		for i := range found[from:to] {
			found[from+i].bits, found[from+i].many = bits, len(all) >= r.limits.filtered
		}
		from = to
	}
}
