package paged

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// packer makes pages of the new series of a batch.
type packer struct {
	newSeries

	limits limits
	fewest int

	packed []bool // by mutation: whether it is in a page
	pages  []engine.Batch
	room   int           // remaining bytes in the last of pages
	wrote  *writtenCache // destination
	salt   []byte        // see Rows.newSalt
}

// writtenCache contains the entries that a successful Write adds to caches.
type writtenCache struct {
	ids   map[labelsKey]ids // of labels pages
	pages []writtenPage
}

// writtenPage is a data page with its size in bytes.
type writtenPage struct {
	of    labelsKey
	open  *openPage
	bytes int
}

// pack makes the pages, bucket by bucket.
func (p *packer) pack() {
	p.packed = make([]bool, len(p.batch.Mutations))
	for from, to := 0, 0; from < len(p.series); from = to {
		bucket := bucketFirst(p.series[from].id, p.bits)
		for to = from; to < len(p.series) && bucketFirst(p.series[to].id, p.bits) == bucket; to++ {
		}
		for rest := p.series[from:to]; len(rest) > 0; {
			n := p.countForPage(rest)
			if n >= p.fewest {
				p.packBundle(bucket, rest[:n])
			}
			rest = rest[n:]
		}
	}
}

// countForPage returns the number of series of a bucket in the next page. If there are too many for one page, all pages
// have about the same number.
func (p *packer) countForPage(series []newSeriesRows) int {
	bytes := 0
	for _, s := range series {
		bytes += len(p.valueOf(s.labels))
	}
	pages := max(
		(len(series)+p.limits.entries-1)/p.limits.entries, (bytes+p.limits.labelsBytes-1)/p.limits.labelsBytes, 1,
	)
	most, n := (len(series)+pages-1)/pages, 0
	for bytes = 0; n < most; n++ {
		if bytes += len(p.valueOf(series[n].labels)); bytes > p.limits.labelsBytes && n > 0 {
			break
		}
	}
	return n
}

func (p *packer) valueOf(mutation int) []byte { return p.batch.Mutations[mutation].Value }

// packBundle makes the labels page of series of a bucket and the data pages that refer to it, all in one batch. Chunks
// that don't fit into the batch stay rows.
func (p *packer) packBundle(bucket string, series []newSeriesRows) {
	// Sorted by labels, similar series are adjacent, and pages of other metrics of the same targets have the same
	// order.
	series, byID := p.byLabels(series)
	rows := make([]int, len(series))
	var all strings.Builder
	all.Grow(len(series) * engine.IDLen)
	starts := map[int64][]int{} // indices in series
	for i, s := range series {
		rows[i] = s.labels
		all.WriteString(s.id)
		for _, c := range s.chunks {
			start := p.batch.Mutations[c].Clustering[p.tables.start].Int
			starts[start] = append(starts[start], i)
		}
	}
	labels := p.pageMutation(format.KindLabels, 0, bucket, page.Head{Kind: page.Labels}, rows)
	version, of := labels.Clustering[pageVersion].Text, ids{all.String(), byID}
	bundle, room := []engine.Mutation{labels}, p.limits.batchBytes-keyBytes(p.batch.Partition)-mutationBytes(&labels)
	filter := p.filterMutation(&labels, rows)
	bundle, room = append(bundle, filter), room-mutationBytes(&filter)
	if room < 0 || len(labels.Value) > engine.MaxValue {
		return
	}
	p.markPacked(rows)
	for _, start := range slices.Sorted(maps.Keys(starts)) {
		for rest := starts[start]; len(rest) > 0; {
			n := p.cutData(series, rest, start)
			if n >= p.fewest {
				m, rows, at := p.dataPage(bucket, version, series, rest[:n], start)
				if size := mutationBytes(&m); size <= room && len(m.Value) <= engine.MaxValue {
					bundle, room = append(bundle, m), room-size
					p.markPacked(rows)
					p.recordWritten(&m, rows, newOpenPage(p.tables.data, at, of, n))
				}
			}
			rest = rest[n:]
		}
	}
	p.wrote.ids[labelsKey{metricOf(p.batch.Partition), version}] = of
	p.add(bundle, p.limits.batchBytes-keyBytes(p.batch.Partition)-room)
}

// cutData returns the number of chunks in the next data page of a start. places are the indices of the series whose
// chunks with this start aren't in a page yet.
func (p *packer) cutData(series []newSeriesRows, places []int, start int64) (n int) {
	for bytes := 0; n < len(places); n++ {
		if bytes += len(p.valueOf(p.chunkMutation(&series[places[n]], start))); bytes > p.limits.dataBytes && n > 0 {
			break
		}
	}
	return n
}

// chunkMutation returns the mutation of the series' chunk with this start, which must exist.
func (p *packer) chunkMutation(s *newSeriesRows, start int64) int {
	return s.chunks[slices.IndexFunc(s.chunks, func(c int) bool {
		return p.batch.Mutations[c].Clustering[p.tables.start].Int == start
	})]
}

