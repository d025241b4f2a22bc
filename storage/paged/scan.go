package paged

import (
	"context"
	"errors"
	"iter"
	"math"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// errEnough is returned when the caller wants no more rows.
var errEnough = errors.New("paged: enough rows")

// Scan yields the rows of a range like engine.Engine.Scan, including rows of raw, r5m and r1h in pages. It performs
// multiple scans of the engine: each shows the rows written before the scan reaches them. An unreadable page is damage:
// an engine.ErrCorrupt that names the table, the partition and the key of the page. Range.Damaged, if set, is called
// with it, without the keys next to the gap, because the missing rows can be anywhere in the page's key range.
func (r *Rows) Scan(ctx context.Context, rows engine.Range) iter.Seq2[engine.Row, error] {
	t := tablesOf(rows.Table)
	if t == nil || len(rows.From) > 0 && rows.From[0].Int > format.KindChunk {
		return r.eng.Scan(ctx, rows)
	}
	return func(yield func(engine.Row, error) bool) {
		s := scan{r: r, ctx: ctx, rows: &rows, tables: t, yield: yield}
		if err := s.all(); err != nil {
			yield(engine.Row{}, err)
		}
	}
}

// ScanReadable is like Scan, but skips unreadable chunks and calls left with them.
func (r *Rows) ScanReadable(
	ctx context.Context, rows engine.Range, left func(Unreadable),
) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		s := scan{r: r, ctx: ctx, rows: &rows, tables: tablesOf(rows.Table), left: left, yield: yield}
		if err := s.all(); err != nil {
			yield(engine.Row{}, err)
		}
	}
}

// scan is a scan of a table whose rows may be in pages.
type scan struct {
	*tables

	r      *Rows
	ctx    context.Context
	rows   *engine.Range
	wanted *wanted    // nil: all rows of the range are wanted
	needed *page.Part // the needed part of rollups; nil: everything
	// long is set if the window may have long chunks, takeLong if they are yielded unchanged: see Wanted.Long.
	long, takeLong bool
	// stale, if set, is called with the id of a series with rows superseded by parts of a long chunk, or with parts
	// superseded by rows.
	stale func(id string)
	// left, if set, is called with unreadable chunks, see Unreadable.
	left func(Unreadable)
	// spans, if set, is called instead of yield for the entries of pages, see Spans.
	spans func(ChunkSpan) error
	yield func(engine.Row, error) bool
	n     int // rows yielded
	// entries is reusable memory for units.
	entries []entry
	reports reports
}

