// Package ha deduplicates the samples of replicas that send the same series. Of each cluster of replicas one is
// elected, and its samples are stored. Samples of the other replicas are held until the elected replica has sent the
// samples of that time.
//
//	ReplicaBatch ─► Tracker.Commit ─► route: a fresh election, and the right to store the elected replica's samples
//	                     │
//	                     ├─ Split ─┬─► stays in the batch: Commit
//	                     │         ├─► HeldBuilder ─► table held
//	                     │         └─► covered: dropped
//	                     └─► acknowledged: the watermark
//
//	Tracker.Look ─► table chosen: heartbeats, elections ─► takeover: held rows ─► HeldWriter ─► DeleteHeld
//
// Package storage creates one Tracker per store, passes it a Host that stores held samples and deletes held rows, and
// closes it before the store. A Tracker is safe for concurrent use. cluster.go has this process' state of a cluster,
// election.go the row that all processes change by compare-and-set, look.go the periodic work, and takeover.go the
// storing of held samples. sweep.go finds held rows of stopped processes. Rows reads held rows without a Tracker.
//
// design/ha-pairs.md explains why samples are neither lost nor stored from two replicas, and the limits of that.
package ha
