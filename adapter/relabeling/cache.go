package relabeling

import "sync"

// maxDropped is the max number of dropped series in a cache, which then takes about 50 MiB.
const maxDropped = 1 << 20

const shardCount = 16

// droppedCache maps dropped series to the rule that drops them. Each shard has two maps. When the newer map is full, it
// replaces the older one; an entry found in the older map is copied to the newer one. Series that are still sent
// therefore stay in the cache, and others are evicted.
type droppedCache struct {
	most   int // max number of entries per map of a shard
	shards [shardCount]droppedShard
}

type droppedShard struct {
	mu           sync.RWMutex
	newer, older map[droppedKey]uint16
	_            [16]byte
}

// droppedKey identifies an alias in the store, see storage.Batch.AliasKey.
type droppedKey [2]uint64

func newDroppedCache(most int) *droppedCache {
	return &droppedCache{most: max(1, most/shardCount/2)}
}

// get returns the number of the rule that drops a series; ok is false if the series isn't cached.
func (c *droppedCache) get(k droppedKey) (rule int, ok bool) {
	s := &c.shards[k[0]%shardCount]
	s.mu.RLock()
	n, ok := s.newer[k]
	old := false
	if !ok {
		n, old = s.older[k]
	}
	s.mu.RUnlock()
	if old {
		c.add(k, int(n))
	}
	return int(n), ok || old
}

func (c *droppedCache) add(k droppedKey, rule int) {
	s := &c.shards[k[0]%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newer == nil || len(s.newer) >= c.most {
		s.older, s.newer = s.newer, map[droppedKey]uint16{}
	}
	s.newer[k] = uint16(rule)
}
