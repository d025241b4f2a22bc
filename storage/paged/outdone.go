package paged

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Outdone returns what removes from the pages of a partition of raw, r5m or r1h those entries of some series, by id,
// that others outdo: raw chunks of which a row with the same key names deletes, rollups of which a row or another entry
// has a higher version. Readers don't see them any more. pages has one batch for each page that changes: it writes the
// page without these entries, unless none are left, and deletes the page that was there. Labels pages stay, and so do
// pages that can't be read, which readers name. rows are copies, as rows, of rollups in pages that outdo others: a
// reader that has read the page of the better one before it was written, and that of the worse one after it was
// removed, finds the row. Their mutations have no timestamp.
//
// The caller sets the timestamps of rows, writes these, and then pages; nobody else removes entries of the partition
// meanwhile. It sets when they expire: as rows of the partition do. Rows that outdo entries have been written before.
func (r *Rows) Outdone(ctx context.Context, table *engine.Table, partition engine.Key, series map[string]bool) (rows, pages []engine.Batch, err error) {
	t := tablesOf(table)
	if t == nil {
		return nil, nil, fmt.Errorf("%w: table %s isn't stored in pages", engine.ErrBadKey, table)
	}
	c := outdone{r: r, ctx: ctx, tables: t, partition: partition, series: slices.Sorted(maps.Keys(series)), copied: map[rowKey]bool{}}
	buckets, err := c.buckets()
	if err != nil {
		return nil, nil, err
	}
	for _, bucket := range buckets {
		if err := c.bucket(bucket); err != nil {
			return nil, nil, err
		}
	}
	return c.copies, c.batches, nil
}

// Rewriting is how RemoveOutdone writes rows and pages.
type Rewriting struct {
	// Timestamp returns that of a rollup of a start and version, microseconds.
	Timestamp func(start int64, version uint64) int64
	// Expires is when the rows of the partition expire, seconds since 1970; 0: never.
	Expires int64
}

// RemoveOutdone writes what Outdone returns, and lets nobody compact rollups meanwhile, who removes entries as well.
func (r *Rows) RemoveOutdone(ctx context.Context, table *engine.Table, partition engine.Key, series map[string]bool, as Rewriting) error {
	t := tablesOf(table)
	if t != nil && !t.isRaw() {
		r.rollups.Lock()
		defer r.rollups.Unlock()
	}
	rows, pages, err := r.Outdone(ctx, table, partition, series)
	if err != nil {
		return err
	}
	for i := range rows {
		for j := range rows[i].Mutations {
			m := &rows[i].Mutations[j]
			m.Timestamp = as.Timestamp(m.Clustering[2].Int, rollup.VersionOf(m.Value))
		}
	}
	for _, batches := range [][]engine.Batch{rows, pages} {
		for i := range batches {
			batches[i].Expires = as.Expires
		}
		if len(batches) > 0 {
			if err := r.writeRows(ctx, batches); err != nil {
				return err
			}
		}
	}
	return nil
}

// outdone looks for entries that rows, or other entries, outdo.
type outdone struct {
	*tables

	r         *Rows
	ctx       context.Context
	partition engine.Key
	series    []string // in order
	batches   []engine.Batch

	copies []engine.Batch // see Outdone
	room   int            // of the last of copies, bytes
	copied map[rowKey]bool
}

// buckets returns with what the keys of data pages begin that may have entries of the series: up to the bucket's first
// id.
func (c *outdone) buckets() (found []engine.Key, err error) {
	chunks := engine.Key{engine.Int(format.KindChunk)}
	for row, err := range c.r.eng.Scan(c.ctx, engine.Range{Table: c.pages, Partition: c.partition, From: chunks, To: chunks, KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("paged: listing pages of %s: %w", c.rows, err)
		}
		key := row.Clustering[:c.first+1]
		if n := len(found); n > 0 && engine.Compare(found[n-1], key) == 0 {
			continue
		}
		bits := key[c.bits].Int
		if bits < 0 || bits > maxBits {
			continue // Readers name it.
		}
		first := key[c.first].Text
		if i := sort.SearchStrings(c.series, first); i < len(c.series) && c.series[i] <= bucketLast(first, int(bits)) {
			found = append(found, key.Clone())
		}
	}
	return found, nil
}

