package paged

import (
	"context"
	"iter"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Wanted are the chunks of some series of a partition that start between two times, both included.
type Wanted struct {
	Table       *engine.Table // raw, r5m or r1h
	Partition   engine.Key
	IDs         []string // of the series, in order, each once; at least one
	First, Last int64    // starts, milliseconds
	KeysOnly    bool
	// NoVersions: the versions of raw chunks, the last field of their keys, aren't needed, and may be empty.
	NoVersions bool
	Damaged    func(engine.Damage) // as in engine.Range
	// Left takes chunks that can't be read, which are left out then; nil: they are damage.
	Left func(Unreadable)
	// Columns are those that rollup.Decode will read of rollups: the others may be missing. 0: all are needed.
	Columns rollup.Columns
	// Bounded: of raw, chunks that have no samples from MinT to MaxT, milliseconds, aren't needed, and may be missing.
	Bounded    bool
	MinT, MaxT int64
	// Long: of r5m and r1h, long chunks are yielded as they are, with the key of format.LongKey, where all of one counts.
	Long bool
	// Remember: what this process remembers of the partition may be used, and damage that came to its rows since isn't noticed then.
	Remember bool
	// Version is that of the window, read before, which changes with each seal; 0: it isn't known, and nothing that is remembered is used where
	// other processes write pages, see Options.Shared.
	Version uint64
	// PassOver is how many rows of other series, or other starts, a scan passes over, one after the other, before it begins anew where
	// the next row may be that is wanted.
	PassOver int
	// Located is where the series stand, and maybe others; nil: that isn't known.
	Located *Located
}

// Range returns a range that holds all rows that are wanted.
func (w *Wanted) Range() engine.Range {
	rows := engine.Range{Table: w.Table, Partition: w.Partition, KeysOnly: w.KeysOnly, Damaged: w.Damaged}
	first, last := w.IDs[0], w.IDs[len(w.IDs)-1]
	if w.Table == engine.Raw {
		rows.From = engine.Key{engine.Int(format.KindChunk), engine.Int(w.First), engine.Text(first)}
		rows.To = engine.Key{engine.Int(format.KindChunk), engine.Int(w.Last), engine.Text(last)}
	} else {
		rows.From, rows.To = format.RollupKey(first, w.First), format.RollupKey(last, w.Last)
	}
	return rows
}

// Chunks yields the rows of chunks that are wanted, those in pages included, in the order of their keys and as Scan does. Of pages
// only those are opened that may have some of them, each once.
func (r *Rows) Chunks(ctx context.Context, w Wanted) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		t, rows := tablesOf(w.Table), w.Range()
		s := scan{r: r, ctx: ctx, rows: &rows, tables: t, takeLong: w.Long, left: w.Left, yield: yield}
		s.wanted = &wanted{Wanted: w, tables: t, long: &s.long}
		if w.Columns != 0 && w.Columns != rollup.AllColumns {
			s.needed = page.PartOf(w.Columns)
		}
		if err := s.all(); err != nil {
			yield(engine.Row{}, err)
		}
	}
}

// wanted finds the rows and the pages of Wanted.
type wanted struct {
	Wanted
	*tables

	long *bool // the window may have long chunks
	at   int   // index in IDs where the last id was found, or would be
}

// find returns the index of the first id that isn't before an id, and whether it is that id. It is quick where one row follows another.
func (w *wanted) find(id string) (i int, mine bool) {
	for n := 0; n < 2 && w.at < len(w.IDs); n++ {
		if w.IDs[w.at] == id {
			return w.at, true
		}
		w.at++
	}
	w.at, mine = slices.BinarySearch(w.IDs, id)
	return w.at, mine
}

// row reports whether a row is wanted.
func (w *wanted) row(key engine.Key) bool {
	_, mine := w.find(key[w.series].Text)
	return mine && w.starts(key[w.start].Int)
}

// engineRow reports whether a row of the engine is needed: it is wanted, or a long chunk that may have chunks that are. Where there may be long
// chunks, so are all rows of a series up to the last that is wanted: a scan that began anew between them wouldn't find a long chunk that has
// taken the place of some meanwhile.
func (w *wanted) engineRow(key engine.Key) bool {
	if !*w.long || w.isRaw() {
		return w.row(key)
	}
	if _, mine := w.find(key[w.series].Text); !mine {
		return false
	}
	if interval, long := format.LongStart(key[w.start].Int); long {
		return interval+w.longWidth() > w.First
	}
	return key[w.start].Int <= w.Last
}

