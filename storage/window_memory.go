package storage

import (
	"encoding/binary"
	"slices"
	"sort"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// windowMemory holds what the work in the background has found out about windows, so that a window to which nothing was written since costs it no
// reads. It takes some 40 bytes per window, as few as that because there is a window per tenant and day: the cache of what queries read, which is
// ten times as large for each, can't hold all of them, and isn't to be filled with windows that no query asks for.
//
//	tenant ─► its windows, in order: {the engine's version, the version of the marks at that time, whether the series are counted}
//
// It is bounded: windows beyond maxKnownWindows are read each time.
type windowMemory struct {
	mu sync.Mutex
	of map[string][]knownWindow
	n  int // windows of all tenants
}

const maxKnownWindows = 1 << 20

// knownWindow is a window of a tenant.
type knownWindow struct {
	window int64
	// engine is the engine's version of the window's marks when these were read, plus 1; 0: they weren't.
	engine uint64
	// marks is the version of the marks; 0: there are none.
	marks uint64
	// counts has whether its series are counted: see countedState.known.
	counts uint64
}

// bounds returns the places of the first and after the last of the windows from first to last.
func bounds(list []knownWindow, first, last int64) (from, to int) {
	from = sort.Search(len(list), func(i int) bool { return list[i].window >= first })
	return from, from + sort.Search(len(list)-from, func(i int) bool { return list[from+i].window > last })
}

// get returns a window; the zero value: nothing is known of it.
func (m *windowMemory) get(at tenantWindow) (k knownWindow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[at.tenant]
	if from, to := bounds(list, at.window, at.window); from < to {
		k = list[from]
	}
	return k
}

// change calls set to change a window.
func (m *windowMemory) change(at tenantWindow, set func(*knownWindow)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.of[at.tenant]
	from, to := bounds(list, at.window, at.window)
	if from == to {
		if m.n >= maxKnownWindows {
			return
		}
		if m.of == nil {
			m.of = map[string][]knownWindow{}
		}
		list = slices.Insert(list, from, knownWindow{window: at.window})
		m.of[at.tenant] = list
		m.n++
	}
	set(&list[from])
}

// retain forgets the windows from first to last that aren't listed any more.
func (m *windowMemory) retain(tenant string, first, last int64, listed []int64) {
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

// States of the counts of a window's series, in the lowest bits of knownWindow.counts; the others are a hash of the window's states.
const (
	countsThere     = 1 + iota // they are stored
	countsWait                 // they are to be made
	countsWaitAgain            // so are these, and there are some of other states
	countsLost                 // they can't be read, whatever the state is

	countsBits = 7
)

// known returns the value of knownWindow.counts of a window in these states.
func (c countedState) known(as uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], c.state)
	binary.LittleEndian.PutUint64(b[8:], c.before)
	return xxhash.Sum64(b[:])&^countsBits | as
}

// countsOf returns whether the series of a window in these states are counted; 0: that isn't known.
func (m *windowMemory) countsOf(at tenantWindow, of countedState) uint64 {
	k := m.get(at).counts
	if as := k & countsBits; as == countsLost || k == of.known(as) {
		return as
	}
	return 0
}

// setCounts remembers whether the series of a window in these states are counted.
func (m *windowMemory) setCounts(at tenantWindow, of countedState, as uint64) {
	m.change(at, func(k *knownWindow) { k.counts = of.known(as) })
}
