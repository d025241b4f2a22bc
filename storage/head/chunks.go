package head

import (
	"iter"
	"slices"
)

// Chunks holds the head chunks of a series, of which most have one at a time, or none. What it refers to is replaced, never
// changed, when head chunks come or go: a copy of it stays as it is.
type Chunks struct {
	one  *Chunk
	many *[]*Chunk // nil: there is no other one
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

func (l Chunks) IsEmpty() bool { return l.one == nil && l.many == nil }

// With returns the list with one head chunk more.
func (l Chunks) With(st *Chunk) Chunks {
	if l.IsEmpty() {
		return Chunks{one: st}
	}
	list := append(slices.Collect(l.All()), st)
	return Chunks{many: &list}
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
	if len(list) == 1 {
		return Chunks{one: list[0]}
	}
	return Chunks{many: &list}
}
