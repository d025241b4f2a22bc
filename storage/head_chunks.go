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

// all yields the head chunks.
func (l headChunks) all() iter.Seq[*headChunk] {
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

func (l headChunks) isEmpty() bool { return l.one == nil && l.many == nil }

// with returns the list with one head chunk more.
func (l headChunks) with(st *headChunk) headChunks {
	if l.isEmpty() {
		return headChunks{one: st}
	}
	list := append(slices.Collect(l.all()), st)
	return headChunks{many: &list}
}

// without returns the list without a head chunk.
func (l headChunks) without(st *headChunk) headChunks {
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
