package query

import (
	"cmp"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/format"
)

// wantedSeries is a series to read from a source.
type wantedSeries struct {
	source uint32
	at     uint32 // its index among the metric's series in the window
	series uint32 // its index in the group
	// alone is true if no other source contains chunks of the series in the window.
	alone bool
	of    *SelectedSeries
	// deletes are the deletes that apply to the series but weren't applied to the rollups of some slot.
	deletes format.Tombstones
}

// wantMemory is a pool of slices of wantedSeries.
var wantMemory = sync.Pool{New: func() any { return new([]wantedSeries) }}

// maxReusedWants is the maximum capacity of slices that are reused. Larger slices occur only in reads of many chunks,
// which take longer than an allocation.
const maxReusedWants = 4096

// fewSources is the maximum number of sources for which sortWants collects the series source by source. If there are
// more sources, it sorts by comparison.
const fewSources = 16

// sortWants sorts wants by source and index. Within a source they are usually already in order, because both the result
// and its windows list the series of a metric in the order of their ids.
func sortWants(wants []wantedSeries) {
	byPlace := func(a, b wantedSeries) int { return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.at, b.at)) }
	var sources, last []uint32 // last is the last index of each source
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
	memory := wantMemory.Get().(*[]wantedSeries)
	sorted := (*memory)[:0]
	for _, source := range sources {
		for i := range wants {
			if wants[i].source == source {
				sorted = append(sorted, wants[i])
			}
		}
	}
	copy(wants, sorted)
	if clear(sorted); cap(sorted) <= maxReusedWants {
		*memory = sorted
		wantMemory.Put(memory)
	}
}
