// Package storage keeps Prometheus' samples over an engine of wide rows: it makes them durable before it
// acknowledges them, answers from them at once, and later seals them into chunks that are small and quick to read.
//
// # The way of a sample
//
//	request ─► Batch ─► committer ─► stage: blobs, one per (slot, partition, writer, seq)
//	batch.go   │        commit.go    │ durable
//	           │                     ├─► staged: lists the slots that have blobs, in a shared store
//	           │                     ├─► head: head chunks in memory, for queries
//	           │                     └─► acknowledged
//
// batch.go, commit.go, staged_list.go; head/appender.go, head/stream_builder.go, head/chunk.go
//
// # The way of a slot
//
//	the slot is over and has settled:
//
//	stage ─► Seal ─► raw: labels and chunks ─► r5m ────► r1h ───► sealed: a mark ─► stage rows deleted, generations released
//	              └► catalog: names            per slot  per day
//
// seal_pass.go, sealer.go, roller.go, row_writer.go, destroy.go
//
// The rows of raw, r5m and r1h go through package paged, which stores those of series that are new in the window in pages, and yields
// them as rows again.
//
// # The way of a window of rollups
//
//	the window is over and rests:
//
//	r5m, r1h: chunks, and entries of pages ─► Compact ─► a long chunk for each series and day (5m), or window (1h) ─► noted
//
// compact.go; paged/compact.go, paged/long.go
//
// # The way of a query
//
//	Select ─► 1. head ─► 2. marks ─────► 3. labels ────► 4. chunks   samples sealed meanwhile are met twice, never missed
//	                     windowFinder    seriesFinder    selection
//	                     samples; or buckets, where the rollups of a slot include all that was sealed, and of other slots samples
//
// Labels are matched by an index of all series of a metric in a window, which is cached. Where that would take long, because the series are many,
// matchers that name values read filters of pages of labels instead, and the labels that may match. Where the range is short and many series match, series
// without samples in the range are skipped, by the spans of their chunks. The order of a large answer by labels is cached. See design/queries.md.
//
// package query: select.go, windows.go, match.go, series.go, sought.go, chunk_spans.go, ranks.go, groups.go, fetch.go, buckets.go; head/read.go
//
// # The way of a delete
//
//	Delete ─► its staged samples are sealed ─► delete: a tombstone, durable ─► hidden in every answer
//	WorkOffDeletes  ─► rollups of the slots that it touches are made anew, and get a mark of it
//	CleanTombstones ─► chunks are rewritten without deleted samples ─► the tombstone is deleted
//
// deletes.go, deletes_write.go, roll_window.go, clean.go, clean_trim.go, clean_before.go
//
// # The way of a sample of a pair of replicas
//
//	Tracker.Commit ─► election ─┬─► the elected replica's: committer, as any sample
//	                            ├─► after its term began, of another: held
//	                            └─► covered: dropped
//	the elected replica isn't heard ─► another is elected ─► its process takes over the held samples: committer
//
// package ha: commit.go, election.go, look.go, takeover.go; batch_split.go, held_writer.go
//
// # Several processes
//
// Over a shared engine (Options.Shared) any number of processes do this at once, each with a head of its own:
//
//	committer ─► stage, and tails: the last numbers of this process' streams
//	follower  ◄─ processes: the writers ─► their tails ─► new rows of their stage ─► head
//	                                                      before each query, and once a second
//	leases    ◄► liveness: which process seals which partition. Two at once are harmless.
//	filling   ◄► liveness: which process changes rollups that have no samples. One at a time.
//	Seal      ─► defined: the definitions in sealed blobs of other processes, for blobs that depend on them
//	Forget    ◄─ stage: what other processes have sealed is released from the head
//
// design/several-processes.md explains why that loses nothing and misses nothing. Package membership has the processes, leases and liveness, and
// whether a clock is believed.
//
// # Words
//
// Ids, periods, slots, windows, keys and the codecs of rows are those of package format; series, generations and head chunks those of
// package head.
//
//   - Series set: a metric with its labels as text. SeriesID: the first 16 bytes of its SHA-256.
//   - Period: the widths of slots and windows and the number of partitions, from an instant on.
//   - Slot: the unit of staging and sealing, 2 h by default; left-open, right-closed, as PromQL's ranges.
//   - Partition: 0 … 15 by default, a consistent hash of tenant and series set. Slot partition: one of them in one slot.
//   - Window: a day of raw rows, a week of 5m rollups, 30 days of 1h rollups. Retention drops windows.
//   - Shard: a part of the rows of a large metric in a window. Class: series with a retention of their own, on some days.
//     Place: a class and a shard, which name a partition of the engine's table.
//   - Writer: a process, from its start to its end. Stream: the blobs of one writer in a slot partition, numbered.
//     Epoch of a stream: blobs that depend on no earlier ones: the first defines the numbers of its series.
//   - Tail: the last number of a stream. Follower: reads the streams of other processes.
//   - Generation: what the head holds of an epoch, or of what others staged, and the stage rows that it covers.
//   - Head chunk: the samples of a series in a generation.
//   - Chunk: sealed samples of a series in a slot. Samples that come later make one more chunk.
//   - Resolution: raw, 5m or 1h. Rollup: the buckets of a series, see package rollup. Rollup task: a series whose rollups
//     are to be made.
//   - Page: the labels, or the chunks of one start, of up to 256 series that were new in a window, in one row: see package paged.
//     Entry: a row of raw, r5m or r1h that stands in a page. A row with the same key that names more deletes, or has a higher
//     version, outdoes it.
//   - Long chunk: the rollup chunks of a series in an interval, a day at 5m or a window at 1h, as one row; its parts are those chunks. A row
//     or an entry with a higher version than a part's outdoes it.
//   - Mark: a row that is written once a seal of a slot is complete. A hash of a window's marks is the version of its rows.
//   - State of a window: a hash of the version of its rows, and of the classes that are dropped or about to be.
//   - Horizon: a row per tenant, class and resolution: up to which instant rows are hidden, may be missing, or are dropped
//     (design/retention.md). Hole: windows of which rows are missing though older ones are there.
//   - Expiry: when the rows of a class in a window expire by themselves; fixed before the first of them (design/retention.md).
//   - List of classes: by it and the labels a series has its class. A window of raw rows takes its list with its first row (design/retention.md).
//   - Tombstone: the row of a delete: matchers and a range of time. Chunks that were sealed later are exempt from it, and name
//     it. Uncleaned: a slot whose rollups were made without a tombstone that touches it. Cleaned: a chunk that was rewritten.
//   - Gap of a query: rows that can't be read, because the engine's files are damaged there.
//   - Seen time: how much time the processes of a store have measured while they ran; durable. Believed: a clock that agrees
//     with the engine's, or on one machine with seen time (design/clocks.md).
//   - Election: whose samples of a cluster of replicas are stored. Term: the time from which a replica is the elected one.
//     Disposition: whether a replica's sample is stored, held or dropped. Held epoch: a partition of held rows.
//   - Member: a process as one of those that use the engine at the same time, or as the only one.
//   - Liveness: which processes were heard of within LivenessTimeout.
//
// # Rules that everything here keeps
//
//   - Who only looks changes nothing: a store that is opened ReadOnly writes no row (design/damage.md).
//   - A sample is acknowledged when it is durable and visible, not before (I1, I3).
//   - A key names one content for ever, or the row converges: order of arrival changes no answer (I2).
//   - The sealer writes before it marks, marks before it deletes, and deletes exactly what it read (I4).
//   - Rollups are computed from rows that are listed or read back, whole buckets at a time, and the highest version wins (I5).
//   - A reader takes the head first, then the marks, then the rows (I4).
//   - A delete is about the samples sealed before it, and those held, and about nothing else (design/deletes.md).
//   - The stage rows of sealed samples are noted before they are deleted, so that none comes back as new (design/deletes.md).
//   - What goes was hidden for a week of time that the store has seen pass, and only destroy.go makes it go.
//   - A process whose clock isn't believed removes nothing (design/clocks.md).
//   - A sample is rejected as too old or too far ahead only if this machine's clock and a second one reject it (design/clocks.md).
//   - Every queue, cache and answer has a limit in bytes (I6).
//   - A corrupt row is named by its key, or where rows can't be read by metric and time, counted and left out (I8). What
//     removes data ends there with an error instead. Check finds all of it. A chunk that can't be read though the engine
//     has it stays where it is, and so do rollups that only it could make anew (design/damage.md).
//
// # Packages below
//
//   - membership: which processes use the store, what they state, leases, and whether a clock is believed → engine, format.
//   - ha: elections among replicas, held samples, takeovers → membership, engine, format.
//   - cache: what queries read of sealed windows → meter. meter: bounds the memory of a read → tenant.
//   - retention: how long rows are kept: classes of series, expiries of windows, retention boundaries, holes → engine, format, head, membership.
//   - check: verifies the stored rows → counts, engine, format, head, paged.
//   - counts: counts series, of the head and of windows that are over → cache, damage, ended, engine, format, head, meter. ended: windows that are over
//     and wait for work → engine, format.
//   - starts: which tenants have sent deltas, so that queries see their start timestamps → engine, format.
//   - query: finds series, and reads their samples, buckets, exemplars and labels → cache, counts, damage, engine, format, head, index, meter, paged, retention.
//   - paged: rows of new series in pages → page, engine, format. page: the codec of pages → format.
//   - damage: names rows that can't be read, and counts each once → engine, format.
//   - inspect: looks at stores for operators, by a View → storage. storagetest: opens stores in tests of other packages → storage.
//
// FORMAT.md describes the stored rows, byte by byte; package format has ids, periods, windows, keys and the codecs of rows,
// packages chunk and rollup those of sealed samples. Package head holds what isn't sealed. The pages in design/ have the rules of each subject, the
// reasons, and what was rejected.
package storage