// all runs the scan. It returns nil if the caller wants no more rows.
func (s *scan) all() error {
	if window := s.rows.Partition; !s.isRaw() && len(window) > 0 {
		if s.long = s.r.long.begin(window[0].Int); !s.long {
			defer s.r.long.end(window[0].Int)
		}
	}
	err := s.run()
	if err == nil {
		s.reportGap(nil)
	} else if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// run processes the segments that have pages, and yields the rows between them unchanged:
//
//	from ──── rows ────┤ segment: pages and rows ├──── rows ────┤ segment ├─ … ─ to
func (s *scan) run() error {
	if err := engine.CheckRange(s.rows); err != nil {
		return err
	}
	from, last := s.rows.From, firstFields(s.rows.To, s.segment)
	if engine.Compare(from, s.rows.To) > 0 {
		return s.yieldEngineRows()
	}
	if begin := firstFields(from, s.segment); len(begin) == s.segment && len(last) == s.segment &&
		engine.Compare(begin, last) == 0 {
		return s.scanOneSegment(begin)
	}
	if len(last) == 0 || last[0].Int > format.KindChunk {
		last = engine.Key{engine.Int(format.KindChunk)}
	}
	for again := false; engine.Compare(from, s.rows.To) <= 0; again = true {
		var first engine.Key
		var err error
		if begin := firstFields(from, s.segment); engine.Compare(begin, last) <= 0 {
			first, err = s.firstPage(begin, last)
		}
		switch {
		case err != nil:
			return err
		case first == nil && again:
			return s.yieldPlain(from, s.rows.To)
		case first == nil:
			return s.yieldEngineRows()
		}
		segment := first[:s.segment]
		if before := keyBefore(segment); before != nil && engine.Compare(from, before) <= 0 {
			if err := s.yieldPlain(from, before); err != nil {
				return err
			}
		}
		levels, _, err := s.findLevels(segment, first[s.bits].Int)
		if err != nil {
			return err
		}
		if err := s.scanSegment(segment, levels); err != nil {
			return err
		}
		if from = keyAfter(segment); from == nil {
			return nil
		}
	}
	return nil
}

// scanOneSegment is like run, for a range within one segment.
func (s *scan) scanOneSegment(segment engine.Key) error {
	levels, err := s.levelsOf(segment)
	switch {
	case err != nil:
		return err
	case len(levels) == 0:
		return s.yieldEngineRows()
	}
	return s.scanSegment(segment, levels)
}

// firstFields returns the first n fields of a key, or all if there are fewer.
func firstFields(key engine.Key, n int) engine.Key { return key[:min(n, len(key))] }

// keyBefore returns an upper bound of all keys that sort before the keys that begin with key. The bound is a key, or a
// key prefix of integers. It returns nil if there are no such keys.
func keyBefore(key engine.Key) engine.Key {
	for n := len(key); n > 0; n-- {
		if last := key[n-1].Int; last > math.MinInt64 {
			return append(append(make(engine.Key, 0, n), key[:n-1]...), engine.Int(last-1))
		}
	}
	return nil
}

// keyAfter is the counterpart of keyBefore: it returns a lower bound of all keys that sort after the keys that begin
// with key, or nil if there are no such keys.
func keyAfter(key engine.Key) engine.Key {
	for n := len(key); n > 0; n-- {
		if last := key[n-1].Int; last < math.MaxInt64 {
			return append(append(make(engine.Key, 0, n), key[:n-1]...), engine.Int(last+1))
		}
	}
	return nil
}

// firstPage returns the leading integers of the key of the first page between two keys: its segment and its bits. It
// returns nil if there is no page.
func (s *scan) firstPage(from, to engine.Key) (key engine.Key, err error) {
	pages := engine.Range{
		Table: s.pages, Partition: s.rows.Partition, From: from, To: to, KeysOnly: true, Limit: 1,
		Damaged: s.pagesDamaged(),
	}
	for row, err := range s.r.eng.Scan(s.ctx, pages) {
		if err != nil {
			return nil, err
		}
		key = append(make(engine.Key, 0, s.bits+1), row.Clustering[:s.bits+1]...)
	}
	return key, nil
}

// yieldEngineRows yields the rows of the whole range unchanged.
func (s *scan) yieldEngineRows() error {
	if s.long {
		return s.yieldPlain(s.rows.From, s.rows.To)
	}
	for row, err := range s.engineRows(*s.rows, nil) {
		if err != nil {
			return err
		}
		if !s.yield(row, nil) {
			return errEnough
		}
	}
	return nil
}

// yieldPlain yields the rows between two keys unchanged.
func (s *scan) yieldPlain(from, to engine.Key) error {
	for row, err := range s.engineRows(s.nextPart(from, to), nil) {
		if err != nil {
			return err
		}
		if err := s.emit(row); err != nil {
			return err
		}
	}
	return nil
}

// nextPart returns the part of the range to read next, which must be after all yielded rows.
func (s *scan) nextPart(from, to engine.Key) engine.Range {
	rows := *s.rows
	rows.From, rows.To = from, to
	if rows.Limit > 0 {
		rows.Limit -= s.n
	}
	s.partDamaged(&rows)
	return rows
}

// cancelEvery is the number of rows after which a scan checks its context: rows of pages are yielded without calls of
// the engine.
const cancelEvery = 64

// emit yields a row. It returns errEnough if the caller wants no more rows.
func (s *scan) emit(row engine.Row) error {
	if s.rows.Damaged != nil {
		s.setPosition(row.Clustering)
	}
	if s.n%cancelEvery == 0 {
		if err := s.ctx.Err(); err != nil {
			return err
		}
	}
	s.n++
	if !s.yield(row, nil) || s.n == s.rows.Limit {
		return errEnough
	}
	return nil
}
