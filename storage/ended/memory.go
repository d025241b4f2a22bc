package ended

import (
	"slices"
	"sort"
	"sync"
)

// Memory holds what the work in the background has found out about windows, so that a window to which nothing was written since costs it no
// reads. It takes some 40 bytes per window, as few as that because there is a window per tenant and day: the cache of what queries read, which is
// ten times as large for each, can't hold all of them, and isn't to be filled with windows that no query asks for.
//
//	tenant ─► its windows, in order: {the engine's version, the version of the marks at that time, a note}
//
// It is bounded: windows beyond maxKnown are read each time.
type Memory struct {
	mu sync.Mutex
	of map[string][]knownWindow
	n  int // windows of all tenants
}

const maxKnown = 1 << 20

// knownWindow is a window of a tenant.
type knownWindow struct {
	window int64
	// engine is the engine's version of the window's marks when these were read, plus 1; 0: they weren't.
	engine uint64
	// marks is the version of the marks; 0: there are none.
	marks uint64
	// noted is what the work in the background has noted; 0: nothing.
	noted uint64
}

// bounds returns the places of the first and after the last of the windows from first to last.
func bounds(list []knownWindow, first, last int64) (from, to int) {
	from = sort.Search(len(list), func(i int) bool { return list[i].window >= first })
	return from, from + sort.Search(len(list)-from, func(i int) bool { return list[from+i].window > last })
}

// get returns a window; the zero value: nothing is known of it.
func (m *Memory) get(tenant string, window int64) (k knownWindow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[tenant]
	if from, to := bounds(list, window, window); from < to {
		k = list[from]
	}
	return k
}

// change calls set to change a window.
func (m *Memory) change(tenant string, window int64, set func(*knownWindow)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[tenant]
	from, to := bounds(list, window, window)
	if from == to {
		if m.n >= maxKnown {
			return
		}
		if m.of == nil {
			m.of = map[string][]knownWindow{}
		}
		list = slices.Insert(list, from, knownWindow{window: window})
		m.of[tenant] = list
		m.n++
	}
	set(&list[from])
}

// Retain forgets the windows from first to last that aren't listed any more.
func (m *Memory) Retain(tenant string, first, last int64, listed []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[tenant]
	from, to := bounds(list, first, last)
	kept := slices.DeleteFunc(list[from:to:to], func(k knownWindow) bool {
		_, is := slices.BinarySearch(listed, k.window)
		return !is
	})
	if gone := to - from - len(kept); gone > 0 {
		m.of[tenant] = slices.Delete(list, from+len(kept), to)
		m.n -= gone
	}
}

// Version returns the version of a window's commit records, if they were read in this version of the engine.
func (m *Memory) Version(tenant string, window int64, engineVersion uint64) (version uint64, ok bool) {
	k := m.get(tenant, window)
	return k.marks, k.engine == engineVersion+1
}

// SetVersion keeps the version of a window's commit records, with the version that the engine had before they were read.
func (m *Memory) SetVersion(tenant string, window int64, engineVersion, version uint64) {
	m.change(tenant, window, func(k *knownWindow) { k.engine, k.marks = engineVersion+1, version })
}

// Noted returns the note of a window; 0: there is none.
func (m *Memory) Noted(tenant string, window int64) uint64 { return m.get(tenant, window).noted }

// Note keeps a number for a window.
func (m *Memory) Note(tenant string, window int64, noted uint64) {
	m.change(tenant, window, func(k *knownWindow) { k.noted = noted })
}
