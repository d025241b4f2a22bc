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

// errEnough means that the caller wants no more rows.
var errEnough = errors.New("paged: enough rows")

// Scan yields the rows of a range as engine.Engine.Scan does, those of raw, r5m and r1h that are in pages included. It reads
// several ranges of the engine's: what it yields of each was written before it came there.
// A page that can't be read is damage: an engine.ErrCorrupt that names the table, the partition and the key of the page. Where
// Range.Damaged is set it is called with it, without the rows next to the gap, which lie anywhere between the keys that the page may have.
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

// ScanReadable is Scan that leaves out chunks that can't be read, and calls left with them.
func (r *Rows) ScanReadable(ctx context.Context, rows engine.Range, left func(Unreadable)) iter.Seq2[engine.Row, error] {
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
	wanted *wanted    // nil: all rows of the range are
	needed *page.Part // of rollups; nil: all
	// long: the window may have long chunks. takeLong: they are yielded as they are, see Wanted.
	long, takeLong bool
	// stale, if set, is called with the id of a series that has rows which parts of a long chunk outdo, or parts that rows outdo.
	stale func(id string)
	// left, if set, takes chunks that can't be read, see Unreadable.
	left func(Unreadable)
	// spans, if set, takes the entries of pages in place of yield, see Spans.
	spans func(ChunkSpan) error
	yield func(engine.Row, error) bool
	n     int // rows yielded
	// entries is memory of units.
	entries []entry
	reports reports
}

// all runs the scan to its end. It returns no error if the caller wants no more.
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

// run goes from segment to segment that has pages, and yields the rows between these as they are:
//
//	from ──── rows ────┤ segment: pages and rows ├──── rows ────┤ segment ├─ … ─ to
func (s *scan) run() error {
	if err := engine.CheckRange(s.rows); err != nil {
		return err
	}
	from, last := s.rows.From, fields(s.rows.To, s.segment)
	if engine.Compare(from, s.rows.To) > 0 {
		return s.passOn()
	}
	if begin := fields(from, s.segment); len(begin) == s.segment && len(last) == s.segment && engine.Compare(begin, last) == 0 {
		return s.oneSegment(begin)
	}
	if len(last) == 0 || last[0].Int > format.KindChunk {
		last = engine.Key{engine.Int(format.KindChunk)}
	}
	for again := false; engine.Compare(from, s.rows.To) <= 0; again = true {
		var first engine.Key
		var err error
		if begin := fields(from, s.segment); engine.Compare(begin, last) <= 0 {
			first, err = s.firstPage(begin, last)
		}
		switch {
		case err != nil:
			return err
		case first == nil && again:
			return s.plain(from, s.rows.To)
		case first == nil:
			return s.passOn()
		}
		segment := first[:s.segment]
		if before := keyBefore(segment); before != nil && engine.Compare(from, before) <= 0 {
			if err := s.plain(from, before); err != nil {
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

// oneSegment is run for a range within one segment.
func (s *scan) oneSegment(segment engine.Key) error {
	levels, err := s.levelsOf(segment)
	switch {
	case err != nil:
		return err
	case len(levels) == 0:
		return s.passOn()
	}
	return s.scanSegment(segment, levels)
}

// fields returns the first fields of a key, as many of n as there are.
func fields(key engine.Key, n int) engine.Key { return key[:min(n, len(key))] }

// keyBefore returns a key of integers, or the beginning of one, that all keys before those which begin with key have, or are before;
// nil: there are none.
func keyBefore(key engine.Key) engine.Key {
	for n := len(key); n > 0; n-- {
		if last := key[n-1].Int; last > math.MinInt64 {
			return append(append(make(engine.Key, 0, n), key[:n-1]...), engine.Int(last-1))
		}
	}
	return nil
}

// keyAfter is keyBefore in the other direction.
func keyAfter(key engine.Key) engine.Key {
	for n := len(key); n > 0; n-- {
		if last := key[n-1].Int; last < math.MaxInt64 {
			return append(append(make(engine.Key, 0, n), key[:n-1]...), engine.Int(last+1))
		}
	}
	return nil
}

// firstPage returns the integers that the key of the first page between two keys begins with: those of its segment, and its bits;
// nil: there is none.
func (s *scan) firstPage(from, to engine.Key) (key engine.Key, err error) {
	pages := engine.Range{Table: s.pages, Partition: s.rows.Partition, From: from, To: to, KeysOnly: true, Limit: 1, Damaged: s.pagesDamaged()}
	for row, err := range s.r.eng.Scan(s.ctx, pages) {
		if err != nil {
			return nil, err
		}
		key = append(make(engine.Key, 0, s.bits+1), row.Clustering[:s.bits+1]...)
	}
	return key, nil
}

// passOn yields the rows of the whole range as the engine has them.
func (s *scan) passOn() error {
	if s.long {
		return s.plain(s.rows.From, s.rows.To)
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

// plain yields the rows between two keys as the engine has them.
func (s *scan) plain(from, to engine.Key) error {
	for row, err := range s.engineRows(s.part(from, to), nil) {
		if err != nil {
			return err
		}
		if err := s.emit(row); err != nil {
			return err
		}
	}
	return nil
}

// part returns a part of the range, which is read next: all that was yielded lies before it.
func (s *scan) part(from, to engine.Key) engine.Range {
	rows := *s.rows
	rows.From, rows.To = from, to
	if rows.Limit > 0 {
		rows.Limit -= s.n
	}
	s.partDamaged(&rows)
	return rows
}

// cancelEvery is after how many rows a scan looks whether its context has ended: rows of pages come without the engine.
const cancelEvery = 64

// emit yields a row. It returns errEnough if that was the last one.
func (s *scan) emit(row engine.Row) error {
	if s.rows.Damaged != nil {
		s.reached(row.Clustering)
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
