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
	"github.com/cassia-db/cassia/storage/rollup"
)

// Compaction is what Compact is to do.
type Compaction struct {
	Resolution rollup.Resolution // FiveMinutes or OneHour
	Partition  engine.Key
	// Timestamp returns the timestamp of the row of a chunk with a start and a version, microseconds.
	Timestamp func(start int64, version uint64) int64
	// Reading is called before the rows of a piece are read, and what it returns afterwards. Between is called between
	// pieces of the work, without locks.
	Reading func() (done func())
	Between func()
	// Left, if set, takes chunks that can't be read. Their series stay as they are.
	Left func(Unreadable)
}

// Compacted counts what Compact has done.
type Compacted struct {
	Series int // that were written again
	Chunks int // that became parts of long chunks
	// Left are series that stay as they are though they have several chunks: a chunk can't be read, or they are too
	// large.
	Left int
}

// Add adds the counts of another compaction.
func (c *Compacted) Add(o Compacted) {
	c.Series, c.Chunks, c.Left = c.Series+o.Series, c.Chunks+o.Chunks, c.Left+o.Left
}

// Compact makes one long chunk of the chunks that a series has in an interval, for all series of a partition of
// rollups, and removes what these were in rows and pages. Each piece of series is replaced by one atomic write, so it
// may end anywhere and begin anew. Where a series already has a long chunk and more besides, as of samples that came
// late, both become one. BeginLong was called for the window.
//
// A long chunk is read back before it is written: where it doesn't give its chunks back, the series stays as it is.
func (r *Rows) Compact(ctx context.Context, c Compaction) (done Compacted, err error) {
	t := tablesOf(format.TableOf(c.Resolution))
	if c.Resolution == rollup.Raw || !r.HasLong(c.Partition[0].Int) {
		return done, fmt.Errorf("%w: table %s can't have long chunks in window %d", engine.ErrBadWrite, t.rows, c.Partition[0].Int)
	}
	x := compactor{Compaction: c, r: r, ctx: ctx, tables: t}
	if x.pages, err = x.listPages(); err != nil {
		return done, err
	}
	for from, more := noID, true; more; {
		x.begin()
		if from, more, err = x.piece(from); err != nil {
			return done, err
		}
		done.Add(x.done)
		c.Between()
	}
	return done, nil
}

// compactor compacts a partition, piece by piece.
type compactor struct {
	Compaction
	*tables

	r   *Rows
	ctx context.Context
	// pages are the keys of the data pages that the partition had at the beginning, or of those that took their place.
	pages []engine.Key

	// of a piece:
	done  Compacted
	batch engine.Batch
	bytes int    // that are written
	seen  int    // rows that were read
	last  string // of the series that were written again, if the next one follows it; "": none
	rows  map[string][]rollup.Part
	// stale are series with rows that their long chunks outdo, or the other way round; broken are chunks that can't be
	// read.
	stale  map[string]bool
	broken []Unreadable

	// of a series:
	id       string
	chunks   []compacted
	puts     []engine.Mutation
	parts    []rollup.Part
	whole    rollup.Buckets
	one      rollup.Buckets
	memory   rollup.Long
	expected []byte
}

// compacted is a chunk, or a long chunk, of a series.
type compacted struct {
	start int64 // of the chunk, or of the interval
	long  bool
	value []byte
}

func (c *compacted) interval(res rollup.Resolution) int64 {
	if c.long {
		return c.start
	}
	return format.LongInterval(res, c.start)
}

func (x *compactor) begin() {
	x.done, x.bytes, x.seen, x.last, x.rows = Compacted{}, 0, 0, "", map[string][]rollup.Part{}
	x.stale, x.broken = map[string]bool{}, nil
	x.batch = engine.Batch{Table: x.tables.rows, Partition: x.Partition}
	x.id, x.chunks = "", x.chunks[:0]
}

