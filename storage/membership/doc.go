// Package membership is about the processes that use a store at the same time: who is there, who works off what, and whether this
// process' clock may be believed.
//
//	Member ─► beats ─► table processes ◄─ Processes ◄─ Liveness: who was heard of within LivenessTimeout
//	   │        │                              │
//	   │        └ beat, statement              └ AppendWriters, EachStatement
//	   ├────► leases ◄─► table lease: which process works off which partition, and who evaluates rules
//	   └────► CheckedClock ◄─► table processes: what the store has seen of time
//	              └► MayRemove: whether anything may be removed by this clock
//
// A member that is the only one has no beats: it may always acknowledge, and its second clock is what the store has seen of time
// (design/clocks.md). One of several beats every BeatInterval, and acknowledges only while the others still look for what it
// writes (design/several-processes.md).
package membership
