// Package ha deduplicates the samples of replicas that send the same series. One replica of each cluster is elected,
// and its samples are stored. Samples of the other replicas are held until the elected replica has sent the samples of
// the same time.
//
//	ReplicaBatch ─► Tracker.Commit ─► electionFor: a fresh election and the right to store its samples
//	                     │
//	                     ├─ Split ─┬─► stays in the batch: Commit
//	                     │         ├─► HeldBuilder ─► table held
//	                     │         └─► covered: dropped
//	                     └─► recordDurable: the watermark
//
//	Tracker.RunPass ─► table chosen: heartbeats, elections ─► takeover: held rows ─► HeldWriter ─► DeleteHeld
//
// Package storage creates one Tracker per store, passes it a Host that stores held samples and deletes held rows, and
// closes it before the store. A Tracker is safe for concurrent use. cluster.go contains this process' state of a
// cluster, election.go the row that all processes change by compare-and-set, pass.go the periodic work, and takeover.go
// the storing of held samples. sweep.go finds held rows of stopped processes. Rows reads held rows without a Tracker.
//
// Terms:
//
//   - Reach: the progress of a replica's samples, see type reach. Watermark: the reach of the elected replica's
//     acknowledged samples.
//   - Front: another measure of a replica's progress, without a clock: the max timestamp of its acknowledged samples,
//     ignoring those that are more than a margin after the median of their request. If the replica's clock is fast, or
//     this process' clock is slow, the front is later than the reach. Series with wrong timestamps raise it only if most
//     samples of a request are theirs, so it is compared with the fronts of all recent requests of another replica.
//   - Covered: a held sample is covered once the watermark is a margin beyond it, because the elected replica has sent
//     the samples of the same time.
//   - Pass: one round of the periodic work for a cluster. Silent: a replica or a cluster that sends no requests.
//   - Leaving: an elected replica that lags too far. It isn't confirmed any more.
//
// design/ha-pairs.md explains why samples are neither lost nor stored from two replicas, and when that can fail.
package ha
