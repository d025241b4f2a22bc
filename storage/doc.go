// Package storage keeps Prometheus' samples over an engine of wide rows: it makes them durable before it
// acknowledges them, answers from them at once, and later seals them into what is small and quick to read.
//
// # The way of a sample
//
//	request ─► Batch ─► committer ─► stage: blobs, one a (slot, partition, writer, seq)
//	                        │ durable
//	                        ├────► pending: names blobs of slots that ended more than a day ago
//	                        ├────► head: strands in memory, for queries
//	                        └────► acknowledged
//
//	a slot is over and has settled:
//
//	stage ─► Seal ─► raw: labels and chunks ─► r5m ─► r1h ─► sealed: a mark ─► stage rows deleted, head let go
//	              └► catalog: names            the slot  the day
//
//	Select ◄─ 1. head   2. marks   3. rows        what moves meanwhile is met twice, never missed
//	          samples; or buckets, where rollups know all of a slot, and of the other slots from samples
//
// # Several processes
//
// Over a shared engine (Options.Shared) any number of processes do this at once, each with a head of its own:
//
//	committer ─► stage, and tails: how far my streams go
//	follower  ◄─ processes: who writes ─► their tails ─► what is new of their stage ─► head
//	                                                     before each query, and once a second
//	leases    ◄► who is heard of: which process seals which partition. Two at once are harmless.
//	Seal      ─► defined: what the sealed blobs of others defined, for what still leans on it
//	Forget    ◄─ stage: what others have sealed leaves the head
//
// decisions/005 says why that loses nothing and misses nothing.
//
// # Words
//
//   - Series set: a metric with its labels as text, see format.AppendSeriesSet. SeriesID: 16 bytes of its SHA-256.
//   - Period: how time and series are cut, from an instant on.
//   - Slot: the unit of staging and sealing, 2 h by default; left-open, right-closed, as PromQL's ranges.
//   - Partition: 0 … 15 by default, a consistent hash of tenant and series set. Sealing goes by it.
//   - Window: a day of sealed rows, a week of 5m rollups, 30 days of 1h rollups. Retention drops windows.
//   - Horizon: up to where a class of a tenant is hidden at a resolution, lacks rows, or is dropped: a row, see decisions/017.
//   - Resolution: raw, 5m or 1h. Rollup: buckets of a series, see package rollup. Roll: a series whose rollups
//     follow from what was sealed of it.
//   - Stream: the blobs of one writer for a slot and partition. Writer: a process, from start to end.
//   - Epoch: a part of a stream that explains itself: its first blobs define the numbers of its series.
//   - Tail: the last number of a stream. Follower: what reads the streams of other processes.
//   - Generation: what the head holds of an epoch, or of what others staged, and the stage rows that it covers.
//   - Shard: a part of a large metric's rows of a window.
//   - Strand: what a series has in a generation.
//   - Chunk: sealed samples of a series within a slot, see package chunk. Late ones make one more chunk.
//   - Delete: a row, its tombstone, that says that some series, from one time to another, are gone. Chunks sealed later name it, and are
//     exempt from it. Clean: rewritten without what is deleted.
//   - Gap: rows that a query or Check can't read, because the engine's files are damaged there.
//   - Seen time: how much time the processes of a store have measured while they ran, durable. Believed: a clock that agrees
//     with the engine's, or on one machine with seen time (decisions/016).
//   - Mark: a row that says that a slot was sealed once more. A window's marks are the version of its rows.
//
// # Rules that everything here keeps
//
//   - Who only looks changes nothing: a store that is opened ReadOnly writes no row (decisions/019).
//   - A sample is acknowledged when it is durable and visible, not before (I1, I3).
//   - A key names one content for ever, or the row converges: order of arrival changes no answer (I2).
//   - The sealer writes before it marks, marks before it deletes, and deletes exactly what it read (I4).
//   - Rollups are computed from what is read back, whole buckets at a time, and the highest version wins (I5).
//   - A reader takes the head first, then the marks, then the rows (I4).
//   - A delete is about what was sealed before it, and what was held, and about nothing else (decisions/012, 021).
//   - What is sealed is noted before its stage rows are deleted, so that none comes back as new (decisions/021).
//   - What goes was hidden for a week of time that the store has seen pass, and only destroy.go makes it go.
//   - A process whose clock isn't believed removes nothing (decisions/016).
//   - Every queue, cache and answer has a limit in bytes (I6).
//   - What is corrupt is named by its row, or where rows can't be read by metric and time, counted and left out (I8). What
//     removes data ends there with an error instead. Check finds all of it (decisions/020).
//
// FORMAT.md describes what is stored, byte by byte; package format has ids, periods, windows, keys and the codecs of rows,
// packages chunk and rollup those of what is sealed. decisions/ holds what was decided against the obvious.
package storage
