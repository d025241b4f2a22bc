// Package ha stores the samples of one of several replicas that send the same series: of each cluster of replicas one is elected,
// and what the others send is held until it is clear that nobody needs it.
//
//	ReplicaBatch ─► Tracker.Commit ─► route: the election, fresh; and the right to store the elected replica's samples
//	                     │
//	                     ├─ Split ─┬─► stays in the batch: Commit
//	                     │         ├─► HeldBuilder ─► table held
//	                     │         └─► covered: dropped
//	                     └─► acknowledged: the watermark
//
//	Tracker.Look ─► table chosen: beats, elections ─► takeover: held rows of the elected replica ─► HeldWriter ─► DeleteHeld
//
// The store gives it a Host, which stores held samples and deletes held rows. cluster.go has a process' state of a cluster,
// election.go the row that all processes change by compare-and-set, look.go the periodic work, takeover.go how held samples are
// stored, and sweep.go how those of processes that are gone are found. Rows reads held rows without a Tracker.
//
// design/ha-pairs.md explains why that loses nothing.
package ha
