// Package cache caches data that queries read from sealed windows: names of metrics, series, commit records, counts.
//
//	Get(key, version) ─┬─► cached in this version: the value
//	                   ├─► another read loads it: wait for that load
//	                   └─► load ─► cached; a value of another version of the same key is replaced
//
// The version identifies the state of a window: a hash of its commit records, or the engine's version of a partition.
// Entries are therefore never invalidated: a write to a window changes its version. The cache is limited in bytes and
// evicts the least recently used entries.
//
// Package storage creates one cache per store; packages query and counts call it. A caller must read the version before
// it loads the value. With a version read later, an outdated value would be returned until the next write to the
// window.
package cache