// piece replaces some series, from one on. It returns the id where the next piece begins.
func (x *compactor) piece(from string) (next string, more bool, err error) {
	x.r.rollups.Lock()
	defer x.r.rollups.Unlock()
	defer x.Reading()()
	rows := engine.Range{
		Table: x.tables.rows, Partition: x.Partition,
		From: engine.Key{engine.Int(format.KindChunk), engine.Text(from)}, To: engine.Key{engine.Int(format.KindChunk)},
	}
	s := scan{r: x.r, ctx: x.ctx, rows: &rows, tables: x.tables, takeLong: true}
	s.stale = func(id string) { x.stale[strings.Clone(id)] = true }
	s.left = func(u Unreadable) {
		x.broken = append(x.broken, u)
		if x.Left != nil {
			x.Left(u)
		}
	}
	s.yield = func(row engine.Row, _ error) bool {
		if id := row.Clustering[x.series].Text; id != x.id {
			x.finish()
			if x.id != "" && (x.bytes >= x.r.limits.compactBytes || x.seen >= x.r.limits.compactRows) {
				next, more = strings.Clone(id), true
				return false
			}
			x.id = strings.Clone(id)
		}
		x.seen++
		c := compacted{start: row.Clustering[x.start].Int, value: bytes.Clone(row.Value)}
		if interval, long := format.LongStart(c.start); long {
			c.start, c.long = interval, true
		}
		x.chunks = append(x.chunks, c)
		return true
	}
	if err := s.all(); err != nil {
		return "", false, fmt.Errorf("paged: reading %s to compact it: %w", x.tables.rows, err)
	}
	if !more {
		x.finish()
	}
	if len(x.batch.Mutations) > 0 {
		if err := x.r.eng.Write(x.ctx, []engine.Batch{x.batch}); err != nil {
			return "", false, fmt.Errorf("paged: writing long chunks of %s: %w", x.tables.rows, err)
		}
	}
	return next, more, x.removeEntries()
}

// finish adds the rows of a series that are written again to the batch.
func (x *compactor) finish() {
	if x.id == "" {
		return
	}
	defer func() { x.chunks = x.chunks[:0] }()
	x.puts, x.parts = x.puts[:0], x.parts[:0]
	if x.isBroken() {
		x.leave()
		return
	}
	if !x.several() && !x.stale[x.id] {
		x.last = ""
		x.heads()
		return
	}
	joined, ok := x.joinAll()
	if !ok && x.stale[x.id] { // Whatever is outdone goes, as of samples that were deleted.
		joined, ok = 0, x.takeApart()
	}
	if !ok {
		x.leave()
		return
	}
	x.rows[x.id] = slices.Clone(x.parts)
	x.done.Series, x.done.Chunks = x.done.Series+1, x.done.Chunks+joined
	x.add()
}

// joinAll adds the rows of the series to puts, one for intervals with several chunks; joined is how many chunks these
// have. ok is false if it can't be written like that.
func (x *compactor) joinAll() (joined int, ok bool) {
	for from, to := 0, 0; from < len(x.chunks); from = to {
		interval := x.chunks[from].interval(x.Resolution)
		for to = from; to < len(x.chunks) && x.chunks[to].interval(x.Resolution) == interval; to++ {
		}
		m, err := x.join(interval, x.chunks[from:to])
		if err != nil || len(m.Value) > engine.MaxValue/2 {
			return 0, false
		}
		if to-from > 1 {
			joined += to - from
		}
		x.puts = append(x.puts, m)
	}
	return joined, x.fits()
}

// takeApart adds the chunks of the series to puts as they are.
func (x *compactor) takeApart() (ok bool) {
	x.puts, x.parts = x.puts[:0], x.parts[:0]
	for _, c := range x.chunks {
		m := engine.Mutation{Clustering: x.keyOf(&c), Value: c.value}
		if c.long {
			if x.memory.Parse(c.value) != nil {
				return false
			}
			x.parts = append(x.parts, x.memory.Parts...)
		} else {
			x.parts = append(x.parts, rollup.Part{Start: c.start, Version: rollup.VersionOf(c.value)})
		}
		m.Timestamp = x.Timestamp(x.parts[len(x.parts)-1].Start, x.parts[len(x.parts)-1].Version)
		x.puts = append(x.puts, m)
	}
	return x.fits()
}

// keyOf returns the key of the row of a chunk of the series.
func (x *compactor) keyOf(c *compacted) engine.Key {
	if c.long {
		return format.LongKey(x.id, c.start)
	}
	return format.RollupKey(x.id, c.start)
}

// fits reports whether puts are few enough for one write.
func (x *compactor) fits() bool {
	size := 0
	for i := range x.puts {
		size += mutationBytes(&x.puts[i])
	}
	return size <= engine.MaxBatch/2
}

// add adds puts to the batch, and removes all rows of the series before. Ranges of series that follow each other are
// one, unless one that is broken lies between: no row of it may have been yielded.
func (x *compactor) add() {
	key := engine.Key{engine.Int(format.KindChunk), engine.Text(x.id)}
	between := func(u Unreadable) bool { return x.last < u.Last && u.First < x.id }
	if n := len(x.batch.Mutations); x.last != "" && !slices.ContainsFunc(x.broken, between) {
		for i := n - 1; ; i-- { // The range that ends with the series before.
			if m := &x.batch.Mutations[i]; m.Op == engine.Clear {
				m.To = key
				break
			}
		}
	} else {
		x.batch.Mutations = append(x.batch.Mutations, engine.Mutation{Op: engine.Clear, Clustering: key, To: key})
	}
	for i := range x.puts {
		x.bytes += mutationBytes(&x.puts[i])
	}
	x.batch.Mutations, x.last = append(x.batch.Mutations, x.puts...), x.id
}

