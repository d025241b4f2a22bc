// Package downsample owns the schedule of the work that follows on writing: sealing slots that are over, with
// their rollups, making rollups that are missing, letting go of series that went quiet, and dropping windows
// past their retention.
//
//	every Interval, what has waited longest first:
//
//	  Store.Staged ──► Store.SealTogether ──► rest ──► … ──► Store.Advance, LetGo, Expire ──► Store.RollUp, Compact ──► rest ──► …
//	                        │ error                                                               │ error
//	                        └──► each by itself ──► next round                                    └──► minutes later
//
// Slots of one day are sealed in one pass (Store.Together). Where the head holds much of settled slots, as in a backfill, those that
// rest are sealed before a round is due (Loop.Relieve).
//
// A slot is settled once it ended at least Settle ago; what comes later is late, and brings its slot back
// to work: it is sealed again, and the rollups of the buckets it touches are made anew. Windows that lack
// rollups, as after an import that was cut short or a delete, get them when no slot waits, and then windows of rollups that are over, and rest, are compacted,
// and the series of such windows of raw rows counted.
//
// Where several processes share an engine, leases divide the partitions among those that downsample: each does
// rounds over its own, and lets go of what others have sealed of the rest (Store.Forget).
//
// After each piece of work the loop rests in proportion to what it took, so that writes and queries aren't slowed
// down, and less so when it lags (see rest). Store.SealAll and CatchUp don't rest.
//
// Nothing that fails stops the loop: the work is still there on the next round. Nor does it fail in silence. What
// goes on failing is an error in the log with what to do, stands in Status, and in a metric; so are a lag beyond
// half of the time in which late sealing loses nothing, a piece of work that doesn't end, and a head that could
// not be rebuilt.
//
// design.md has the rules and the reasons.
package downsample
