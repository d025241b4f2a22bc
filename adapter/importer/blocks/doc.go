// Package blocks reads history from TSDB blocks, the folders that Prometheus, Thanos and Mimir keep samples in, on a disk
// or in a bucket.
//
//	folder ── 01J…/ meta.json   time range, and what Thanos and Mimir add
//	       │        index       series, in the order of their labels, with their chunks
//	       │        chunks/     samples
//	       │        tombstones  deletes since
//	       └─ 01K…/ …
//
// It reads day after day, since a day's series are sealed together, and within a day the series in the order of their
// labels, from all blocks that have some of it. Blocks may overlap. A block is opened when its first day comes and
// closed after its last one.
//
// Thanos downsamples blocks to windows of 5m and of 1h. Of such a block it reads the windows as buckets, after the samples of the same day.
package blocks
