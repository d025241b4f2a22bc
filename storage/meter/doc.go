// Package meter bounds the memory that a read of a store takes.
//
//	a read ─┬─► Grow ─► the Meter of its context: how much of the process' memory may all reads hold
//	        └─► ReadBudget.Charge: how many bytes may this one read
//
// A load into a cache never waits for its turn, because other reads wait for the load. It ends with ErrNoTurn, its caller waits with WaitTurn,
// and begins again.
package meter
