// Package head holds in memory the samples that are durable in the stage and not yet sealed: for queries and for sealing. It reads
// and writes no engine, and the clock is passed in.
//
//	Appender, one commit after the other:  samples ─► blobs ─► durable? ─┬─► Publish ─┐
//	                                                                     └─► Fail     ├─► Generation: Chunks by Series
//	Decoder, of what others have staged:   blobs ──────────────► Head.Publish ────────┘        │
//	                                       blobs ─► NewGeneration ─► Head.Adopt                ├─► Select: Snapshots
//	                                                                                           └─► Close ─► sealed ─► Release
//
// # Who does what
//
//   - Batches find their series by alias (Lookup, Remember), or make them (Define). Both may run at any time, side by side.
//   - A commit and whoever closes generations hold the store's commit lock, which is not the head's.
//   - Whoever seals a slot partition reads the chunks of its closed generations, which don't change any more, without a lock.
//   - Queries read the chunks that they have selected under the lock of the series' partition. Released chunks stay readable.
//   - Samples are refused by how much the head holds: RefusesSeries, Admits.
//
// The order of locks: life, that of a tenant, that of a partition, that of the share, that of the tenants.
package head
