// Package meter limits the memory of reads of a store. The storage packages call Grow and Charge before they hold more
// bytes; package promql implements Meter.
//
//	a read ─┬─► Grow ─► the Meter of its context: the memory that all reads of the process may hold
//	        └─► ReadBudget.Charge: the bytes that this read may hold
//
// A load into a cache never waits for its turn, because other reads wait for the load. It ends with ErrNoTurn; its
// caller waits with WaitTurn and then starts the load again. A load that waited instead could deadlock with the reads
// that wait for it.
package meter
