package query

import (
	"cmp"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/format"
)

// want is a series to read from a source.
type want struct {
	source uint32
	at     uint32 // its place among the series that its metric has in the window
	series uint32 // its place in the group
	// alone: no other source has chunks of the series in the window.
	alone bool
	of    *SelectedSeries
	// deletes are those that are about the series, where the rollups of some slot were made without one.
	deletes format.Tombstones
}

// wantMemory has memory of wants that were read.
var wantMemory = sync.Pool{New: func() any { return new([]want) }}

// keptWants bounds the memory that is used again: more are those of series with many chunks, which take longer to read.
const keptWants = 4096

// fewSources is from how many sources wants are sorted source by source.
const fewSources = 16

// sortWants sorts by source and place. Most often those of each source are in order: the series of a metric come in the order of their ids,
// as they do in its windows.
func sortWants(wants []want) {
	byPlace := func(a, b want) int { return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.at, b.at)) }
	var sources, last []uint32 // last is the place of the last one of each source
	inOrder := true
	for i := range wants {
		w := &wants[i]
		inOrder = inOrder && (i == 0 || byPlace(wants[i-1], *w) <= 0)
		at, found := slices.BinarySearch(sources, w.source)
		if !found {
			sources, last = slices.Insert(sources, at, w.source), slices.Insert(last, at, 0)
		}
		if len(sources) > fewSources || w.at < last[at] {
			slices.SortFunc(wants, byPlace)
			return
		}
		last[at] = w.at
	}
	if inOrder {
		return
	}
	memory := wantMemory.Get().(*[]want)
	sorted := (*memory)[:0]
	for _, source := range sources {
		for i := range wants {
			if wants[i].source == source {
				sorted = append(sorted, wants[i])
			}
		}
	}
	copy(wants, sorted)
	if clear(sorted); cap(sorted) <= keptWants {
		*memory = sorted
		wantMemory.Put(memory)
	}
}
