package storage

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// rowSet is a set of stage rows: of each writer, runs of numbers. A process that stages alone gives a generation one run, and
// one that follows others few, where a slot has thousands of rows.
type rowSet struct{ writers []writerRows }

type writerRows struct {
	writer string
	runs   []seqRun // in order, apart from each other
}

// add adds a row.
func (s *rowSet) add(r stageRow) {
	i := s.find(r.writer)
	if i < 0 {
		i = len(s.writers)
		s.writers = append(s.writers, writerRows{writer: strings.Clone(r.writer)})
	}
	s.writers[i].add(r.seq)
}

func (w *writerRows) add(seq int64) {
	// at is the first run that ends at seq, right before it, or later.
	at, _ := slices.BinarySearchFunc(w.runs, seq-1, func(run seqRun, seq int64) int { return cmp.Compare(run.last, seq) })
	if at == len(w.runs) || w.runs[at].first > seq+1 {
		w.runs = slices.Insert(w.runs, at, seqRun{seq, seq})
		return
	}
	run := &w.runs[at]
	run.first, run.last = min(run.first, seq), max(run.last, seq)
	if next := at + 1; next < len(w.runs) && w.runs[next].first == run.last+1 {
		run.last = w.runs[next].last
		w.runs = slices.Delete(w.runs, next, next+1)
	}
}

// find returns the place of a writer, or -1. There are as many as processes.
func (s *rowSet) find(writer string) int {
	return slices.IndexFunc(s.writers, func(w writerRows) bool { return w.writer == writer })
}

func (s *rowSet) has(r stageRow) bool {
	i := s.find(r.writer)
	if i < 0 {
		return false
	}
	runs := s.writers[i].runs
	at, _ := slices.BinarySearchFunc(runs, r.seq, func(run seqRun, seq int64) int { return cmp.Compare(run.last, seq) })
	return at < len(runs) && runs[at].first <= r.seq
}

func (s *rowSet) isEmpty() bool { return len(s.writers) == 0 }

func (s *rowSet) len() (n int) {
	for _, w := range s.writers {
		for _, run := range w.runs {
			n += int(run.last-run.first) + 1
		}
	}
	return n
}

// all yields the rows, those of a writer in order.
func (s *rowSet) all() iter.Seq[stageRow] {
	return func(yield func(stageRow) bool) {
		for _, w := range s.writers {
			for _, run := range w.runs {
				for seq := run.first; ; seq++ {
					if !yield(stageRow{w.writer, seq}) {
						return
					}
					if seq == run.last {
						break
					}
				}
			}
		}
	}
}

// isCovered says whether any of the generations covers a stage row.
func isCovered(gens []*generation, r stageRow) bool {
	return slices.ContainsFunc(gens, func(g *generation) bool { return g.rows.has(r) })
}
