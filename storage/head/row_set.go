package head

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/format"
)

// rowSet is a set of rows of the staging log, stored as runs of numbers per writer. The rows of a generation form one
// run if a single process stages them, and few runs otherwise, although a slot has thousands of rows.
type rowSet struct{ writers []writerRows }

type writerRows struct {
	writer string
	runs   []format.SeqRun // sorted and not adjacent
}

func (s *rowSet) add(r format.StageRow) {
	i := s.find(r.Writer)
	if i < 0 {
		i = len(s.writers)
		s.writers = append(s.writers, writerRows{writer: strings.Clone(r.Writer)})
	}
	s.writers[i].add(r.Seq)
}

func (w *writerRows) add(seq int64) {
	// at is the first run that ends at seq-1 or later.
	at, _ := slices.BinarySearchFunc(w.runs, seq-1, func(run format.SeqRun, seq int64) int {
		return cmp.Compare(run.Last, seq)
	})
	if at == len(w.runs) || w.runs[at].First > seq+1 {
		w.runs = slices.Insert(w.runs, at, format.SeqRun{First: seq, Last: seq})
		return
	}
	run := &w.runs[at]
	run.First, run.Last = min(run.First, seq), max(run.Last, seq)
	if next := at + 1; next < len(w.runs) && w.runs[next].First == run.Last+1 {
		run.Last = w.runs[next].Last
		w.runs = slices.Delete(w.runs, next, next+1)
	}
}

// find returns the index of a writer, or -1. There are as many writers as processes.
func (s *rowSet) find(writer string) int {
	return slices.IndexFunc(s.writers, func(w writerRows) bool { return w.writer == writer })
}

func (s *rowSet) has(r format.StageRow) bool {
	i := s.find(r.Writer)
	if i < 0 {
		return false
	}
	runs := s.writers[i].runs
	at, _ := slices.BinarySearchFunc(runs, r.Seq, func(run format.SeqRun, seq int64) int {
		return cmp.Compare(run.Last, seq)
	})
	return at < len(runs) && runs[at].First <= r.Seq
}

func (s *rowSet) isEmpty() bool { return len(s.writers) == 0 }

func (s *rowSet) len() (n int) {
	for _, w := range s.writers {
		for _, run := range w.runs {
			n += int(run.Last-run.First) + 1
		}
	}
	return n
}

// all yields the rows; the rows of one writer are sorted.
func (s *rowSet) all() iter.Seq[format.StageRow] {
	return func(yield func(format.StageRow) bool) {
		for _, w := range s.writers {
			for _, run := range w.runs {
				for seq := run.First; ; seq++ {
					if !yield(format.StageRow{Writer: w.writer, Seq: seq}) {
						return
					}
					if seq == run.Last {
						break
					}
				}
			}
		}
	}
}
