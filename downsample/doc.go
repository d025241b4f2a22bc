// Package downsample schedules the work that follows ingestion: it seals slots that have ended, computes rollups,
// compacts rollups and counts series of past windows, releases quiet series, and deletes windows past their retention.
// The store does the work; this package decides what to do next and how fast. cmd/cassia runs one Loop per process
// (Run), and its command downsample runs a Plan.
//
//	every Interval, the longest-waiting work first:
//
//	  Store.Staged ──► Store.SealTogether ──► rest ──► … ──► Store.UnlistSlots, ReleaseSeries, Expire ──► Store.RollUp, Compact ──► rest ──► …
//	                        │ error                                                               │ error
//	                        └──► each slot separately ──► next round                              └──► minutes later
//
// Slots of one day are sealed in one pass (Store.PlanPasses). If the head holds too many bytes of settled slots, as
// during a backfill, the slots that are no longer written to are sealed before the next round (Loop.Relieve).
//
// A slot is settled once it ended at least Settle ago. Samples that arrive later are late: their slot is sealed again,
// and the affected buckets of its rollups are recomputed. Windows with missing rollups, as after an interrupted import
// or a delete, are rolled up when no slot waits. After that, past windows of rollups that are no longer written to are
// compacted, and the series of past windows of raw rows are counted.
//
// If multiple processes share an engine, leases divide the partitions among those that downsample. Each process works
// on its own partitions, and releases from its head the samples that other processes have sealed (Store.ReleaseSealed).
// Two owners at once are harmless: work is done twice.
//
// After each piece of work the loop rests for a time proportional to the work's duration, so that it doesn't slow down
// writes and queries; it rests less when it lags (see rest). Store.SealAll and Plan.Run don't rest.
//
// No failure stops the loop: the failed work is tried again in the next round. Repeated failures are logged as errors
// with a remedy, and appear in Status and in a metric. The same applies to a lag above half of the time in which late
// sealing is safe, to a piece of work that doesn't finish, and to a head that could not be rebuilt.
//
// design.md has the rules and the reasons.
package downsample