// starts reports whether chunks of a start are wanted.
func (w *wanted) starts(start int64) bool { return w.First <= start && start <= w.Last }

// afterRow returns the first key that a wanted row after one that isn't may have; nil: there is none.
func (w *wanted) afterRow(key engine.Key) engine.Key {
	start := key[w.start].Int
	i, mine := w.find(key[w.series].Text)
	if w.isRaw() {
		if i == len(w.IDs) {
			i, start = 0, start+1
		}
		return engine.Key{engine.Int(format.KindChunk), engine.Int(start), engine.Text(w.IDs[i])}
	}
	if mine && start > w.Last {
		i, mine = i+1, false
	}
	if i == len(w.IDs) {
		return nil
	}
	if *w.long {
		return format.LongKey(w.IDs[i], w.First-w.longWidth()+1)
	}
	return format.RollupKey(w.IDs[i], w.First)
}

// page reports whether a page of chunks may have some that are wanted.
func (w *wanted) page(key engine.Key) bool {
	first := key[w.first].Text
	id, ok := w.from(first)
	return ok && id <= lastOf(first, int(key[w.bits].Int)) && w.starts(key[w.pageStart].Int)
}

// afterPage is afterRow for pages of one level.
func (w *wanted) afterPage(key engine.Key) engine.Key {
	bits, first := int(key[w.bits].Int), key[w.first].Text
	id, ok := w.from(first)
	if !w.isRaw() && ok && id <= lastOf(first, bits) && key[w.pageStart].Int > w.Last {
		if lastOf(first, bits) == lastID {
			return nil
		}
		id, ok = w.from(after(lastOf(first, bits)))
	}
	if !ok {
		return nil
	}
	next := with(key[:w.first], engine.Text(firstOf(id, bits)))
	if !w.isRaw() {
		next = append(next, engine.Int(w.First))
	}
	return next
}

// from returns the first id that is wanted and isn't before an id; ok is false if there is none.
func (w *wanted) from(id string) (next string, ok bool) {
	i, _ := slices.BinarySearch(w.IDs, id)
	if i == len(w.IDs) {
		return "", false
	}
	return w.IDs[i], true
}

// passPages is how many pages that aren't wanted a scan passes over: a page is one block of Pebble's, or several.
const passPages = 2

// engineRows yields the rows of a part of the range out of those that the engine has, those that aren't wanted left out, and long chunks taken
// apart. entries are those of pages in the part.
func (s *scan) engineRows(part engine.Range, entries []entry) iter.Seq2[engine.Row, error] {
	read := part
	read.From = s.fromLong(part.From)
	s.widen(&read)
	rows := s.r.eng.Scan(s.ctx, read)
	if w := s.wanted; w != nil {
		rows = s.passingOver(read, passing{wanted: w.engineRow, after: w.afterRow, most: w.PassOver, again: func(at, next engine.Key) engine.Range {
			if s.rows.Damaged != nil && !s.long {
				s.reached(at)
			}
			rest := s.part(next, part.To)
			s.widen(&rest)
			return rest
		}})
	}
	if !s.long {
		return rows
	}
	return s.longRows(part, rows, entries)
}

// enginePages yields the pages of a level as the engine has them, those that aren't wanted left out.
func (s *scan) enginePages(pages engine.Range) iter.Seq2[engine.Row, error] {
	w := s.wanted
	if w == nil {
		return s.r.eng.Scan(s.ctx, pages)
	}
	return s.passingOver(pages, passing{wanted: w.page, after: w.afterPage, most: passPages, again: func(_, next engine.Key) engine.Range {
		pages.From = next
		return pages
	}})
}

// passing is how a scan passes over what isn't wanted.
type passing struct {
	wanted func(engine.Key) bool
	after  func(engine.Key) engine.Key // the first key that may be wanted after one that isn't
	most   int
	again  func(at, next engine.Key) engine.Range // the rest of the range from next on, once at has been passed over
}

// passingOver yields the rows of a range that are wanted.
func (s *scan) passingOver(rows engine.Range, p passing) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		for more := true; more; {
			more = false
			others := 0
			for row, err := range s.r.eng.Scan(s.ctx, rows) {
				if err != nil || p.wanted(row.Clustering) {
					if others = 0; !yield(row, err) || err != nil {
						return
					}
					continue
				}
				if others++; others <= p.most {
					continue
				}
				if next := p.after(row.Clustering); next != nil && engine.Compare(next, rows.To) <= 0 {
					rows, more = p.again(row.Clustering, next), true
				}
				break
			}
		}
	}
}
