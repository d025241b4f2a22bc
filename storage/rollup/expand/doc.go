// Package expand makes samples from buckets, and cuts buckets into pieces. Queries use it where raw samples have
// expired.
//
//	bucket ─┬─► Expand ─┬─► values of floats      fit.go ─► course.go ─► solve.go; fit_odd.go
//	        │           ├─► native histograms     histograms.go ─► fit_histograms.go, histogram_vectors.go
//	        │           └─► start timestamps      starts.go
//	        │
//	        ├─► Cut: the buckets of parts of these samples, adjusted to add up to the bucket     pieces.go
//	        │
//	        └─► AppendSketch: samples with the quantiles of the bucket's sketch                  sketch.go
//
// Package promql answers from samples and pieces the functions that buckets can't answer, and package adapter/exporter
// exports samples. A caller may assume that equal buckets give equal samples, and that these samples have, up to rounding, the
// same bucket. Expand lists the exceptions. Values and times between the first and the last sample differ from the
// original samples. Any columns are accepted: if they contradict each other, there are still as many samples as the
// bucket's count. Nothing returns an error. An Expander isn't safe for concurrent use.
//
// # Floats
//
// A bucket has the count, first, last, min, max and sum of its values, the number of rises and falls, and the
// correction, which is the sum of the values before falls. fit.go searches for values with all of these:
//
//   - Values that rise or fall evenly, and values that are each the min or the max, are found directly.
//   - Otherwise it draws a course: rises and falls in an order that the outline determines, with the levels between
//     them spread evenly (course.go). It then moves the levels until their sum and correction are the bucket's. Both
//     are linear in the levels, and the levels are bounded, so this is a problem in two dimensions (solve.go). If it
//     has no solution, the next outline is tried, the most likely first.
//   - If the sum doesn't determine the values, because it is NaN, infinite or imprecise, fit_odd.go searches for a
//     course with the rises, falls and correction, and inserts NaN samples. If there is none, only first, last, min and
//     max are kept.
//
// # Native histograms
//
// Histograms become vectors of their buckets' counts. A counter is divided into runs without a reset, which grow to
// peaks that add up to the correction. The samples within runs are then scaled to match the sum. A gauge varies around
// its mean.
//
// # Start timestamps
//
// The values come first. Start timestamps are then assigned so that the same number of resets is visible from them
// alone. Samples move in time if a restart is between them.
//
// # Pieces
//
// The pieces of a bucket are built from its samples, so inside the bucket they are estimates. A window that contains
// all pieces must have the answer of the whole bucket. Therefore addUp distributes differences among the pieces, and
// records the differences of moments and lines in rollup.Buckets.Wholes.
package expand
