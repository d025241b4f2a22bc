// Package format defines what Cassia stores: how time and series are cut, the keys of rows, and the encodings of their
// values. It is pure: nothing here reads or writes an engine, and the clock is passed in. FORMAT.md, in package storage,
// describes the same bytes for readers without Go.
//
//	labels ─► series set ─► SeriesID ──┬─► partition   ─┐
//	timestamp ─► Period ─► slot ───────┤                ├─► keys: StagePartition, SeriesPartition, ChunkKey, …
//	                        └─► window ┴─► class, shard ┘
//
//	table     key                value
//	stage     StagePartition     blob: BlobWriter, BlobReader
//	raw       SeriesPartition    labels: AppendLabels; chunks: RawChunk; exemplars: RawChunk of AppendExemplars
//	r5m, r1h  SeriesPartition    labels: AppendLabels; chunks of package rollup
//	delete    the tenant         Tombstone of a delete; Clearance
//	held      HeldPartition      HeldValue
//	shards    ShardsPartition    ShardsRow
//	windows   the tenant         Listing
//	metadata  window, tenant     Metadata
//	defined   StagePartition     blob of definitions; SealedRun
//
// Describe returns what any row holds, for people.
//
// Every Append function appends to a slice and can't fail. Every Parse function takes any bytes, without a panic, and
// returns an error such as ErrMalformedTombstone, or chunk.ErrCorrupt, for those that it can't read. An encoding that begins
// with a version changes only by a new one, and rows of all versions stay readable.
package format
