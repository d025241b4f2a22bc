package head

import (
	"iter"
	"slices"
	"sort"
)

// Chunks holds the head chunks of a series, of which most have one at a time, or none. A copy stays
// as it is when head chunks come or go. Copies share memory, so only one of them may be extended, by With.
type Chunks struct {
	one  *Chunk    // nil: there are none. Where there are several, any of them.
	many *[]*Chunk // all, in the order of their slots; nil: there is no other one
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

// haveSamplesIn reports whether any of the head chunks may have samples in [minT, maxT]. It allocates nothing.
func (l Chunks) haveSamplesIn(minT, maxT int64) bool {
	if l.many == nil {
		return l.one != nil && l.one.hasSamplesIn(minT, maxT)
	}
	return slices.ContainsFunc(*l.many, func(st *Chunk) bool { return st.hasSamplesIn(minT, maxT) })
}

func (l Chunks) IsEmpty() bool { return l.one == nil }

// With returns the list with one head chunk more. A series of which months are sent has hundreds, so that one of the last slot is
// appended, in amortized constant time: into spare capacity, which lies beyond the length of all copies.
func (l Chunks) With(st *Chunk) Chunks {
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
		list = slices.Insert(slices.Clone(list), l.from(st.gen.start+1), st)
	}
	return Chunks{l.one, &list}
}

// from returns how many head chunks are of slots that start before a time. There are several of them.
func (l Chunks) from(start int64) int {
	return sort.Search(len(*l.many), func(i int) bool { return (*l.many)[i].gen.start >= start })
}

// of returns the head chunk of a generation; nil: there is none.
func (l Chunks) of(g *Generation) *Chunk {
	if l.many == nil {
		if l.one != nil && l.one.gen == g {
			return l.one
		}
		return nil
	}
	for _, st := range (*l.many)[l.from(g.start):] {
		switch {
		case st.gen == g:
			return st
		case st.gen.start > g.start:
			return nil
		}
	}
	return nil
}

// Without returns the list without a head chunk.
func (l Chunks) Without(st *Chunk) Chunks {
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
