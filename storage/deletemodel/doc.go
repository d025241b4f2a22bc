// Package deletemodel is an executable model of the protocol of deletes. It consists of tests and shares no code with
// the product. A change of the protocol is tried here first. No other package uses it.
//
//	history: choices ─► operations of processes, one step at a time ─► engine
//	                      │                                              │
//	                      └────────────► judge ◄──── answers of queries ─┘
//
// Processes write, seal, import, delete, clean, expire and query a small store concurrently. Each access to the engine
// is a step. Between two steps other operations run, time passes, processes crash, and writes with an unknown outcome
// are applied. The judge has a list of acknowledged samples and of deletes, and compares each answer with it: an
// acknowledged sample is never lost, a deleted sample never reappears, and no sample counts twice. At the end nothing
// is staged, no delete is left, and rollups equal samples.
//
// All decisions of a history are in a list of choices, in groups: one per step. A failure is reproduced from its seed,
// and is minimized by removing steps and choices.
//
// A delete is first announced and then in force: chunks that are sealed name an announced delete, but it hides nothing.
// A delete rests for some time after its request, until every running seal was started after it. Only then is it
// removed. A mark is a commit record. The turn allows one process at a time to change rollups without samples.
//
// A store's only process caches the deletes instead of reading them, and its engine applies no write after a crash.
//
// TestHistories plays random histories. TestNamedHistories plays scripted histories. Each of them fails without the
// rules that it needs. TestBrokenRules removes one rule at a time and checks that random histories fail without it.
// readerRules names the function of the product that implements each rule.
//
// # Limits
//
// The current protocol doesn't hold in these cases, which the histories exclude:
//
//   - A write of rollups without samples fails and is applied later, or a process that writes them is paused and loses
//     its turn: two rows of equal version may differ (design/deletes.md).
//   - The raw window expires while an operation computes its missing rollups, or while a write of a delete has an
//     unknown outcome.
package deletemodel
