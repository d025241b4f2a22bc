// Package blocks reads history from TSDB blocks: the folders in which Prometheus, Thanos and Mimir keep samples on disk
// or in a bucket.
//
//	folder ── 01J…/ meta.json   time range, and metadata of Thanos and Mimir
//	       │        index       series, ordered by labels, with their chunks
//	       │        chunks/     samples
//	       │        tombstones  deletes
//	       └─ 01K…/ …
//
// It reads one day after the other, because the series of a day are sealed together. Within a day it merges all blocks
// that overlap the day, in the order of series labels. A block is opened at its first day and closed after its last
// day.
//
// Thanos downsamples blocks to windows of 5m and 1h. The package reads these windows as rollup buckets, after the
// samples of the same day.
package blocks