// bucket looks at the pages of one bucket, and in raw of one start.
func (c *outdone) bucket(key engine.Key) error {
	var pages []*heldPage
	for row, err := range c.r.eng.Scan(c.ctx, engine.Range{Table: c.pages, Partition: c.partition, From: key, To: key}) {
		if err != nil {
			return fmt.Errorf("paged: reading pages of %s: %w", c.rows, err)
		}
		pages = append(pages, c.newHeldPage(row, nil))
	}
	found := map[rowKey]ranks{}
	var open []*heldPage
	for _, p := range pages {
		there, err := c.r.open(c.ctx, c.tables, c.partition, p)
		if err != nil && !errors.Is(err, engine.ErrCorrupt) {
			return err
		}
		if err == nil && there && c.list(p, found) {
			open = append(open, p)
		}
	}
	if len(found) == 0 {
		return nil
	}
	if err := c.readRanks(found); err != nil {
		return err
	}
	if !c.isRaw() { // Raw chunks in pages are all of one rank.
		if err := c.copyBest(found); err != nil {
			return err
		}
	}
	for _, p := range open {
		c.without(p, found)
	}
	return nil
}

// rowKey names a row: version is that of a raw chunk.
type rowKey struct {
	id      string
	start   int64
	version string
}

// ranks are those of a key's row, 0 if there is none, and of the entry of the bucket with the lowest.
type ranks struct{ row, least uint64 }

// list adds the entries of the series to found. It reports whether it added any, and all entries of the page can be
// read.
func (c *outdone) list(p *heldPage, found map[rowKey]ranks) bool {
	listed := map[rowKey]uint64{}
	var value []byte
	for i := range p.page.Len() {
		var err error
		if value, err = p.page.AppendValue(value[:0], i); err != nil {
			return false
		}
		if _, ok := slices.BinarySearch(c.series, p.id(i)); ok {
			listed[c.rowKey(p, i, value)] = c.rank(value)
		}
	}
	for k, rank := range listed {
		if before, ok := found[k]; ok {
			rank = min(rank, before.least)
		}
		found[k] = ranks{least: rank}
	}
	return len(listed) > 0
}

func (c *outdone) rowKey(p *heldPage, i int, value []byte) rowKey {
	k := rowKey{id: p.id(i), start: p.start}
	if c.isRaw() {
		k.version = versionOf(value)
	}
	return k
}

// rank returns the rank of a row: in raw how many deletes it names, 0 if that can't be read.
func (c *outdone) rank(value []byte) uint64 {
	if !c.isRaw() {
		return rollup.VersionOf(value)
	}
	raw, err := format.ParseRawChunk(value)
	if err != nil {
		return 0
	}
	return uint64(raw.Exempt.Count())
}

// readRanks sets the ranks of those rows that are there.
func (c *outdone) readRanks(found map[rowKey]ranks) error {
	for row, err := range c.r.eng.Scan(c.ctx, c.around(found)) {
		if err != nil {
			return fmt.Errorf("paged: reading rows of %s: %w", c.rows, err)
		}
		k := c.rowKeyOf(row)
		if x, ok := found[k]; ok {
			x.row = c.rank(row.Value)
			k.id, k.version = strings.Clone(k.id), strings.Clone(k.version)
			found[k] = x
		}
	}
	return nil
}

// around returns a range with the rows of all keys that were found.
func (c *outdone) around(found map[rowKey]ranks) engine.Range {
	first, last := rowKey{id: lastID, start: math.MaxInt64}, rowKey{start: math.MinInt64}
	for k := range found {
		first.id, first.start = min(first.id, k.id), min(first.start, k.start)
		last.id, last.start = max(last.id, k.id), max(last.start, k.start)
	}
	key := func(k rowKey) engine.Key {
		if c.isRaw() {
			return engine.Key{engine.Int(format.KindChunk), engine.Int(k.start), engine.Text(k.id)}
		}
		return format.RollupKey(k.id, k.start)
	}
	return engine.Range{Table: c.rows, Partition: c.partition, From: key(first), To: key(last)}
}