// several reports whether the series has several chunks in an interval.
func (x *compactor) several() bool {
	for i := range len(x.chunks) - 1 {
		if x.chunks[i].interval(x.Resolution) == x.chunks[i+1].interval(x.Resolution) {
			return true
		}
	}
	return false
}

// heads notes the parts of the series' long chunks: pages may have entries of them that a crash has left.
func (x *compactor) heads() {
	for i := range x.chunks {
		if c := &x.chunks[i]; c.long && x.memory.Parse(c.value) == nil {
			x.parts = append(x.parts, x.memory.Parts...)
		}
	}
	if len(x.parts) > 0 {
		x.rows[x.id] = slices.Clone(x.parts)
	}
}

// leave leaves a series as it is.
func (x *compactor) leave() {
	x.last = ""
	if len(x.chunks) > 1 || x.isBroken() {
		x.done.Left++
	}
}

// isBroken reports whether the series may have chunks that can't be read.
func (x *compactor) isBroken() bool {
	return slices.ContainsFunc(x.broken, func(u Unreadable) bool { return u.First <= x.id && x.id <= u.Last })
}

// join returns what writes the chunks of a series in an interval as one row, and adds what it holds to parts.
func (x *compactor) join(interval int64, chunks []compacted) (m engine.Mutation, err error) {
	from := len(x.parts)
	x.whole.Reset()
	for i := range chunks {
		if err := x.decode(&chunks[i]); err != nil {
			return m, err
		}
	}
	parts := x.parts[from:]
	m.Timestamp = math.MinInt64 // Those of windows before 1970 are negative.
	for _, p := range parts {
		m.Timestamp = max(m.Timestamp, x.Timestamp(p.Start, p.Version))
	}
	if len(chunks) == 1 {
		m.Clustering, m.Value = x.keyOf(&chunks[0]), chunks[0].value
		return m, nil
	}
	if x.whole.Len() > rollup.MaxBuckets || len(parts) > rollup.MaxParts {
		return m, fmt.Errorf("paged: too much for a long chunk: %d buckets of %d chunks", x.whole.Len(), len(parts))
	}
	m.Clustering, m.Value = format.LongKey(x.id, interval), rollup.AppendLong(nil, parts, &x.whole, x.Resolution.Width())
	return m, x.verify(m.Value, parts)
}

// decode appends the buckets and the parts of a chunk.
func (x *compactor) decode(c *compacted) error {
	value, before := c.value, x.whole.Len()
	if c.long {
		if err := x.memory.Parse(c.value); err != nil {
			return err
		}
		x.parts, value = append(x.parts, x.memory.Parts...), x.memory.Chunk
	}
	info, err := rollup.Header(value)
	if err != nil {
		return err
	}
	if before > 0 && x.whole.End[before-1] > c.start { // That bucket would be given back by this part. A long chunk comes first.
		return fmt.Errorf("%w: a bucket that ends at %d precedes a chunk that starts at %d", engine.ErrCorrupt, x.whole.End[before-1], c.start)
	}
	if !c.long {
		x.parts = append(x.parts, rollup.Part{Start: c.start, Version: info.Version})
	}
	if err := rollup.Decode(value, rollup.AllColumns, &x.whole); err != nil {
		return err
	}
	ends := x.whole.End[before:]
	switch {
	case len(ends) == 0:
		return nil
	case info.Width != x.Resolution.Width():
		return fmt.Errorf("%w: unexpected bucket width of %d ms", engine.ErrCorrupt, info.Width)
	case ends[0] <= c.start, format.LongInterval(x.Resolution, ends[len(ends)-1]-1) != c.interval(x.Resolution):
		return fmt.Errorf("%w: the chunk that starts at %d has buckets outside its time range, from %d to %d", engine.ErrCorrupt, c.start, ends[0], ends[len(ends)-1])
	}
	return nil
}

