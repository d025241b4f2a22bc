package paged

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Long chunks are rows of r5m and r1h that stand for the chunks of a series in an interval, a day or a window. Compact
// makes them. Their keys lie before those of the series' chunks, so one iterator of the engine yields both, as they
// were at one time:
//
//	engine: │ long a │ a of day 3 │ a of day 30 │ long b │ c of day 1 │
//	rows:   │ a of day 1 │ day 2 │ day 3, of the higher version │ … │ b of day 1 │ …
//
// Where the caller takes long chunks (Wanted.Long), and neither a row nor a page has anything of the interval that
// counts, it gets them as they are.

// widen changes a range of the engine's rows so that long chunks among them can be read: their values are needed.
func (s *scan) widen(rows *engine.Range) {
	if !s.long {
		return
	}
	rows.KeysOnly, rows.Limit = false, 0
	if s.rows.Damaged != nil { // A long chunk may be missing, so the rows next to the gap don't bound it.
		rows.Damaged = func(d engine.Damage) { s.pageDamaged(d.Err) }
	}
}

// fromLong returns where rows from a key on are read from, so that long chunks of its series are among them.
func (s *scan) fromLong(from engine.Key) engine.Key {
	if s.long && len(from) > s.start && from[0].Int == format.KindChunk {
		return from[:s.start]
	}
	return from
}

// longRows yields the rows of a part of the range out of those of the engine, long chunks taken apart. Series with
// entries in pages get no long chunks.
func (s *scan) longRows(part engine.Range, rows iter.Seq2[engine.Row, error], entries []entry) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		x := longReader{scan: s, from: part.From, to: part.To, entries: entries, yield: yield}
		for row, err := range rows {
			if err == nil {
				err = x.row(row)
			}
			if err != nil {
				x.fail(err)
				return
			}
		}
		if err := x.flush(); err != nil {
			x.fail(err)
		}
	}
}

// longReader puts the chunks of a series that has long chunks together.
type longReader struct {
	*scan
	from, to engine.Key
	entries  []entry // of pages, in the order of ids
	yield    func(engine.Row, error) bool

	id     string // of the series whose rows are held; "": none
	longs  []heldLong
	chunks []heldChunk
	items  []longItem
	memory rollup.Long // to parse in
	room   []byte      // of values
	text   []byte      // of id
	key    [3]engine.Value
}

// heldLong is a long chunk.
type heldLong struct {
	start int64 // of its interval
	value []byte
	parts []rollup.Part
	cut   bool // some of its parts don't count, or a chunk comes before the last of them
}

// heldChunk is a chunk of a series with long chunks.
type heldChunk struct {
	start int64
	value []byte
	key   bool // it is yielded
}

// longItem is a row to yield.
type longItem struct {
	start, at int64 // at decides on the order
	value     []byte
}

func (x *longReader) fail(err error) {
	if err != errEnough { //nolint:errorlint // It isn't wrapped.
		x.yield(engine.Row{}, err)
	}
}

// row takes a row of the engine.
func (x *longReader) row(row engine.Row) error {
	k := row.Clustering
	if k[0].Int != format.KindChunk {
		return x.pass(row)
	}
	id := k[x.series].Text
	if x.id != "" && x.id != id {
		if err := x.flush(); err != nil {
			return err
		}
	}
	interval, long := format.LongStart(k[x.start].Int)
	switch {
	case long && x.wanted != nil && interval > x.wanted.Last:
		return nil
	case long:
		return x.holdLong(id, interval, row.Value)
	case !x.asked(k):
		return nil
	case x.id == "":
		return x.pass(row)
	}
	x.chunks = append(x.chunks, heldChunk{start: k[x.start].Int, value: x.copy(row.Value), key: true})
	return nil
}

// asked reports whether a chunk lies in the part of the range.
func (x *longReader) asked(key engine.Key) bool {
	return engine.Compare(x.from, key) <= 0 && engine.Compare(key, x.to) <= 0 &&
		(x.wanted == nil || x.wanted.isWantedRow(key))
}

// askedStart is asked for a chunk of the series that is held.
func (x *longReader) askedStart(start int64) bool { return x.asked(x.keyOf(start)) }

func (x *longReader) keyOf(start int64) engine.Key {
	x.key = [3]engine.Value{engine.Int(format.KindChunk), engine.Text(x.id), engine.Int(start)}
	return x.key[:]
}

func (x *longReader) pass(row engine.Row) error {
	if x.scan.rows.KeysOnly {
		row.Value = nil
	}
	if !x.yield(row, nil) {
		return errEnough
	}
	return nil
}

// holdLong holds a long chunk. One that can't be read is named, and left out.
func (x *longReader) holdLong(id string, interval int64, value []byte) error {
	if x.id == "" {
		x.text = append(x.text[:0], id...)
		x.id = engine.UnsafeText(x.text)
	}
	if err := x.memory.Parse(value); err != nil {
		return x.unreadableLong(interval, err)
	}
	parts := x.memory.Parts
	if last := parts[len(parts)-1].Start; parts[0].Start < interval || last >= interval+x.longWidth() {
		return x.unreadableLong(interval, fmt.Errorf("%w: the long chunk has chunks outside its time range, from %d to %d", engine.ErrCorrupt, parts[0].Start, last))
	}
	x.longs = append(x.longs, heldLong{start: interval, value: x.copy(value), parts: slices.Clone(parts)})
	return nil
}

