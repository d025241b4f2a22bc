// Package promql answers PromQL queries from a storage.Store. It is used by package api for HTTP requests and remote
// read, by package ruler for rules, and by cmd for exports.
//
// The evaluator is Prometheus' own. This package adds code in front of it and behind it. In front, it bounds the number
// and the memory of queries, computes parts of queries itself (the planner), and collects warnings. Behind, it returns
// series and samples to the evaluator:
//
//	 api (HTTP)            remote read
//	     |                      |
//	+----v-----------------+    |
//	| Engine               |    |   gate: bounds the queries that run and wait
//	|  planner: fragments -+----------> storage.Store, in whole arrays
//	|  Prometheus' engine  |    |   Exec: its context has a collector, so that the answer also contains
//	+----+-----------------+    |   the warnings that reading samples causes
//	     |                      |
//	+----v-----------------+----v-----------------+
//	| Queryable                                   |
//	|  Querier: series --> iterator (arrays)      |
//	|  ChunkQuerier: series --> chunks of 120     |
//	+----+----------------------------------------+
//	     |  tenant from the context, range from the querier and the hints
//	+----v----------+
//	| storage.Store |
//	+---------------+
//
// The caller puts the tenants of a request into its context (package tenant), closes the Engine, and owns the store.
// Reads outside the evaluator, such as remote read, call Engine.Enter first: otherwise their memory isn't bounded, and
// together with queries they could exceed Options.Memory.
//
// The samples of a series are decoded as columns, once per iteration, into buffers that the next series reuses. Counter
// reset hints of native histograms aren't stored. They are derived on reading, by the rules by which Prometheus' own
// storage starts new chunks. So a query reads the same hints from sealed and unsealed samples, for all ways of writing
// them. See hints.go.
//
// # Planner
//
// Before Prometheus' evaluator runs, the planner finds the fragments of a query that it can compute from the store: an
// instant selector, a function over a range selector, or an aggregation over one of these. It decodes one series at a
// time on each processor, computes the values of all steps from the arrays, and adds the values to the groups of an
// aggregation in the order in which the evaluator would read the series. So, for any number of processors, sums have
// the same last bits, and topk and bottomk choose the same series among equal values. A placeholder, which is a
// selector, then replaces the fragment in the query, and the evaluator reads one sample per step from the placeholder.
// Operators between two placeholders, or between a placeholder and a number, are also computed by the planner. A range
// query that consists of a single placeholder bypasses the evaluator.
//
// Series are read in the order of their ids. If the answer shows the order of series, as the answer to an instant query
// does, or depends on the order, as limitk does, the results of fragments are sorted by the stored labels. The groups
// of an aggregation are then sorted by the first series of each. Answers are then in the order of Prometheus' storage.
// Only topk and bottomk may choose other series among equal values than Prometheus.
//
// The planner calls Prometheus' functions on parts of the arrays, except for the functions in fragment_float.go. It
// leaves unusual cases to the evaluator, which computes the whole fragment: series that get the same labels, an
// aggregation over native histograms (only its operand is a fragment then), a function that panics. The following are
// never fragments: arguments of absent, timestamp and start_timestamp, which depend on the form of their argument;
// everything inside info, limitk and limit_ratio; absent_over_time; anchored and smoothed selectors; and, with delayed
// name removal, functions that drop a name.
//
// # Terms
//
//   - Read: a query of the evaluator, or an external read, such as a remote read. A small read holds little memory. A read
//     that holds more, or works longer than maxSmallTime, is large, and waits for its turn among large reads.
//   - Place: the permission to run. The number of places is Options.MaxConcurrency.
//   - Unread: an answer, or its bytes, from the end of the computation until the client has read it.
//   - Step: an evaluation time. Window: the range of time whose samples determine the value of a series at a step. Edges:
//     its start and its end.
//   - Segment: consecutive steps of a fragment that are answered for one tenant from one resolution.
//   - Made samples: samples that are reconstructed from a bucket. The rollup fallback returns them for times whose raw
//     samples have expired.
//   - Rollup name: a name such as foo_max, which selects values of the buckets of foo.
//   - Shortfall: the difference between an answer and the answer from raw samples, and its causes. A query reports it once,
//     as an info.
//   - Reading: a request whose client computes from the samples itself.
//
// # Functions over rollups
//
// Package resolution chooses the resolution for each step of a fragment, and package bucketfn computes functions from
// the buckets of rollups. The documentation of bucketfn lists for every function how it is answered after raw samples
// have expired.
//
// design.md has the rules and the reasons.
package promql