// verify returns an error unless a long chunk gives back the chunks of its parts.
func (x *compactor) verify(long []byte, parts []rollup.Part) error {
	if err := x.memory.Parse(long); err != nil {
		return err
	}
	if x.whole.Histograms == nil { // Then equal buckets make equal chunks, which needn't be encoded.
		x.one.Reset()
		if err := rollup.Decode(x.memory.Chunk, rollup.AllColumns, &x.one); err != nil {
			return err
		}
		if !x.one.Equal(&x.whole) || !slices.Equal(parts, x.memory.Parts) {
			return errors.New("paged: a new long chunk decodes to other buckets")
		}
		return nil
	}
	at, n := 0, 0
	all := func(rollup.Part) bool { return true }
	err := x.memory.Split(all, func(p rollup.Part, value []byte) error {
		from := at
		for at < x.whole.Len() && (n+1 == len(parts) || x.whole.End[at] <= parts[n+1].Start) {
			at++
		}
		x.expected = rollup.AppendEmpty(x.expected[:0], parts[n].Version)
		if at > from {
			b := x.whole.Slice(from, at)
			x.expected = rollup.AppendChunk(x.expected[:0], &b, x.Resolution.Width(), parts[n].Version)
		}
		if n++; p != parts[n-1] || !bytes.Equal(x.expected, value) {
			return fmt.Errorf("paged: a new long chunk decodes to another chunk at %d", p.Start)
		}
		return nil
	})
	if err == nil && n != len(parts) {
		err = fmt.Errorf("paged: a new long chunk of %d parts decodes to %d parts", len(parts), n)
	}
	return err
}

// listPages lists the data pages of the partition.
func (x *compactor) listPages() (list []engine.Key, err error) {
	chunks := engine.Key{engine.Int(format.KindChunk)}
	for row, err := range x.r.eng.Scan(x.ctx, engine.Range{Table: x.tables.pages, Partition: x.Partition, From: chunks, To: chunks, KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("paged: listing pages of %s: %w", x.tables.rows, err)
		}
		if bits := row.Clustering[x.bits].Int; bits >= 0 && bits <= maxBits { // Readers name others.
			list = append(list, row.Clustering.Clone())
		}
	}
	return list, nil
}

// removeEntries removes from pages what rows of the piece stand for now. Where another compaction has rewritten pages
// since they were listed, it lists them anew.
func (x *compactor) removeEntries() error {
	if len(x.rows) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(x.rows))
	batches, gone, err := x.removals(ids)
	if err == nil && gone {
		if x.pages, err = x.listPages(); err == nil {
			batches, _, err = x.removals(ids)
		}
	}
	if err != nil || len(batches) == 0 {
		return err
	}
	err = x.r.eng.Write(x.ctx, batches)
	x.r.levels.wrote(batches, err != nil)
	if err != nil {
		return fmt.Errorf("paged: removing entries from pages of %s: %w", x.tables.rows, err)
	}
	return nil
}

// removals returns what removes entries of series, whose ids are in order, from the pages that may have some, and has
// pages be those that there will be. gone is true if one isn't there any more.
func (x *compactor) removals(ids []string) (batches []engine.Batch, gone bool, err error) {
	left := make([]engine.Key, 0, len(x.pages))
	for _, key := range x.pages {
		first := key[x.first].Text
		if i := sort.SearchStrings(ids, first); i == len(ids) || ids[i] > bucketLast(first, int(key[x.bits].Int)) {
			left = append(left, key)
			continue
		}
		b, there, err := x.withoutEntries(key)
		switch {
		case err != nil:
			return nil, false, err
		case !there:
			gone = true
			continue
		case len(b.Mutations) == 0:
			left = append(left, key)
			continue
		}
		batches = append(batches, b)
		if m := &b.Mutations[0]; m.Op == engine.Put { // The page that takes its place: the next piece may have entries there.
			left = append(left, m.Clustering)
		}
	}
	x.pages = left
	return batches, gone, nil
}

// withoutEntries returns what removes from a page those of its entries that rows stand for; nothing if it has none, or
// can't be read. there is false if there is no such page.
func (x *compactor) withoutEntries(key engine.Key) (b engine.Batch, there bool, err error) {
	for row, err := range x.r.eng.Scan(x.ctx, engine.Range{Table: x.tables.pages, Partition: x.Partition, From: key, To: key}) {
		if err != nil {
			return b, true, fmt.Errorf("paged: reading a page of %s: %w", x.tables.rows, err)
		}
		there = true
		p := x.newHeldPage(row, nil)
		if open, err := x.r.open(x.ctx, x.tables, x.Partition, p); err != nil || !open {
			continue // Readers name it.
		}
		return removal(x.tables, x.Partition, p, nil, x.stands), true, nil
	}
	return b, there, nil
}

// stands reports whether a row stands for an entry of a page.
func (x *compactor) stands(p *heldPage, i int, value []byte) bool {
	parts := x.rows[p.id(i)]
	at, found := findPart(parts, p.start)
	return found && parts[at].Version >= rollup.VersionOf(value)
}
