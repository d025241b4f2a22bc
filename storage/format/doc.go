// Package format defines the stored data: how time and series are partitioned, the keys of rows, and the encodings of
// their values. All storage packages call it. It is pure: it reads and writes no engine, and the clock is a parameter.
// FORMAT.md, in package storage, describes the same bytes for readers without Go.
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
//	defined   StagePartition     blob of definitions; AppendSealedRun
//
// Describe returns the content of any row as text.
//
// Append functions append to a slice and can't fail. Parse functions accept any bytes without a panic, and return an
// error such as errMalformedTombstone or chunk.ErrCorrupt for invalid ones. An encoding that starts with a version is
// changed only by adding a new version, and rows of all versions stay readable. A change to a key or to SeriesIDOf
// would make stored rows unreachable; the golden files detect it.
package format
