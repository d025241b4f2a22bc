// Package deletemodel is an executable model of the protocol of deletes. It consists of tests and shares no code with the product.
//
//	history: choices ─► operations of processes, one step at a time ─► engine
//	                      │                                              │
//	                      └────────────► judge ◄──── answers of queries ─┘
//
// Several processes write, seal, import, delete, clean, expire and query a small store. Each access to the engine is a step. Between two steps other operations
// run, time passes, processes crash, and writes with an unknown outcome are applied. The judge holds a list of the samples that were acknowledged and of the
// deletes, and compares each answer with it: an acknowledged sample is never lost, a deleted sample never comes back, no sample counts twice, and
// in the end nothing is staged, no delete is left, and rollups equal samples.
//
// All decisions of a history come from one list of choices, so that a failure is repeated from its seed and shortened by shortening that list.
//
// TestHistories plays drawn histories. TestNamedHistories plays written ones, and each fails without the rule that it needs. TestBrokenRules removes one
// rule at a time, and drawn histories detect that.
//
// # Limits
//
// Today's protocol doesn't hold in these cases, which the histories leave out:
//
//   - A write of rollups without samples fails and is applied later, or a process that fills them is paused and loses its turn: two rows of equal version may
//     differ (decisions/025).
//   - The raw window expires while an operation makes the rollups that it lacks, or while a delete is in doubt.
package deletemodel