func (c *outdone) rowKeyOf(row engine.Row) rowKey {
	k := rowKey{id: row.Clustering[c.tables.series].Text, start: row.Clustering[c.start].Int}
	if c.isRaw() {
		k.version = row.Clustering[3].Text
	}
	return k
}

// copyBest copies the rollups of pages that outdo others and rows, and sets their ranks as those of rows. Pages that
// can't be read are left out: what these have outdoes nothing.
func (c *outdone) copyBest(found map[rowKey]ranks) error {
	r := c.around(found)
	r.Damaged = func(engine.Damage) {}
	for row, err := range c.r.Scan(c.ctx, r) {
		if err != nil {
			return fmt.Errorf("paged: reading rows of %s, and pages: %w", c.rows, err)
		}
		k := c.rowKeyOf(row)
		x, ok := found[k]
		rank := c.rank(row.Value)
		if !ok || rank <= x.row || rank <= x.least {
			continue
		}
		x.row = rank
		k.id = strings.Clone(k.id)
		found[k] = x
		if !c.copied[k] { // Another bucket has entries of the same key.
			c.copied[k] = true
			c.copy(engine.Mutation{Clustering: format.RollupKey(k.id, k.start), Value: bytes.Clone(row.Value)})
		}
	}
	return nil
}

// copy adds a row to the copies.
func (c *outdone) copy(m engine.Mutation) {
	size := mutationBytes(&m)
	if len(c.copies) == 0 || size > c.room {
		c.copies = append(c.copies, engine.Batch{Table: c.rows, Partition: c.partition})
		c.room = c.r.limits.batchBytes - keyBytes(c.partition)
	}
	last := &c.copies[len(c.copies)-1]
	last.Mutations = append(last.Mutations, m)
	c.room -= size
}

// without adds the batch that removes from a page the entries that rows outdo, if there are any.
func (c *outdone) without(p *heldPage, found map[rowKey]ranks) {
	b := removal(c.tables, c.partition, p, c.r.newSalt(), func(p *heldPage, i int, value []byte) bool {
		x, ok := found[c.rowKey(p, i, value)]
		return ok && x.row > c.rank(value)
	})
	if len(b.Mutations) > 0 {
		c.batches = append(c.batches, b)
	}
}

// removal returns the batch that writes a page without the entries that go, if any are left, and deletes it; it is
// empty if none goes, or the page can't be read, or no key follows its own.
func removal(t *tables, partition engine.Key, p *heldPage, salt []byte, goes func(p *heldPage, i int, value []byte) bool) (b engine.Batch) {
	var values [][]byte
	var at []byte
	for i := range p.page.Len() {
		value, err := p.page.AppendValue(nil, i)
		if err != nil {
			return b
		}
		if goes(p, i, value) {
			continue
		}
		position := byte(i)
		if p.at != nil {
			position = p.at[i]
		}
		values, at = append(values, value), append(at, position)
	}
	if len(values) == p.page.Len() {
		return b
	}
	b = engine.Batch{Table: t.pages, Partition: partition}
	if len(values) > 0 {
		value := page.Append(nil, page.Head{Kind: t.data, Labels: p.page.Head().Labels, At: positions(at)}, values)
		version := nextVersionOf(p.version, value, salt)
		if version == "" {
			return engine.Batch{}
		}
		b.Mutations = append(b.Mutations, engine.Mutation{
			Clustering: t.pageKey(p.kind, p.start, p.bits, p.first, version),
			Timestamp:  maxTimestamp(p.start), Value: value,
		})
	}
	b.Mutations = append(b.Mutations, engine.Mutation{
		Op: engine.Delete, Clustering: t.pageKey(p.kind, p.start, p.bits, p.first, p.version),
		Timestamp: maxTimestamp(p.start),
	})
	return b
}
