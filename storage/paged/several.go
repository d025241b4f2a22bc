package paged

import (
	"context"
	"encoding/binary"
	"iter"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

const (
	// fewRaw and fewRollups are of how many series of a partition the chunks may be wanted to be read with those of
	// other partitions: what stands beside them is read, too, of rollups the whole window.
	fewRaw, fewRollups = 32, 6
	// severalPartitions is how many partitions are read together: their pages are looked for before the rows of the
	// first are read.
	severalPartitions = 128
)

// ChunksOf are rows of several Wanted: the row of the one at this place of their list.
type ChunksOf struct {
	engine.Row
	At int
}

// Several yields the rows of several Wanted, of each those that Chunks yields, in the order of their keys, and the
// Wanted in any order. It asks for few series of many partitions together where the engine is a SeveralScanner: which
// of them have pages first, and then the rows of those that don't. An error comes with the place of the Wanted, or one
// of them, that was read.
func (r *Rows) Several(ctx context.Context, list []Wanted) iter.Seq2[ChunksOf, error] {
	return func(yield func(ChunksOf, error) bool) {
		s := several{r: r, ctx: ctx, list: list, yield: yield}
		for _, group := range s.groups() {
			if !s.together(group) {
				return
			}
		}
		for _, i := range s.single {
			if !s.alone(i) {
				return
			}
		}
	}
}

// several is a call of Several.
type several struct {
	r      *Rows
	ctx    context.Context
	list   []Wanted
	single []int // those that are read by themselves
	yield  func(ChunksOf, error) bool
}

// groups returns which Wanted are read together: those of a table, a range and partitions that differ in their metric.
// The others are single.
func (s *several) groups() (groups [][]int) {
	open := map[string]int{} // the groups that take more
	for i := range s.list {
		w := &s.list[i]
		if s.r.gatherer == nil || !w.isFew() {
			s.single = append(s.single, i)
			continue
		}
		name := w.groupName()
		at, ok := open[name]
		if !ok || len(groups[at]) == severalPartitions {
			at = len(groups)
			groups, open[name] = append(groups, nil), at
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// isFew reports whether chunks may be read together with those of other partitions: what only a scan of one partition
// heeds isn't asked for.
func (w *Wanted) isFew() bool {
	most := fewRollups
	if w.Table == engine.Raw {
		most = fewRaw
	}
	return len(w.IDs) <= most && w.Columns == 0 && !w.Bounded && !w.Long && !w.Remember && w.Located == nil && w.Damaged == nil
}

// groupName is the same for those that may be read together.
func (w *Wanted) groupName() string {
	b := []byte{w.Table.ID, 0}
	if w.KeysOnly {
		b[1] = 1
	}
	for _, n := range []int64{w.First, w.Last} {
		b = binary.AppendVarint(b, n)
	}
	for i, v := range w.Partition {
		if i != format.MetricField {
			b = binary.AppendVarint(b, v.Int)
			b = binary.AppendUvarint(b, uint64(len(v.Text)))
			b = append(b, v.Text...)
		}
	}
	return string(b)
}

// alone reads one Wanted. It returns false when no more is to be yielded.
func (s *several) alone(i int) bool {
	for row, err := range s.r.Chunks(s.ctx, s.list[i]) {
		if !s.yield(ChunksOf{row, i}, err) || err != nil {
			return false
		}
	}
	return true
}

// together reads a group, and leaves those that have pages, or many rows, to be read by themselves. It returns false
// when no more is to be yielded.
func (s *several) together(group []int) bool {
	w := &s.list[group[0]]
	if t := tablesOf(w.Table); !t.isRaw() {
		window := w.Partition[0].Int
		if s.r.long.begin(window) {
			s.single = append(s.single, group...)
			return true
		}
		defer s.r.long.end(window)
	}
	plain, err := s.withoutPages(group)
	if err != nil {
		s.yield(ChunksOf{At: group[0]}, err)
		return false
	}
	if len(plain) < 2 {
		s.single = append(s.single, plain...)
		return true
	}
	return s.rows(plain)
}

// bounds returns a range of the chunks of a table that have the starts of a Wanted, or may have.
func (w *Wanted) bounds(t *engine.Table) engine.Range {
	rows := engine.Range{Table: t, From: engine.Key{engine.Int(format.KindChunk)}, To: engine.Key{engine.Int(format.KindChunk)}}
	if w.Table == engine.Raw {
		rows.From, rows.To = append(rows.From, engine.Int(w.First)), append(rows.To, engine.Int(w.Last))
	}
	return rows
}

func (s *several) partitions(group []int) []engine.Key {
	list := make([]engine.Key, len(group))
	for i, at := range group {
		list[i] = s.list[at].Partition
	}
	return list
}

// withoutPages returns those of a group that have no pages of the segments that are wanted. The others are single.
func (s *several) withoutPages(group []int) (plain []int, err error) {
	w := &s.list[group[0]]
	pages := w.bounds(tablesOf(w.Table).pages)
	pages.KeysOnly, pages.Limit = true, 1
	paged := make([]bool, len(group))
	for row, err := range s.r.gatherer.ScanSeveral(s.ctx, pages, s.partitions(group)) {
		if err != nil {
			return nil, err
		}
		paged[row.At] = true
	}
	for i, at := range group {
		if paged[i] {
			s.single = append(s.single, at)
		} else {
			plain = append(plain, at)
		}
	}
	return plain, nil
}

// rows yields the rows of those of a group that have no pages, all of each, once all were read. Those that may have
// more are single.
func (s *several) rows(group []int) bool {
	first := &s.list[group[0]]
	t := tablesOf(first.Table)
	rows := first.bounds(first.Table)
	rows.KeysOnly, rows.Limit = first.KeysOnly, s.r.limits.together
	found, n := make([][]engine.Row, len(group)), make([]int, len(group))
	for row, err := range s.r.gatherer.ScanSeveral(s.ctx, rows, s.partitions(group)) {
		if err != nil {
			s.yield(ChunksOf{At: group[0]}, err)
			return false
		}
		w := wanted{Wanted: s.list[group[row.At]], tables: t}
		if n[row.At]++; w.isWantedRow(row.Clustering) {
			found[row.At] = append(found[row.At], engine.Row{Clustering: row.Clustering.Clone(), Value: append([]byte(nil), row.Value...)})
		}
	}
	for i, at := range group {
		if n[i] == s.r.limits.together {
			s.single = append(s.single, at)
			continue
		}
		for _, row := range found[i] {
			if !s.yield(ChunksOf{row, at}, nil) {
				return false
			}
		}
	}
	return true
}
