package cache

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/storage/meter"
)

// Kinds of entries, with the meaning of EntryKey.Text and of the version.
const (
	KindMetrics uint8 = iota // the names of a window's metrics
	KindSeries               // the series of a metric in a window; text is the metric
	KindNames                // the names of a window's labels
	KindValues               // the values of a label in a window; text is the label
	KindCounts               // the composition of a window's series; text selects it
	KindIDs                  // the ids of a window's series
	KindWindows              // the windows of a tenant; the version is the engine's
	KindMarks                // the commit records of a window; the version is the engine's
	// the series of a metric in a window that some matchers match; text is the metric and the matchers
	KindSought
	KindStored // the stored counts of a window's series
	// the times of samples of a metric's series in a slot; text is the metric, Window is the slot, and the version is
	// the index's
	KindSpans
	// counts of a tenant's unsealed series; text selects them, and the version is made of their number and the time
	KindUnsealed
	// the order of the series of a result by their labels; text is a hash of their ids, the version their number
	KindRanks
	KindOpened // the cost of look-ups of the series of a metric in a window; text is the metric
)

// EntryKey identifies data read from a tenant's sealed window.
type EntryKey struct {
	Kind   uint8
	Window int64
	Tenant string
	Text   string
}

// EntryValue is a cached value. It doesn't change, but its size may grow as it is used.
type EntryValue interface {
	Bytes() int64
}

// Cache keeps data read from sealed windows, up to a size in bytes, and evicts the least recently used entries. An
// entry belongs to one version of its window; an entry of another version replaces it.
type Cache struct {
	capacity int64

	mu      sync.Mutex
	entries map[EntryKey]*list.Element
	recent  *list.List // of *cacheEntry, the most recently used first
	size    int64
	flights map[flightKey]*flight
	counts  Tally
}

// Tally has a cache's statistics: hits and misses since it was created, and the number and the estimated bytes of its
// entries.
type Tally struct {
	Hits, Misses   uint64
	Bytes, Entries int64
}

type cacheEntry struct {
	key     EntryKey
	version uint64
	value   EntryValue
	size    int64
}

// entryBytes is the estimated memory of an entry in addition to its value and texts.
const entryBytes = 200

type flightKey struct {
	EntryKey
	version uint64
}

// flight is a load under way.
type flight struct {
	done  chan struct{}
	value EntryValue
	err   error
}

// New returns a cache with a capacity in bytes.
func New(capacity int64) *Cache {
	return &Cache{
		capacity: capacity, entries: map[EntryKey]*list.Element{}, recent: list.New(), flights: map[flightKey]*flight{},
	}
}

// Capacity returns the max size in bytes.
func (c *Cache) Capacity() int64 { return c.capacity }

