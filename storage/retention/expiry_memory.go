package retention

import (
	"maps"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/membership"
)

// expiryMemory caches expiries, which never change.
type expiryMemory struct {
	mu sync.Mutex
	of map[expiryAt]expiryRow
	// learned maps windows to the times at which their expiries were read. If an expiry is missing in the cache, it was
	// fixed later or isn't fixed.
	learned map[windowOf]time.Time
}

func (m *expiryMemory) get(at expiryAt) (row expiryRow, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, ok = m.of[at]
	return row, ok
}

// getBoth returns the cached expiries of a class and of the shared rows in a window. known is true if the class's
// expiry is cached, or didn't exist when the expiries of the window were read.
func (m *expiryMemory) getBoth(at expiryAt) (shared, own expiryRow, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if own, known = m.of[at]; !known {
		_, known = m.learned[windowOf{at.tenant, at.window}]
	}
	return m.of[expiryAt{at.tenant, Shared, at.window}], own, known
}

// isFresh reports whether a window's expiries are all cached, or were read less than expiriesFresh ago.
func (m *expiryMemory) isFresh(in windowOf, classes int64, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	read, ok := m.learned[in]
	if !ok || membership.Elapsed(read, now) < expiriesFresh {
		return ok
	}
	for class := int64(Shared); class < classes; class++ {
		if _, ok := m.of[expiryAt{in.tenant, class, in.window}]; !ok {
			return false
		}
	}
	return true
}

func (m *expiryMemory) set(at expiryAt, row expiryRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evictExcess()
	m.of[at] = row
}

// setWindow caches all expiries of a window. They were read at time now.
func (m *expiryMemory) setWindow(in windowOf, found map[expiryAt]expiryRow, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evictExcess()
	maps.Copy(m.of, found)
	m.learned[in] = now
}

func (m *expiryMemory) evictExcess() {
	if m.of == nil || len(m.of) >= maxExpiries || len(m.learned) >= maxExpiries {
		m.of, m.learned = map[expiryAt]expiryRow{}, map[windowOf]time.Time{}
	}
}
