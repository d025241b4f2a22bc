// Package membership manages the processes that use a store concurrently: it lists them, assigns work with leases, and
// decides whether this process' clock is trusted. Package storage opens one Member per Store. Member and CheckedClock
// are safe for concurrent use.
//
//	Member ─► heartbeats ─► table processes ◄─ Processes ◄─ Liveness: processes seen within LivenessTimeout
//	   │        │                              │
//	   │        └ advertised state             └ AppendWriters, EachStatement
//	   ├────► leases ◄─► table lease: which process seals which partition, and which one evaluates rules
//	   └────► CheckedClock ◄─► table processes: the store's observed uptime
//	              └► MayRemove: whether anything may be deleted by this clock
//
// The only process of a store sends no heartbeats and may always acknowledge. Its second clock is the observed uptime
// (design/clocks.md). In a shared store each process sends a heartbeat every HeartbeatInterval. It acknowledges samples
// only while the other processes still read its streams (design/several-processes.md). Otherwise acknowledged samples
// would be missing from their answers.
//
// The expected time is the time that this process' clock should show according to the second clock. A step is a change
// of the clock that differs from the measured time.
package membership