// unreadableLong handles a long chunk that can't be read, as unreadable does with pages.
func (x *longReader) unreadableLong(interval int64, err error) error {
	err = fmt.Errorf("%w: paged: table %s, partition %s, the long chunk of series %x from %s on: %w", engine.ErrCorrupt, x.tables.rows,
		describeKey(x.tables.rows.Partition, x.scan.rows.Partition), x.id,
		time.UnixMilli(interval).UTC().Format(time.RFC3339), err)
	switch {
	case x.left != nil:
		id := strings.Clone(x.id)
		x.left(Unreadable{id, id, interval, interval + x.longWidth() - 1, err})
	case x.scan.rows.Damaged == nil:
		return err
	default:
		x.pageDamaged(err)
	}
	return nil
}

// flush yields the rows that are held of a series.
func (x *longReader) flush() error {
	if x.id == "" {
		return nil
	}
	x.choose()
	x.items = x.items[:0]
	for i := range x.longs {
		if err := x.addLong(&x.longs[i]); err != nil {
			return err
		}
	}
	for _, c := range x.chunks {
		if c.key {
			x.items = append(x.items, longItem{c.start, c.start, c.value})
		}
	}
	slices.SortStableFunc(x.items, func(a, b longItem) int { return cmp.Compare(a.at, b.at) })
	for _, item := range x.items {
		if err := x.pass(engine.Row{Clustering: x.keyOf(item.start), Value: item.value}); err != nil {
			return err
		}
	}
	x.id, x.longs, x.chunks, x.room = "", x.longs[:0], x.chunks[:0], x.room[:0]
	return nil
}

// choose finds out which of chunks and parts with one start counts: that of the higher version.
func (x *longReader) choose() {
	paged := x.hasEntries()
	for i := range x.longs {
		x.longs[i].cut = paged
	}
	for i := range x.chunks {
		c := &x.chunks[i]
		for j := range x.longs {
			l := &x.longs[j]
			at, found := findPart(l.parts, c.start)
			switch {
			case found && l.parts[at].Version >= rollup.VersionOf(c.value):
				c.key = false
				x.isStale()
			case found:
				l.parts, l.cut = slices.Delete(l.parts, at, at+1), true
				x.isStale()
			case at < len(l.parts) && c.start >= l.start:
				l.cut = true
			}
		}
	}
}

func (x *longReader) isStale() {
	if x.stale != nil {
		x.stale(x.id)
	}
}

// findPart returns where in the order of starts the part of a start is, or would be.
func findPart(parts []rollup.Part, start int64) (at int, found bool) {
	return slices.BinarySearchFunc(parts, start, func(p rollup.Part, start int64) int { return cmp.Compare(p.Start, start) })
}

// hasEntries reports whether pages have chunks of the series.
func (x *longReader) hasEntries() bool {
	at := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].id >= x.id })
	return at < len(x.entries) && x.entries[at].id == x.id
}

// addLong adds the rows that a long chunk stands for.
func (x *longReader) addLong(l *heldLong) error {
	if len(l.parts) == 0 {
		return nil
	}
	if !l.cut && x.takeLong {
		if w := x.wanted; w == nil || l.parts[0].Start <= w.Last && l.parts[len(l.parts)-1].Start >= w.First {
			x.items = append(x.items, longItem{l.start - format.LongShift, l.parts[0].Start, l.value})
		}
		return nil
	}
	if x.scan.rows.KeysOnly {
		for _, p := range l.parts {
			if x.askedStart(p.Start) {
				x.items = append(x.items, longItem{start: p.Start, at: p.Start})
			}
		}
		return nil
	}
	if err := x.memory.Parse(l.value); err != nil {
		return err
	}
	counts := func(p rollup.Part) bool { return slices.Contains(l.parts, p) && x.askedStart(p.Start) }
	err := x.memory.Split(counts, func(p rollup.Part, value []byte) error {
		x.items = append(x.items, longItem{p.Start, p.Start, x.copy(value)})
		return nil
	})
	if err != nil {
		return x.unreadableLong(l.start, err)
	}
	return nil
}

// copy copies a value into memory that is valid until the series has been yielded.
func (x *longReader) copy(value []byte) []byte {
	if cap(x.room)-len(x.room) < len(value) {
		x.room = make([]byte, 0, max(2*cap(x.room), len(value), 4<<10)) // Values before stay where they are.
	}
	from := len(x.room)
	x.room = append(x.room, value...)
	return x.room[from:len(x.room):len(x.room)]
}

// longWidth is how long the interval of a long chunk is, milliseconds.
func (t *tables) longWidth() int64 {
	if t.rows == engine.R1h {
		return format.LongWidthMS(rollup.OneHour)
	}
	return format.LongWidthMS(rollup.FiveMinutes)
}
