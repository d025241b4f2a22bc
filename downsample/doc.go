// Package downsample owns the schedule of the work that follows on writing: sealing slots that are over,
// letting go of series that went quiet, and dropping windows past their retention.
//
//	every Interval, partition by partition, oldest slot first:
//
//	  Store.Waiting ──► settled? ──► Store.Seal ──► Store.Advance
//	                       │ no
//	                       └──► later
//	  then Store.LetGo, Store.Expire
//
// Where several processes share an engine, leases divide the partitions among those that downsample: each does
// rounds over its own, and lets go of what others have sealed of the rest (Store.Forget).
//
// A slot is settled once it ended at least Settle ago; what comes later is late, and brings its slot back
// to work. Nothing that fails stops the loop: the work is still there on the next round.
package downsample
