package storage

import (
	"iter"
	"slices"
)

// strandList holds the strands of a series, of which most have one at a time, or none. What it refers to is replaced, never
// changed, when strands come or go: a copy of it stays as it is.
type strandList struct {
	one  *strand
	many *[]*strand // nil: there is no other one
}

// all yields the strands.
func (l strandList) all() iter.Seq[*strand] {
	return func(yield func(*strand) bool) {
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

func (l strandList) isEmpty() bool { return l.one == nil && l.many == nil }

// with returns the list with one strand more.
func (l strandList) with(st *strand) strandList {
	if l.isEmpty() {
		return strandList{one: st}
	}
	list := append(slices.Collect(l.all()), st)
	return strandList{many: &list}
}

// without returns the list without a strand.
func (l strandList) without(st *strand) strandList {
	if l.many == nil {
		if l.one == st {
			return strandList{}
		}
		return l
	}
	list := slices.DeleteFunc(slices.Clone(*l.many), func(other *strand) bool { return other == st })
	if len(list) == 1 {
		return strandList{one: list[0]}
	}
	return strandList{many: &list}
}
