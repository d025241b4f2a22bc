package storage

import (
	"iter"
	"slices"
)

// headChunks holds the head chunks of a series, of which most have one at a time, or none. What it refers to is replaced, never
// changed, when head chunks come or go: a copy of it stays as it is.
type headChunks struct {
	one  *headChunk
	many *[]*headChunk // nil: there is no other one
}

// All yields the head chunks.
func (l headChunks) All() iter.Seq[*headChunk] {
	return func(yield func(*headChunk) bool) {
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

func (l headChunks) IsEmpty() bool { return l.one == nil && l.many == nil }

// With returns the list with one head chunk more.
func (l headChunks) With(st *headChunk) headChunks {
	if l.IsEmpty() {
		return headChunks{one: st}
	}
	list := append(slices.Collect(l.All()), st)
	return headChunks{many: &list}
}

// Without returns the list without a head chunk.
func (l headChunks) Without(st *headChunk) headChunks {
	if l.many == nil {
		if l.one == st {
			return headChunks{}
		}
		return l
	}
	list := slices.DeleteFunc(slices.Clone(*l.many), func(other *headChunk) bool { return other == st })
	if len(list) == 1 {
		return headChunks{one: list[0]}
	}
	return headChunks{many: &list}
}