// Get returns the value of key in this version of its window, and calls load if the value isn't cached. Concurrent
// calls for the same key wait for one load. Errors aren't cached.
//
// If a load needs much memory, it is canceled, its caller waits for its turn (see meter.Meter), and then loads again.
// So a caller that waits for its turn never holds a value, and a caller that has its turn never waits for a caller that
// has none.
func (c *Cache) Get(
	ctx context.Context, key EntryKey, version uint64, load func(context.Context) (EntryValue, error),
) (EntryValue, error) {
	for {
		value, f, mine := c.lookUp(key, version)
		switch {
		case value != nil:
			return value, nil
		case mine:
			c.runFlight(f, flightKey{key, version}, func() (EntryValue, error) { return load(meter.WithLoading(ctx)) })
			if !errors.Is(f.err, meter.ErrNoTurn) || meter.IsLoading(ctx) {
				return f.value, f.err
			}
			if err := meter.WaitTurn(ctx, key); err != nil {
				return nil, err
			}
			continue
		}
		if err := f.await(ctx, key); err != nil {
			return nil, err
		}
		if f.err == nil {
			return f.value, nil
		}
		if !isContextError(f.err) && !errors.Is(f.err, meter.ErrNoTurn) {
			return nil, f.err
		}
		// The load was canceled by another query, not by this one.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// awaitInterval is the interval at which a caller that waits for a load calls the meter.
const awaitInterval = 100 * time.Millisecond

// await waits for a load of another caller. A load of many series takes seconds. During that time the caller must not
// occupy a query slot that small reads need.
func (f *flight) await(ctx context.Context, key EntryKey) error {
	tick := time.NewTicker(awaitInterval)
	defer tick.Stop()
	for {
		select {
		case <-f.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			meter.Working(ctx, key)
		}
	}
}

// lookUp returns the cached value, or else the flight that loads it. mine is true if the caller must run the load.
func (c *Cache) lookUp(key EntryKey, version uint64) (value EntryValue, f *flight, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.Value.(*cacheEntry).version == version {
		return c.recordHit(e), nil, false
	}
	if f := c.flights[flightKey{key, version}]; f != nil {
		c.counts.Hits++
		return nil, f, false
	}
	c.counts.Misses++
	f = &flight{done: make(chan struct{})}
	c.flights[flightKey{key, version}] = f
	return nil, f, true
}

// GetCached returns the value of key in this version of its window if it is cached. It never loads.
func (c *Cache) GetCached(key EntryKey, version uint64) (EntryValue, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil || e.Value.(*cacheEntry).version != version {
		return nil, false
	}
	return c.recordHit(e), true
}

// GetAllCached is GetCached for multiple keys. key returns the i-th key and its version. into[i] is set to the value,
// or nil.
func (c *Cache) GetAllCached(into []EntryValue, key func(i int) (EntryKey, uint64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range into {
		into[i] = nil
		k, version := key(i)
		if e := c.entries[k]; e != nil && e.Value.(*cacheEntry).version == version {
			into[i] = c.recordHit(e)
		}
	}
}

// recordHit counts a hit and returns the value of the entry. The caller must hold the lock.
func (c *Cache) recordHit(e *list.Element) EntryValue {
	entry := e.Value.(*cacheEntry)
	c.counts.Hits++
	c.recent.MoveToFront(e)
	c.updateSize(entry)
	return entry.value
}

func (c *Cache) runFlight(f *flight, key flightKey, load func() (EntryValue, error)) {
	f.err = ErrLoadPanicked
	defer func() {
		c.mu.Lock()
		delete(c.flights, key)
		if f.err == nil {
			c.put(key, f.value)
		}
		c.mu.Unlock()
		close(f.done)
	}()
	f.value, f.err = load()
}

// ErrLoadPanicked is returned to the readers that waited for a load that panicked.
var ErrLoadPanicked = errors.New("storage: loading a sealed window panicked")

// put adds a value. The caller must hold the lock.
func (c *Cache) put(key flightKey, value EntryValue) {
	if e := c.entries[key.EntryKey]; e != nil {
		c.remove(e)
	}
	entry := &cacheEntry{key: key.EntryKey, version: key.version, value: value}
	c.entries[key.EntryKey] = c.recent.PushFront(entry)
	c.updateSize(entry)
}

// updateSize updates the size of an entry and evicts others if necessary. The caller must hold the lock.
func (c *Cache) updateSize(entry *cacheEntry) {
	size := entry.value.Bytes() + entryBytes + int64(len(entry.key.Tenant)+len(entry.key.Text))
	c.size += size - entry.size
	entry.size = size
	for c.size > c.capacity && c.recent.Len() > 0 {
		c.remove(c.recent.Back())
	}
}

func (c *Cache) remove(e *list.Element) {
	entry := e.Value.(*cacheEntry)
	c.recent.Remove(e)
	delete(c.entries, entry.key)
	c.size -= entry.size
}

// Tally returns the cache's statistics.
func (c *Cache) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	counts.Bytes, counts.Entries = c.size, int64(c.recent.Len())
	return counts
}

// EntriesOf returns the entries of a kind.
func (c *Cache) EntriesOf(kind uint8) map[EntryKey]EntryValue {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := map[EntryKey]EntryValue{}
	for key, e := range c.entries {
		if key.Kind == kind {
			held[key] = e.Value.(*cacheEntry).value
		}
	}
	return held
}

// Register registers the cache's statistics as metrics.
func (c *Cache) Register(f promauto.Factory) {
	counter := func(name, help string, of func(Tally) float64) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: "cassia_store_cache_" + name, Help: help}, func() float64 {
			return of(c.Tally())
		})
	}
	gauge := func(name, help string, of func(Tally) float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_store_cache_" + name, Help: help}, func() float64 {
			return of(c.Tally())
		})
	}
	counter("hits_total",
		"Cache hits for label names or series of sealed windows, including look-ups that waited for a read in "+
			"progress.",
		func(n Tally) float64 { return float64(n.Hits) })
	counter("misses_total", "Cache misses for label names or series of sealed windows, which were read from the store.",
		func(n Tally) float64 { return float64(n.Misses) })
	gauge("bytes", "Estimated memory of the cache of sealed windows, in bytes.",
		func(n Tally) float64 { return float64(n.Bytes) })
	gauge("limit_bytes", "Maximum memory of the cache of sealed windows, in bytes.",
		func(Tally) float64 { return float64(c.capacity) })
	gauge("entries",
		"Cached entries of sealed windows: lists of names and label values, and series indexes per metric and window.",
		func(n Tally) float64 { return float64(n.Entries) })
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
