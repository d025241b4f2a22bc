package pebble

import (
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// readOnceBytes is the max growth of the cache by calls that read rows only once, see ReadOnce.
const readOnceBytes = 16 << 20

var _ engine.Caching = (*Engine)(nil)

// readers limits the growth of the cache by calls that read rows once. Pebble's iterators always fill the cache, so
// only the size of the cache can be limited. Blocks that were read more than once are evicted last.
type readers struct {
	cache *pebbledb.Cache
	// memTables returns the size of the memtables in bytes. Pebble subtracts it from the cache's size.
	memTables func() int64

	mu      sync.Mutex
	n       int
	before  int64 // the size of the cache when the first reader started
	release func()
}

// ReadOnce implements engine.Caching.
func (e *Engine) ReadOnce() (done func()) {
	if e.readOnly || e.acquire() != nil { // No reads follow in these cases.
		return func() {}
	}
	e.readers.beginRead()
	return sync.OnceFunc(func() {
		e.readers.endRead()
		e.release()
	})
}

func (r *readers) beginRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n == 1 {
		r.before = r.cache.Size()
		r.release = r.boundTo(r.before + readOnceBytes)
	}
}

func (r *readers) endRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 {
		r.release()
		r.boundTo(r.before)() // Evict the blocks that were added since.
	}
}

// boundTo limits the cache to a number of bytes until release is called.
func (r *readers) boundTo(bytes int64) (release func()) {
	return r.cache.Reserve(int(max(0, r.cache.MaxSize()-bytes-r.memTables())))
}
