// Package cache keeps what queries read of sealed windows: names of metrics, series, commit records, counts.
//
//	Get(key, version) ─┬─► held in this version: the value
//	                   ├─► another read loads it: wait for that load
//	                   └─► load ─► kept; another version of the same key is replaced
//
// The version identifies the state of a window: a hash of its commit records, or the engine's version of a partition. So an entry is never
// invalidated: a window that was written to has another version. The cache is bounded in bytes and evicts the entries that weren't used for the
// longest time.
package cache
