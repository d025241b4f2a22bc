package ended

import (
	"slices"
	"sort"
	"sync"
)

// Memory records the results of background work on windows, so that a window without writes since then causes no reads.
// It takes about 40 bytes per window. There is a window per tenant and day. The cache of queries takes ten times as
// much per window, so it couldn't hold all windows, and it shouldn't be filled with windows that no query reads.
//
//	tenant ─► its windows, in order: {the engine's version, the version of the commit records at that time, a note}
//
// It holds at most maxKnown windows. Other windows are read in each pass.
type Memory struct {
	mu sync.Mutex
	of map[string][]knownWindow
	n  int // windows of all tenants
}

const maxKnown = 1 << 20

// knownWindow is a window of a tenant with the results of background work.
type knownWindow struct {
	window int64
	// engine is the engine's version of the window's commit records when they were last read, plus 1. It is 0 if they
	// weren't read.
	engine uint64
	// marks is the version of the commit records, or 0 if there are none.
	marks uint64
	// noted is the note of the background work, or 0 if there is none.
	noted uint64
}

// windowBounds returns the index of the first of the windows from first to last, and the index after the last of them.
func windowBounds(list []knownWindow, first, last int64) (from, to int) {
	from = sort.Search(len(list), func(i int) bool { return list[i].window >= first })
	return from, from + sort.Search(len(list)-from, func(i int) bool { return list[from+i].window > last })
}

// get returns a window, or the zero value if the window is unknown.
func (m *Memory) get(tenant string, window int64) (k knownWindow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[tenant]
	if from, to := windowBounds(list, window, window); from < to {
		k = list[from]
	}
	return k
}

// change applies set to a window and adds the window if it is unknown.
func (m *Memory) change(tenant string, window int64, set func(*knownWindow)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[tenant]
	from, to := windowBounds(list, window, window)
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

// Retain removes the windows from first to last that aren't in listed.
func (m *Memory) Retain(tenant string, first, last int64, listed []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[tenant]
	from, to := windowBounds(list, first, last)
	kept := slices.DeleteFunc(list[from:to:to], func(k knownWindow) bool {
		_, is := slices.BinarySearch(listed, k.window)
		return !is
	})
	if gone := to - from - len(kept); gone > 0 {
		m.of[tenant] = slices.Delete(list, from+len(kept), to)
		m.n -= gone
	}
}

// Version returns the version of a window's commit records, if they were read at this version of the engine.
func (m *Memory) Version(tenant string, window int64, engineVersion uint64) (version uint64, ok bool) {
	k := m.get(tenant, window)
	return k.marks, k.engine == engineVersion+1
}

// SetVersion sets the version of a window's commit records. engineVersion is the engine's version before they were
// read.
func (m *Memory) SetVersion(tenant string, window int64, engineVersion, version uint64) {
	m.change(tenant, window, func(k *knownWindow) { k.engine, k.marks = engineVersion+1, version })
}

// Note returns the note of a window, or 0.
func (m *Memory) Note(tenant string, window int64) uint64 { return m.get(tenant, window).noted }

// SetNote sets the note of a window.
func (m *Memory) SetNote(tenant string, window int64, noted uint64) {
	m.change(tenant, window, func(k *knownWindow) { k.noted = noted })
}