// byLabels returns series, which must be sorted by id, sorted by the values of their labels rows. byID has the new
// positions of the series in the order of their ids.
func (p *packer) byLabels(series []newSeriesRows) (sorted []newSeriesRows, byID []byte) {
	from := make([]byte, len(series))
	for i := range from {
		from[i] = byte(i)
	}
	slices.SortFunc(from, func(a, b byte) int {
		return bytes.Compare(p.valueOf(series[a].labels), p.valueOf(series[b].labels))
	})
	p.memory.sorted, byID = p.memory.sorted[:0], make([]byte, len(series))
	for i, place := range from {
		p.memory.sorted, byID[place] = append(p.memory.sorted, series[place]), byte(i)
	}
	return p.memory.sorted, byID
}

// recordWritten records a data page for the caches: rollups are computed from its entries next.
func (p *packer) recordWritten(m *engine.Mutation, rows []int, open *openPage) {
	if p.tables == &r1hTables { // Nothing is computed from 1h buckets.
		return
	}
	open.values = make([][]byte, len(rows))
	if p.tables.isRaw() {
		open.versions = make([]string, len(rows))
	}
	size := openBytes
	for i, row := range rows {
		open.values[i] = p.valueOf(row)
		size += len(open.values[i]) + valueBytes
		if p.tables.isRaw() {
			open.versions[i] = p.batch.Mutations[row].Clustering[3].Text
		}
	}
	p.wrote.pages = append(p.wrote.pages, writtenPage{
		labelsKey{metricOf(p.batch.Partition), m.Clustering[pageVersion].Text}, open, size,
	})
}

// valueBytes is the approximate overhead of a cached value.
const valueBytes = 48

// dataPage returns a page of chunks with one start: those of the series whose indices are places. It also returns the
// mutations that the page replaces, and the positions of these series in the labels page. The positions are nil if they
// are 0, 1, 2, …
func (p *packer) dataPage(
	bucket, version string, series []newSeriesRows, places []int, start int64,
) (m engine.Mutation, rows []int, at []byte) {
	at, rows = make([]byte, len(places)), make([]int, 0, len(places))
	for i, place := range places {
		at[i] = byte(place)
		rows = append(rows, p.chunkMutation(&series[place], start))
	}
	at = positions(at)
	return p.pageMutation(
		format.KindChunk, start, bucket, page.Head{Kind: p.tables.data, Labels: version, At: at}, rows,
	), rows, at
}

// positions returns the positions for a page's head: nil for 0, 1, 2, …
func positions(at []byte) []byte {
	if int(at[len(at)-1]) == len(at)-1 { // Positions ascend.
		return nil
	}
	return at
}

// pageMutation returns the mutation that writes a page. rows are the mutations whose values the page contains.
func (p *packer) pageMutation(kind, start int64, bucket string, head page.Head, rows []int) engine.Mutation {
	p.memory.values = p.memory.values[:0]
	m := engine.Mutation{Timestamp: p.batch.Mutations[rows[0]].Timestamp}
	for _, row := range rows {
		p.memory.values = append(p.memory.values, p.valueOf(row))
		m.Timestamp = max(m.Timestamp, p.batch.Mutations[row].Timestamp)
	}
	m.Value = page.Append(nil, head, p.memory.values)
	version := versionOf(m.Value)
	if kind == format.KindChunk {
		version = saltedVersionOf(m.Value, p.salt)
	}
	m.Clustering = p.tables.pageKey(kind, start, p.bits, bucket, version)
	return m
}

func (p *packer) markPacked(rows []int) {
	for _, row := range rows {
		p.packed[row] = true
	}
}

// add adds a labels page, its filter and its data pages to the batches.
func (p *packer) add(bundle []engine.Mutation, bytes int) {
	if len(p.pages) == 0 || bytes > p.room {
		p.pages = append(p.pages, engine.Batch{
			Table: p.tables.pages, Partition: p.batch.Partition, Expires: p.batch.Expires,
		})
		p.room = p.limits.batchBytes - keyBytes(p.batch.Partition)
	}
	last := &p.pages[len(p.pages)-1]
	last.Mutations = append(last.Mutations, bundle...)
	p.room -= bytes
}

// batches returns the batches that replace the packed one.
func (p *packer) batches() []engine.Batch {
	if len(p.pages) == 0 {
		return []engine.Batch{*p.batch}
	}
	rest := engine.Batch{Table: p.batch.Table, Partition: p.batch.Partition, Expires: p.batch.Expires}
	for i, packed := range p.packed {
		if !packed {
			rest.Mutations = append(rest.Mutations, p.batch.Mutations[i])
		}
	}
	if len(rest.Mutations) == 0 {
		return p.pages
	}
	return append(p.pages, rest)
}

// mutationBytes is the size of a mutation as counted in engine.MaxBatch.
func mutationBytes(m *engine.Mutation) int { return keyBytes(m.Clustering) + len(m.Value) }

// keyBytes returns an upper bound of the size of a key, as counted in engine.MaxBatch.
func keyBytes(key engine.Key) (n int) {
	for _, v := range key {
		n += 8 + len(v.Text)
	}
	return n
}
