package pebble

import (
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// readOnceBytes is by how much the cache may grow while rows are read that aren't read again.
const readOnceBytes = 16 << 20

var _ engine.Caching = (*Engine)(nil)

// readers bounds the cache while rows are read once. Pebble's iterators always fill it, so only its size can be bounded: blocks that were
// read several times are the last to go.
type readers struct {
	cache *pebbledb.Cache
	// memTables returns how many bytes memtables take, which Pebble takes off the cache's size.
	memTables func() int64

	mu      sync.Mutex
	n       int
	before  int64 // how much was cached when the first began
	release func()
}

// ReadOnce implements engine.Caching.
func (e *Engine) ReadOnce() (done func()) {
	if e.readOnly || e.use() != nil { // It reads nothing any more.
		return func() {}
	}
	e.readers.begin()
	return sync.OnceFunc(func() {
		e.readers.end()
		e.release()
	})
}

func (r *readers) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n == 1 {
		r.before = r.cache.Size()
		r.release = r.boundTo(r.before + readOnceBytes)
	}
}

func (r *readers) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 {
		r.release()
		r.boundTo(r.before)() // What came meanwhile is the first to go.
	}
}

// boundTo bounds the cache to so many bytes until it is released.
func (r *readers) boundTo(bytes int64) (release func()) {
	return r.cache.Reserve(int(max(0, r.cache.MaxSize()-bytes-r.memTables())))
}
