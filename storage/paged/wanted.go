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

// Wanted selects chunks of a partition: the chunks of the series in IDs that have starts from First to Last, inclusive.
type Wanted struct {
	Table       *engine.Table // raw, r5m or r1h
	Partition   engine.Key
	IDs         []string // of the series, sorted and unique; at least one
	First, Last int64    // starts in milliseconds
	KeysOnly    bool
	// NoVersions means that the versions of raw chunks, which are the last field of their keys, aren't needed and may
	// be empty.
	NoVersions bool
	Damaged    func(engine.Damage) // as in engine.Range
	// Left, if set, is called with unreadable chunks, which are then skipped. If it is nil, they are damage.
	Left func(Unreadable)
	// Columns are the columns of rollups that rollup.Decode will read; others may be missing. 0 means that all are
	// needed.
	Columns rollup.Columns
	// Bounded means that raw chunks without samples from MinT to MaxT, in milliseconds, aren't needed and may be
	// missing.
	Bounded    bool
	MinT, MaxT int64
	// Long means that long chunks of r5m and r1h are yielded unchanged, with the key of format.LongKey, if all their
	// parts are valid.
	Long bool
	// Remember permits the use of cached facts about the partition. Damage of its rows that occurs after they were
	// cached isn't detected then.
	Remember bool
	// Version is the version of the window, which changes with each seal, read before the call. 0 means that it is
	// unknown: cached facts aren't used if other processes write pages, see Options.Shared.
	Version uint64
	// PassOver is the number of consecutive rows of other series or starts that a scan skips before it restarts at the
	// next row that may be wanted.
	PassOver int
	// Located contains the positions of the series, and possibly of other series. It is nil if the positions are
	// unknown.
	Located *Located
}

// Range returns a range that contains all wanted rows.
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

// Chunks yields the rows of wanted chunks, including those in pages, in the order of their keys, as Scan does. It opens
// only pages that may have wanted chunks, each once.
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

// wanted selects the rows and pages of a Wanted.
type wanted struct {
	Wanted
	*tables

	long *bool // the window may have long chunks
	at   int   // index in IDs of the last find
}

// find returns the index of the first id in IDs that is at least id, and whether it is equal. It is fast for
// consecutive rows.
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

// isWantedRow reports whether a row is wanted.
func (w *wanted) isWantedRow(key engine.Key) bool {
	_, mine := w.find(key[w.series].Text)
	return mine && w.isWantedStart(key[w.start].Int)
}

// isWantedEngineRow reports whether a row of the engine is needed: a wanted row, or a long chunk that may have wanted
// parts. If there may be long chunks, all rows of a series up to its last wanted row are needed: a scan that restarted
// between these rows could miss a long chunk that has concurrently replaced some of the rows.
func (w *wanted) isWantedEngineRow(key engine.Key) bool {
	if !*w.long || w.isRaw() {
		return w.isWantedRow(key)
	}
	if _, mine := w.find(key[w.series].Text); !mine {
		return false
	}
	if interval, long := format.LongStart(key[w.start].Int); long {
		return interval+w.longWidth() > w.First
	}
	return key[w.start].Int <= w.Last
}

// isWantedStart reports whether chunks with this start are wanted.
func (w *wanted) isWantedStart(start int64) bool { return w.First <= start && start <= w.Last }

// afterRow returns the first possible key of a wanted row after an unwanted one, or nil if there is none.
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

// mayHaveWanted reports whether a page of chunks may have wanted chunks.
func (w *wanted) mayHaveWanted(key engine.Key) bool {
	first := key[w.first].Text
	id, ok := w.nextID(first)
	return ok && id <= bucketLast(first, int(key[w.bits].Int)) && w.isWantedStart(key[w.pageStart].Int)
}

// afterPage is afterRow for pages of one level.
func (w *wanted) afterPage(key engine.Key) engine.Key {
	bits, first := int(key[w.bits].Int), key[w.first].Text
	id, ok := w.nextID(first)
	if !w.isRaw() && ok && id <= bucketLast(first, bits) && key[w.pageStart].Int > w.Last {
		if bucketLast(first, bits) == lastID {
			return nil
		}
		id, ok = w.nextID(nextBucketFirst(bucketLast(first, bits)))
	}
	if !ok {
		return nil
	}
	next := joinKey(key[:w.first], engine.Text(bucketFirst(id, bits)))
	if !w.isRaw() {
		next = append(next, engine.Int(w.First))
	}
	return next
}

// nextID returns the first wanted id that is at least id; ok is false if there is none.
func (w *wanted) nextID(id string) (next string, ok bool) {
	i, _ := slices.BinarySearch(w.IDs, id)
	if i == len(w.IDs) {
		return "", false
	}
	return w.IDs[i], true
}

// passPages is the number of consecutive unwanted pages that a scan skips before it seeks. A page is one or more Pebble
// blocks.
const passPages = 2

// engineRows yields the rows of a part of the range as stored in the engine, without unwanted rows, and with long
// chunks split into their parts. entries are the entries of pages in the part.
func (s *scan) engineRows(part engine.Range, entries []entry) iter.Seq2[engine.Row, error] {
	read := part
	read.From = s.fromLong(part.From)
	s.widen(&read)
	rows := s.r.eng.Scan(s.ctx, read)
	if w := s.wanted; w != nil {
		rows = s.passingOver(read, passing{
			wanted: w.isWantedEngineRow, after: w.afterRow, most: w.PassOver,
			again: func(at, next engine.Key) engine.Range {
				if s.rows.Damaged != nil && !s.long {
					s.setPosition(at)
				}
				rest := s.nextPart(next, part.To)
				s.widen(&rest)
				return rest
			},
		})
	}
	if !s.long {
		return rows
	}
	return s.longRows(part, rows, entries)
}

// enginePages yields the pages of a level as stored in the engine, without unwanted pages.
func (s *scan) enginePages(pages engine.Range) iter.Seq2[engine.Row, error] {
	w := s.wanted
	if w == nil {
		return s.r.eng.Scan(s.ctx, pages)
	}
	return s.passingOver(pages, passing{
		wanted: w.mayHaveWanted, after: w.afterPage, most: passPages, again: func(_, next engine.Key) engine.Range {
			pages.From = next
			return pages
		},
	})
}

// passing configures how a scan skips unwanted rows.
type passing struct {
	wanted func(engine.Key) bool
	after  func(engine.Key) engine.Key // the first key that may be wanted after an unwanted one
	most   int
	again  func(at, next engine.Key) engine.Range // the rest of the range from next on, after at has been skipped
}

// passingOver yields the wanted rows of a range.
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
