// Package promql answers PromQL from a storage.Store.
//
// The evaluator is Prometheus' own. This package stands on both sides of it: in front, where it bounds
// what runs at once and gathers warnings, and behind, where it hands out series and samples:
//
//	 api (HTTP)            remote read
//	     |                      |
//	+----v-----------------+    |
//	| Engine               |    |   Gate: so many queries at once, so many waiting
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
package promql
