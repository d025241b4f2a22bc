package head

import (
	"iter"
	"slices"
	"sort"
)

// Chunks is the list of head chunks of a series; most series have at most one. A list is an immutable value. Copies of
// a list share memory, so only one of them may be extended by WithChunk.
type Chunks struct {
	one  *Chunk    // the head chunk, or any of multiple ones; nil: there is none
	many *[]*Chunk // all, sorted by slot; nil: there is at most one
}

// All yields the head chunks.
func (l Chunks) All() iter.Seq[*Chunk] {
	return func(yield func(*Chunk) bool) {
		if l.many == nil {
			if l.one != nil {
				yield(l.one)
			}
			return
		}
		for _, st := range *l.many {
			if !yield(st) {
				return
			}
		}
	}
}

// haveSamplesIn reports whether any of the head chunks may have samples in [minT, maxT]. It doesn't allocate.
func (l Chunks) haveSamplesIn(minT, maxT int64) bool {
	if l.many == nil {
		return l.one != nil && l.one.hasSamplesIn(minT, maxT)
	}
	return slices.ContainsFunc(*l.many, func(st *Chunk) bool { return st.hasSamplesIn(minT, maxT) })
}

func (l Chunks) IsEmpty() bool { return l.one == nil }

// WithChunk returns the list with another head chunk. During a backfill of months a series has hundreds of head chunks.
// So a chunk of the last slot is appended in amortized constant time, into spare capacity beyond the length of all
// copies.
func (l Chunks) WithChunk(st *Chunk) Chunks {
	if l.IsEmpty() {
		return Chunks{one: st}
	}
	if l.many == nil {
		list := []*Chunk{l.one, st}
		if l.one.gen.start > st.gen.start {
			list[0], list[1] = st, l.one
		}
		return Chunks{l.one, &list}
	}
	list := *l.many
	if last := list[len(list)-1]; last.gen.start <= st.gen.start {
		list = append(list, st)
	} else {
		list = slices.Insert(slices.Clone(list), l.countBefore(st.gen.start+1), st)
	}
	return Chunks{l.one, &list}
}

// countBefore returns the number of head chunks in slots that start before start. There must be multiple head chunks.
func (l Chunks) countBefore(start int64) int {
	return sort.Search(len(*l.many), func(i int) bool { return (*l.many)[i].gen.start >= start })
}

// chunkOf returns the head chunk in a generation, nil if there is none.
func (l Chunks) chunkOf(g *Generation) *Chunk {
	if l.many == nil {
		if l.one != nil && l.one.gen == g {
			return l.one
		}
		return nil
	}
	for _, st := range (*l.many)[l.countBefore(g.start):] {
		switch {
		case st.gen == g:
			return st
		case st.gen.start > g.start:
			return nil
		}
	}
	return nil
}

// WithoutChunk returns the list without a head chunk.
func (l Chunks) WithoutChunk(st *Chunk) Chunks {
	if l.many == nil {
		if l.one == st {
			return Chunks{}
		}
		return l
	}
	list := slices.DeleteFunc(slices.Clone(*l.many), func(other *Chunk) bool { return other == st })
	last := list[len(list)-1]
	switch {
	case len(list) == 1:
		return Chunks{one: last}
	case l.one == st:
		return Chunks{last, &list}
	}
	return Chunks{l.one, &list}
}
