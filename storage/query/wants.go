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

// fewSources is the maximum number of sources for which sortWants doesn't sort by comparison. maxKeyed is the maximum
// number of series that sortByKey sorts.
const fewSources, maxKeyed = 16, 1 << 28

// sortWants sorts wants by source and index. Within a source they are usually already in order, because both the result
// and its windows list the series of a metric in the order of their ids. In a result that is sorted by labels they are
// in any order.
func sortWants(wants []wantedSeries) {
	sources, each, all := sourcesOf(wants)
	switch {
	case all:
	case sources == nil, len(wants) > maxKeyed:
		slices.SortFunc(wants, compareWants)
	case each:
		sortBySource(wants, sources)
	default:
		sortByKey(wants, sources)
	}
}

func compareWants(a, b wantedSeries) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.at, b.at))
}

// sourcesOf returns the sources of wants, ascending, or nil if there are more than fewSources. each is true if the
// series of each source are in order, and all is true if all wants are in order.
func sourcesOf(wants []wantedSeries) (sources []uint32, each, all bool) {
	var last []uint32 // the last index of each source
	each, all = true, true
	for i := range wants {
		w := &wants[i]
		all = all && (i == 0 || compareWants(wants[i-1], *w) <= 0)
		at, found := slices.BinarySearch(sources, w.source)
		if !found {
			sources, last = slices.Insert(sources, at, w.source), slices.Insert(last, at, 0)
		}
		if len(sources) > fewSources {
			return nil, false, false
		}
		each = each && w.at >= last[at]
		last[at] = w.at
	}
	return sources, each, all
}

// sortBySource sorts wants if the series of each source are in order.
func sortBySource(wants []wantedSeries, sources []uint32) {
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

// sortByKey sorts at most maxKeyed wants. It sorts numbers and then moves each of the wants once, which takes a
// fraction of the time of sorting wants: these are large, and contain pointers.
//
//	key: source, 4 bits │ at, 32 bits │ index in wants, 28 bits
func sortByKey(wants []wantedSeries, sources []uint32) {
	keys := make([]uint64, len(wants))
	for i := range wants {
		source, _ := slices.BinarySearch(sources, wants[i].source)
		keys[i] = uint64(source)<<60 | uint64(wants[i].at)<<28 | uint64(i)
	}
	slices.Sort(keys)
	for i := range keys {
		first, to := wants[i], i
		for from := int(keys[i] % maxKeyed); from != i; from = int(keys[to] % maxKeyed) {
			wants[to] = wants[from]
			keys[to] = uint64(to) // It is in its place.
			to = from
		}
		wants[to], keys[to] = first, uint64(to)
	}
}
