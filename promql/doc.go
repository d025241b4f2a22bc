// Package promql answers PromQL from a storage.Store.
//
// The evaluator is Prometheus' own. This package stands on both sides of it: in front, where it bounds
// what runs at once and gathers warnings, and behind, where it hands out series and samples:
//
//	 api (HTTP)            remote read
//	     |                      |
//	+----v-----------------+    |
//	| Engine               |    |   Gate: so many queries at once, so many waiting
//	|  Planner: fragments -+----------> storage.Store, in whole arrays
//	|  Prometheus' engine  |    |   Exec carries a collector, so that what a read had to skip
//	+----+-----------------+    |   while samples were iterated still ends in the answer
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
// A series' samples arrive as columns, once for each iteration, in buffers that the next series uses
// again. Counter reset hints of native histograms aren't stored but derived on reading, by the rules by
// which Prometheus' own storage cuts its chunks, so that a query sees the same whether the samples were
// sealed or not, and however they came in. See hints.go.
//
// # Planner
//
// Before Prometheus' evaluator runs, the planner finds the fragments of a query that the store can answer by itself: an
// instant selector, a function over a range selector, an aggregation over one of those. It decodes a series at a
// time, on all processors, computes all steps from the arrays, and folds them into the groups of an aggregation in
// the order in which the evaluator would take the series; so sums have the same last bits and ties the same winner,
// however many processors there are. A placeholder, which is a selector, then replaces the fragment in the query, and the evaluator
// reads from it one sample per step. Operators between two of them, or one and a number, are computed in the same way. A range query
// that is nothing else bypasses the evaluator.
//
// Series are read in the order of their ids. Where the answer shows the order of series, as that to an instant query does, or depends on it,
// as limitk does, the result of a fragment is sorted by the labels that are stored, and groups by the first series of each: so answers are
// in the order of Prometheus' storage. Which of several series with equal values topk and bottomk choose may differ.
//
// Functions are Prometheus' own, called on pieces of the arrays, but for those in fragment_float.go. Unusual cases are
// left to the evaluator, which computes the fragment as ever: series that end up with the same labels, an aggregation
// over native histograms (only its operand is a fragment then), a function that panics. Never fragments are: arguments of
// absent, timestamp and start_timestamp, which depend on the form of their argument; whatever is inside info, limitk and
// limit_ratio; absent_over_time; anchored and smoothed selectors; with delayed name removal functions that drop a name.
//
// # Functions over rollups
//
// Package resolution chooses which resolution answers which steps of a fragment, and package bucketfn computes functions
// from the buckets of rollups. Its documentation lists for every function how it is answered once raw samples are gone.
//
// design.md has the rules and the reasons.
package promql
