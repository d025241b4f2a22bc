// Package head holds in memory the samples that are durable in the staging log and not yet sealed. Commits of package
// storage write to it, followers add the samples of other processes, queries read it, and the sealer seals its closed
// generations. It does no I/O on the engine, and the clock is passed in.
//
//	Appender, one commit after the other:  samples ─► blobs ─► durable? ─┬─► Publish ─┐
//	                                                                     └─► Fail     ├─► Generation: Chunks by Series
//	Decoder, of blobs of other processes:  blobs ──────────► Head.PublishRow ─────────┘        │
//	                                       blobs ─► NewGeneration ─► Head.AdoptGeneration      ├─► Select: Snapshots
//	                                                                                           └─► CloseGenerations
//	                                                                            ReleaseGenerations ◄─ sealed ◄─┘
//
// # Concurrency
//
//   - Batches find their series by alias (Lookup, AddAlias) or create them (Define). Both are safe for concurrent use.
//   - Commits, and closing of generations, require the store's commit lock, which isn't part of the head.
//   - Sealing reads the chunks of closed generations without a lock, because these no longer change.
//   - Queries read the selected chunks under the lock of the series' partition. Released chunks stay readable.
//   - RejectsSeries and CheckAdmission decide by the size of the head whether samples are accepted.
//
// Locks must be taken in this order: life, a tenant's, a partition's, the share's, the tenant map's.
//
// A query that reads the head before the sealed rows misses no sample, because a generation is released only after its
// samples were sealed.
package head
