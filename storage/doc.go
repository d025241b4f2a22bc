// Package storage stores Prometheus samples in an engine of wide rows. It makes samples durable before it acknowledges
// them, answers queries from them immediately, and later seals them into chunks that are small and fast to read.
//
// Command cassia opens a Store on an engine: package storage/pebble for local files, or storage/cassandra for a shared
// cluster. Packages adapter and promql write to and query the Store, and package downsample runs the background work:
// sealing, expiry, cleaning and compaction. A caller may assume that methods of Store are safe for concurrent use and
// that an acknowledged sample is durable and visible. It must open a store with the settings it was created with, and
// must set Options.Shared if several processes open the same store. Section Invariants lists the rules that keep
// samples from being lost, hidden or returned after their deletion.
//
// # How a sample is written
//
//	request ─► Batch ─► committer ─► staging log: blobs, one per (slot, partition, writer, seq)
//	batch.go   │        commit.go    │ durable
//	           │                     ├─► table staged: lists the slots with blobs, in a shared store
//	           │                     ├─► head: head chunks in memory, for queries
//	           │                     └─► acknowledged
//
// batch.go, commit.go, staged_list.go; head/appender.go, head/stream_builder.go, head/chunk.go
//
// # How a slot is sealed
//
// Once the slot has ended and its grace period has passed:
//
//	staging log ─► Seal ─► raw: labels and chunks ─► r5m ────► r1h ───► sealed: a commit record ─► stage rows deleted,
//	                 └► catalog: names               per slot  per day                             generations released
//
// seal_pass.go, sealer.go, roller.go, row_writer.go, destroy.go
//
// The rows of raw, r5m and r1h are written and read through package paged. It stores the rows of series that are new in
// a window in pages, and returns them as rows.
//
// # How a window of rollups is compacted
//
// Once the window has ended and is no longer written to:
//
//	r5m, r1h: chunks, and entries of pages ─► Compact ─► a long chunk per series and day (5m) or window (1h) ─► recorded
//
// compact.go; paged/compact.go, paged/long.go
//
// # How a query is answered
//
//	Select ─► 1. head ─► 2. commit records ─► 3. labels ────► 4. chunks
//	                     windowFinder         seriesFinder    selection
//
// A query reads samples, or buckets of slots whose rollups include all sealed samples. Samples that are sealed during
// the query are found twice, never missed.
//
// Labels are matched by an index of all series of a metric in a window, which is cached. If building it would take long
// because there are many series, matchers with values read filters of label pages instead, and then the labels that may
// match. If the range is short and many series match, series without samples in the range are skipped by the spans of
// their chunks (design/queries.md). The label order of a large answer is cached.
//
// package query: select.go, windows.go, match.go, series.go, filter_query.go, chunk_spans.go, ranks.go, groups.go,
// fetch.go, buckets.go; head/read.go
//
// # How series are deleted
//
//	Delete          ─► its staged samples are sealed ─► table delete: a tombstone, durable  ─► hidden in every answer
//	WorkOffDeletes  ─► rollups of the slots it touches are recomputed, and get a commit record for it
//	CleanTombstones ─► chunks are rewritten without deleted samples ─► the tombstone is deleted
//
// deletes.go, deletes_write.go, roll_window.go, clean.go, clean_trim.go, clean_before.go
//
// # How samples of a pair of replicas are deduplicated
//
//	Tracker.Commit ─► election ─┬─► of the elected replica: committer, as any sample
//	                            ├─► of another replica, after the term began: held
//	                            └─► of another replica, before: dropped
//	the elected replica stops sending ─► another is elected ─► its process takes over the held samples: committer
//
// package ha: commit.go, election.go, pass.go, takeover.go; batch_split.go, held_writer.go, held_ends.go
//
// # Several processes
//
// With a shared engine (Options.Shared), any number of processes do all of this concurrently, each with a head of its
// own:
//
//	committer ─► staging log, and tails: the stream positions of this process
//	follower  ◄─ processes: the writers ─► their stream positions ─► new rows of the staging log ─► head
//	                                                                 before each query, and once per second
//	leases    ◄► liveness: which process seals which partition; concurrent seals are harmless
//	filling   ◄► liveness: which process changes rollups without samples; one at a time
//	Seal      ─► defined: definitions in sealed blobs of other processes, for blobs that depend on them
//	ReleaseSealed ◄─ staging log: samples sealed by other processes are released from the head
//
// design/several-processes.md explains why samples are neither lost nor missed. Package membership contains the
// processes, leases and liveness, and decides whether a clock is trusted.
//
// # Terms
//
// Package format defines ids, periods, slots, windows, keys and the codecs of rows. Package head defines series,
// generations and head chunks.
//
//   - Series set: a metric with its labels as text. SeriesID: the first 16 bytes of its SHA-256.
//   - Period: the widths of slots and windows and the number of partitions, starting at an instant.
//   - Slot: the unit of staging and sealing, 2 h by default; left-open and right-closed, like PromQL's ranges.
//   - Partition: 0 to 15 by default, a consistent hash of tenant and series set. Slot partition: one partition in one
//     slot.
//   - Staging log: the durable samples that aren't sealed.
//   - Window: a day of raw rows, a week of 5m rollups, or 30 days of 1h rollups. Retention deletes whole windows.
//   - Shard: a part of the rows of a large metric in a window. Class: series with a retention of their own; a series
//     may be in it on some days only. Place: a class and a shard, which identify a partition of the engine's table.
//   - Writer: a process, from its start to its end. Stream: the numbered blobs of one writer in a slot partition. Epoch
//     of a stream: consecutive blobs that don't depend on earlier epochs. Series are numbered per epoch.
//   - Stream position: the last number of a stream, in table tails. Follower: reads the streams of other processes.
//   - Generation: the head's samples of an epoch, or of other processes' blobs, with the stage rows they cover.
//   - Head chunk: the samples of a series in a generation.
//   - Chunk: sealed samples of a series in a slot. Samples that arrive later are sealed as another chunk.
//   - Resolution: raw, 5m or 1h. Rollup: the buckets of a series, see package rollup. Rollup task: a series whose
//     rollups are to be computed.
//   - Page: a row with the labels, or the chunks with one start, of up to 256 series that were new in a window: see
//     package paged. Entry: a row of raw, r5m or r1h in a page. A row supersedes an entry with the same key if it names
//     more deletes or has a higher version.
//   - Long chunk: the rollup chunks of a series in an interval, a day at 5m or a window at 1h, as one row. Its parts
//     are these chunks. A row or an entry with a higher version supersedes a part.
//   - Commit record: a row in table sealed that is written once a seal of a slot is complete. A hash of a window's
//     commit records is the version of its rows.
//   - State of a window: a hash of the version of its rows, and of the classes that are dropped or about to be.
//   - Retention boundary: a row per tenant, class and resolution with the times until which rows are hidden, may be
//     missing, or are dropped (design/retention.md). Hole: windows with missing rows although older ones exist.
//   - Expiry: the time at which the rows of a class in a window expire in the engine, fixed before the first of them is
//     written (design/retention.md).
//   - List of classes: assigns each series to a class by its labels. A raw window gets its list with its first row
//     (design/retention.md).
//   - Tombstone: the row of a delete: matchers and a range of time. Chunks that were sealed later are exempt from it,
//     and name it. Uncleaned: a slot whose rollups were computed before a tombstone that touches it. Cleaned: a chunk
//     that was rewritten.
//   - Gap of a query: rows that are unreadable because the engine's files are damaged there.
//   - Observed uptime: the time that the processes of a store have measured while they ran; durable. Trusted: a clock
//     that agrees with the engine's, or on a single machine with the observed uptime (design/clocks.md).
//   - Election: decides which replica's samples of a cluster are stored. Term: the time since which a replica is
//     elected. Disposition: whether a replica's sample is stored, held or dropped. Held epoch: a partition of held
//     rows.
//   - Member: a process as one of several that use the engine, or as the only one.
//   - Liveness: the processes that sent a heartbeat within LivenessTimeout.
//
// # Invariants
//
// Numbers such as I4 are references from comments in the code.
//
//   - A store that is opened ReadOnly writes no row (design/damage.md). Otherwise a tool could destroy the evidence of
//     a fault.
//   - I1, I3: A sample is acknowledged when it is durable and visible, not before. Otherwise a crash loses acknowledged
//     samples.
//   - I2: A key always names the same content, or the row converges: the order of arrival doesn't change answers.
//     Otherwise two sealers of a slot could overwrite samples (design/sealing.md).
//   - I4: The sealer writes rows before commit records and commit records before it deletes, and deletes exactly the
//     rows it read. Otherwise samples are lost. A reader reads the head first, then the commit records, then the rows.
//     Otherwise it misses samples that are sealed concurrently.
//   - I5: Rollups are computed from rows that are listed or read back, in whole buckets, and the highest version wins.
//     Otherwise buckets lack samples of other processes.
//   - A delete applies only to samples sealed before it, and to held samples (design/deletes.md).
//   - Staged rows that are sealed are recorded before they are deleted, so that none reappears as new
//     (design/deletes.md).
//   - Expired rows have been hidden for a week of observed uptime before they are deleted, and only destroy.go deletes
//     rows.
//   - A process with an untrusted clock deletes nothing (design/clocks.md).
//   - A sample is rejected as too old or too far ahead only if this machine's clock and a second one agree
//     (design/clocks.md).
//   - I6: Every queue, cache and answer has a limit in bytes. Otherwise one client can exhaust the memory.
//   - I8: A corrupt row is reported, counted and skipped. The report contains its key, or the metric and time of rows
//     that can't be read at all. Code that deletes data returns an error instead. Check finds all corrupt rows
//     (design/damage.md). An unreadable chunk that the engine returns is kept, as are the rollups that only it could
//     recompute (design/damage.md).
//
// # Packages below
//
//   - membership: processes that use the store, their advertised state, leases, and trust in clocks → engine, format.
//   - ha: elections among replicas, held samples, takeovers → membership, engine, format.
//   - cache: cached reads of sealed windows → meter. meter: bounds the memory of a read → tenant.
//   - retention: classes of series, expiries of windows, retention boundaries, holes → engine, format, head,
//     membership.
//   - check: verifies the stored rows → counts, engine, format, head, paged.
//   - counts: counts series of the head and of ended windows → cache, damage, ended, engine, format, head, meter.
//     ended: ended windows that wait for maintenance → engine, format.
//   - starts: tenants that have sent deltas, whose start timestamps queries see → engine, format.
//   - query: finds series, and reads their samples, buckets, exemplars and labels → cache, counts, damage, engine,
//     format, head, index, meter, paged, retention.
//   - paged: rows of new series in pages → page, engine, format. page: the codec of pages → format.
//   - damage: reports unreadable rows, and counts each once → engine, format.
//   - inspect: read-only tools for operators, using a View → storage. storagetest: opens stores in tests of other
//     packages → storage.
//
// FORMAT.md describes the stored rows, byte by byte. Package format contains ids, periods, windows, keys and the codecs
// of rows; packages chunk and rollup contain the codecs of sealed samples. Package rollup/expand makes samples from
// buckets. Package head holds unsealed samples. The pages in design/ contain the rules of each subject, and the
// reasons.
package storage
