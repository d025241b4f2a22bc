package storage

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// What a cacheKey names.
const (
	cachedMetrics = iota // the names of a window's metrics
	cachedSeries         // the series of a window's metric, text
	cachedNames          // the names of a window's labels
	cachedValues         // the values of a window's label, text
	cachedCounts         // of what a window's series are made; text selects which
	cachedIDs            // which series a window has
	cachedWindows        // the windows of a tenant; the version is the engine's
	cachedMarks          // the marks of a window; the version is the engine's
	cachedSought         // those series of a window's metric that some matchers match; text is the metric, and the matchers
	cachedStored         // the stored counts of a window's series
	cachedSpans          // when the series of a window's metric have samples in a slot, text; the version is the index's
	cachedOpened         // what look-ups of the series of a window's metric, text, have cost
)

// cacheKey names something that was read of a tenant's sealed window.
type cacheKey struct {
	kind   uint8
	window int64
	tenant string
	text   string
}

// cached is what a cache holds. It doesn't change, but it may grow as it is used.
type cached interface {
	bytes() int64
}

// cache keeps data read of sealed windows, up to a size in bytes, and evicts entries that were not used for
// the longest time. An entry is of one version of its window; another version takes its place.
type cache struct {
	capacity int64

	mu      sync.Mutex
	entries map[cacheKey]*list.Element
	recent  *list.List // of *cacheEntry, the last used first
	size    int64
	flights map[flightKey]*flight
	counts  cacheCounts
}

// cacheCounts are a cache's figures: hits and misses since it was made, and what it holds.
type cacheCounts struct {
	hits, misses   uint64
	bytes, entries int64
}

type cacheEntry struct {
	key     cacheKey
	version uint64
	value   cached
	size    int64
}

// entryBytes is what an entry takes besides its value and texts.
const entryBytes = 200

type flightKey struct {
	cacheKey
	version uint64
}

// flight is a load that is under way.
type flight struct {
	done  chan struct{}
	value cached
	err   error
}

func newCache(capacity int64) *cache {
	return &cache{
		capacity: capacity, entries: map[cacheKey]*list.Element{}, recent: list.New(), flights: map[flightKey]*flight{},
	}
}

// get returns the value of key in this version of its window, and calls load if the cache doesn't hold it. Concurrent calls for the same
// key wait for that load; an error isn't kept. A load that grows large is given up until the caller has its turn (see Meter), so that
// no caller that waits for its turn holds a value, and none that has its turn waits for one that hasn't.
func (c *cache) get(ctx context.Context, key cacheKey, version uint64, load func(context.Context) (cached, error)) (cached, error) {
	for {
		value, f, mine := c.look(key, version)
		switch {
		case value != nil:
			return value, nil
		case mine:
			c.fly(f, flightKey{key, version}, func() (cached, error) { return load(loading(ctx)) })
			if !errors.Is(f.err, ErrNoTurn) || isLoading(ctx) {
				return f.value, f.err
			}
			if err := meterOf(ctx).Turn(ctx); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if f.err == nil {
			return f.value, nil
		}
		if !isContextError(f.err) && !errors.Is(f.err, ErrNoTurn) {
			return nil, f.err
		}
		// Another query gave up, not this one.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// look returns the value held, or else a flight; mine is true if the caller must fly it.
func (c *cache) look(key cacheKey, version uint64) (value cached, f *flight, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.Value.(*cacheEntry).version == version {
		return c.hit(e), nil, false
	}
	if f := c.flights[flightKey{key, version}]; f != nil {
		c.counts.hits++
		return nil, f, false
	}
	c.counts.misses++
	f = &flight{done: make(chan struct{})}
	c.flights[flightKey{key, version}] = f
	return nil, f, true
}

// held returns what key names in this version of its window, if it is in memory.
func (c *cache) held(key cacheKey, version uint64) (cached, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil || e.Value.(*cacheEntry).version != version {
		return nil, false
	}
	return c.hit(e), true
}

// heldOf is held for each of some keys, in the place of which into gets the value, or nil; key returns one with its version.
func (c *cache) heldOf(into []cached, key func(i int) (cacheKey, uint64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range into {
		into[i] = nil
		k, version := key(i)
		if e := c.entries[k]; e != nil && e.Value.(*cacheEntry).version == version {
			into[i] = c.hit(e)
		}
	}
}

// hit counts a look-up that has found an entry, and returns its value. It needs the lock.
func (c *cache) hit(e *list.Element) cached {
	entry := e.Value.(*cacheEntry)
	c.counts.hits++
	c.recent.MoveToFront(e)
	c.measure(entry)
	return entry.value
}

func (c *cache) fly(f *flight, key flightKey, load func() (cached, error)) {
	f.err = errLoadPanicked
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

var errLoadPanicked = errors.New("storage: loading a sealed window panicked")

// put and measure need the lock.
func (c *cache) put(key flightKey, value cached) {
	if e := c.entries[key.cacheKey]; e != nil {
		c.remove(e)
	}
	entry := &cacheEntry{key: key.cacheKey, version: key.version, value: value}
	c.entries[key.cacheKey] = c.recent.PushFront(entry)
	c.measure(entry)
}

// measure accounts for an entry's size, and makes room.
func (c *cache) measure(entry *cacheEntry) {
	size := entry.value.bytes() + entryBytes + int64(len(entry.key.tenant)+len(entry.key.text))
	c.size += size - entry.size
	entry.size = size
	for c.size > c.capacity && c.recent.Len() > 0 {
		c.remove(c.recent.Back())
	}
}

func (c *cache) remove(e *list.Element) {
	entry := e.Value.(*cacheEntry)
	c.recent.Remove(e)
	delete(c.entries, entry.key)
	c.size -= entry.size
}

// stats returns the cache's figures.
func (c *cache) stats() cacheCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	counts.bytes, counts.entries = c.size, int64(c.recent.Len())
	return counts
}

// register makes the cache's figures metrics.
func (c *cache) register(f promauto.Factory) {
	counter := func(name, help string, of func(cacheCounts) float64) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: "cassia_store_cache_" + name, Help: help}, func() float64 { return of(c.stats()) })
	}
	gauge := func(name, help string, of func(cacheCounts) float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_store_cache_" + name, Help: help}, func() float64 { return of(c.stats()) })
	}
	counter("hits_total", "Cache hits for label names or series of sealed windows, including look-ups that waited for a read in progress.",
		func(n cacheCounts) float64 { return float64(n.hits) })
	counter("misses_total", "Cache misses for label names or series of sealed windows, which were read from the store.",
		func(n cacheCounts) float64 { return float64(n.misses) })
	gauge("bytes", "Estimated memory of the cache of sealed windows, in bytes.", func(n cacheCounts) float64 { return float64(n.bytes) })
	gauge("limit_bytes", "Maximum memory of the cache of sealed windows, in bytes.", func(cacheCounts) float64 { return float64(c.capacity) })
	gauge("entries", "Cached entries of sealed windows: lists of names and label values, and series indexes per metric and window.",
		func(n cacheCounts) float64 { return float64(n.entries) })
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
