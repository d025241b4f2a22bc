// Package promql answers PromQL from a storage.Store.
//
// The evaluator is Prometheus' own. This package stands on both sides of it: in front, where it bounds
// what runs at once and gathers warnings, and behind, where it hands out series and samples:
//
//	 api (HTTP)            remote read
//	     |                      |
//	+----v-----------------+    |
//	| Engine               |    |   Gate: so many queries at once, so many waiting
//	|  Planner: parts -----+----------> storage.Store, in whole arrays
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
// Before Prometheus' evaluator runs, the planner finds the parts of a query that the store can answer by itself: an
// instant selector, a function over a range selector, an aggregation over one of those. It decodes a series at a
// time, on all processors, computes all steps from the arrays, and folds them into the groups of an aggregation in
// the order in which the evaluator would take the series; so sums have the same last bits and ties the same winner,
// however many processors there are. A selector with a mark then stands in the query for the part, and the evaluator
// reads from it a sample a step. A range query that is nothing but one part goes past the evaluator.
//
// Functions are Prometheus' own, called on pieces of the arrays, but for those in part_float.go. What is unusual is
// left to the evaluator, which computes the part as ever: series that end up with the same labels, an aggregation
// over native histograms (only what is inside is a part then), a function that panics. Never parts are: arguments of
// absent, timestamp and start_timestamp, which look at what their argument is; whatever is inside info, limitk and
// limit_ratio; absent_over_time; anchored and smoothed selectors; with delayed name removal what drops a name; with
// start timestamps rate, irate, increase and resets. PlanOf tells what was computed how.
//
// # Functions over rollups
//
// A function that is exact from buckets has raw's answer where the edges of its windows are edges of buckets, or
// where raw samples are there for the ragged ends. Once they are gone, windows move to the nearest buckets, and
// one info a query says so; what grows with a window's length is scaled where that had to be widened.
//
// Only samples can tell of a bucket in which floats and histograms mix, or whose histograms changed their bounds or
// are gauges; and min, max, sum, avg and delta of histograms. Once raw is gone there is no value, and the info says so.
//
// Samples made of buckets are as many as there were, with the same first, last, least, greatest and sum in each bucket, and
// for counters the same increase and resets (see rollup.Expander). So is all that the evaluator computes by itself.
//
//	function                       from buckets  where raw samples are gone
//	(an instant selector)          exact         nearest, with an info
//	absent                         -             approximate, with an info: from samples made of buckets
//	absent_over_time               -             approximate, with an info: from samples made of buckets
//	avg_over_time                  exact         nearest, with an info
//	changes                        exact         nearest, with an info
//	count_over_time                exact         nearest, with an info
//	delta                          exact         nearest, with an info
//	deriv                          -             approximate, with an info: from samples made of buckets
//	double_exponential_smoothing   -             refused: smooths from sample to sample
//	first_over_time                exact         nearest, with an info
//	idelta                         -             refused: the last two samples aren't kept
//	increase                       exact         nearest, with an info
//	info                           -             approximate, with an info: from samples made of buckets
//	irate                          -             approximate, with an info: from samples made of buckets
//	last_over_time                 exact         nearest, with an info
//	mad_over_time                  -             approximate, with an info: from samples made of buckets
//	max_over_time                  exact         nearest, with an info
//	min_over_time                  exact         nearest, with an info
//	predict_linear                 -             approximate, with an info: from samples made of buckets
//	present_over_time              exact         nearest, with an info
//	quantile_over_time             -             approximate, with an info: from samples made of buckets
//	rate                           exact         nearest, with an info
//	resets                         exact         nearest, with an info
//	start_timestamp                -             approximate, with an info: from samples made of buckets
//	stddev_over_time               -             approximate, with an info: from samples made of buckets
//	stdvar_over_time               -             approximate, with an info: from samples made of buckets
//	sum_over_time                  exact         nearest, with an info
//	timestamp                      -             approximate, with an info: from samples made of buckets
//	ts_of_first_over_time          exact         nearest, with an info
//	ts_of_last_over_time           exact         nearest, with an info
//	ts_of_max_over_time            -             refused: a bucket doesn't know when
//	ts_of_min_over_time            -             refused: a bucket doesn't know when
//
// All others take what these give, or no series at all:
//
//	abs acos acosh asin asinh atan atanh ceil clamp clamp_max clamp_min cos cosh day_of_month
//	day_of_week day_of_year days_in_month deg end exp floor histogram_avg histogram_count
//	histogram_fraction histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar
//	histogram_sum hour label_join label_replace ln log10 log2 max_of min_of minute month pi rad range
//	round scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt start step tan tanh
//	time vector year
package promql
