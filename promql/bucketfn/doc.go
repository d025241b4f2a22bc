// Package bucketfn computes PromQL's functions over range vectors from the buckets of rollups instead of from samples.
// It is used by package promql. It is pure: its only inputs are buckets and the windows of a query. Its values must
// equal the values of Prometheus' functions over the samples, because resolutions are chosen automatically.
//
// # Functions over rollups
//
// A function that is exact from buckets has the same answer as from raw samples (to 1e-12) if the
// edges of its windows are edges of buckets, or if raw samples exist for the parts of windows outside
// whole buckets. If raw samples have expired, the buckets at the edges are cut into pieces, which are
// computed from samples made from these buckets. The query then has one info, and the answer is off by
// at most the content of these buckets: values between their min and max, their number, their
// increase. All other buckets are exact.
//
// The samples made from a bucket have the same number, first and last time, first, last, min and max
// value, sum, changes and resets as the original samples, and for counters the same increase (see
// expand.Expander). They are evenly spaced, except around restarts. With start timestamps they have the
// same first and last start timestamp, and the same number of resets that only these show. If a window contains
// a whole bucket, the bucket answers it, even if the edges of other windows cut the bucket. The same
// info names the functions that are computed from made samples instead of buckets: the functions below
// that buckets don't answer, and the functions that the evaluator computes (some uses of absent,
// timestamp, limitk, anchored, smoothed and delayed name removal, and remote read). Over whole
// buckets, made samples give exact answers for all functions that are exact from buckets except
// deviations and lines, and, if samples came at regular times, for timestamp and absent. Anchored and
// smoothed ranges are exact except where made samples have other resets, corrections or changes than
// their bucket; the info bounds these errors. Functions that count or sort values, such as
// count_values, read the values of made samples: at the end of a bucket, its last value.
//
// Native histograms of different layouts are reconciled in the same way as in Prometheus
// (FloatHistogram.Add and Sub). Prometheus' warnings about reconciled histograms are in
// Result.Notes. Sums of histograms may depend on the order of addition (see package layouts). Such
// sums are computed from samples. After raw samples have expired, they are computed from made
// samples, and the info has no bound.
//
// Sums and averages of values that cancel out are exact as long as the values are less than about
// 2^60 times their sum. Otherwise even Prometheus' sums depend on the order of addition. Such sums
// are computed from samples. After raw samples have expired, they are computed from made samples,
// and the info has no bound.
//
// If a window has finite values above 2^932 (3.7e280) in absolute value, a sum with them may
// overflow. After raw samples have expired, sums, averages and increases then have no value if such
// values, or infinities, have both signs, and averages if the sum overflows. Deviations and lines
// have none unless all values are equal. The info reports this. All other functions are exact. If each
// bucket with these values has only one value, made samples answer, and the info has no bound.
//
//	function                       from buckets  where raw samples have expired
//	(an instant selector)          exact         exact on bucket edges, otherwise interpolated
//	absent                         -             approximate: a series is present where it has reconstructed samples; the error is at most a gap within a bucket, which may not be seen
//	absent_over_time               -             approximate: a series is present where it has reconstructed samples; the error is at most a gap within a bucket, which may not be seen
//	avg_over_time                  exact         exact on bucket edges, otherwise interpolated
//	changes                        exact         exact on bucket edges, otherwise interpolated
//	count_over_time                exact         exact on bucket edges, otherwise interpolated
//	delta                          exact         exact on bucket edges, otherwise interpolated
//	deriv                          exact         exact on bucket edges, otherwise interpolated; counters are approximate, from reconstructed samples; the error is at most 3 times the spread within a bucket, divided by the time from the first to the last sample, if samples are regular
//	double_exponential_smoothing   -             refused: smooths over individual samples
//	first_over_time                exact         exact on bucket edges, otherwise interpolated
//	idelta                         -             refused: the last two samples aren't kept
//	increase                       exact         exact on bucket edges, otherwise interpolated
//	info                           -             approximate: same as its argument; the error is at most what its argument is off by
//	irate                          -             approximate: slope of reconstructed samples, close to the average of the bucket; the error is at most the increase within a bucket, divided by the interval of its samples, if these are regular
//	last_over_time                 exact         exact on bucket edges, otherwise interpolated
//	mad_over_time                  -             approximate: from sketches, each sample within 1 % of its value, if windows align with hours; otherwise, and for counters, from reconstructed samples; the error is at most 2 times the spread within a bucket
//	max_over_time                  exact         exact on bucket edges, otherwise interpolated
//	min_over_time                  exact         exact on bucket edges, otherwise interpolated
//	predict_linear                 exact         exact on bucket edges, otherwise interpolated; counters are approximate, from reconstructed samples; the error is at most what the slope is off by, as for deriv, times the time from the middle of the samples to the prediction
//	present_over_time              exact         exact on bucket edges, otherwise interpolated
//	quantile_over_time             -             approximate: from sketches, each sample within 1 % of its value, if windows align with hours; otherwise, and for counters, from reconstructed samples; the error is at most the spread within a bucket
//	rate                           exact         exact on bucket edges, otherwise interpolated
//	resets                         exact         exact on bucket edges, otherwise interpolated
//	start_timestamp                -             approximate: reconstructed samples have the first and the last start timestamp of a bucket; those between them may differ; the error is at most the difference between these two, if start timestamps don't decrease
//	stddev_over_time               exact         exact on bucket edges, otherwise interpolated; counters are approximate, from reconstructed samples; the error is at most the spread within a bucket
//	stdvar_over_time               exact         exact on bucket edges, otherwise interpolated; counters are approximate, from reconstructed samples; the error is at most the spread within a bucket, times that spread and 2 standard deviations
//	sum_over_time                  exact         exact on bucket edges, otherwise interpolated
//	timestamp                      -             approximate: reconstructed samples are evenly spaced within a bucket, except around restarts; the error is at most the width of a bucket
//	ts_of_first_over_time          exact         exact on bucket edges, otherwise interpolated
//	ts_of_last_over_time           exact         exact on bucket edges, otherwise interpolated
//	ts_of_max_over_time            -             approximate: the time of a reconstructed sample, in the right bucket; the error is at most the width of a bucket
//	ts_of_min_over_time            -             approximate: the time of a reconstructed sample, in the right bucket; the error is at most the width of a bucket
//
// All other functions are computed from the results of these, or read no series:
//
//	abs acos acosh asin asinh atan atanh ceil clamp clamp_max clamp_min cos cosh day_of_month
//	day_of_week day_of_year days_in_month deg end exp floor histogram_avg histogram_count
//	histogram_fraction histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar
//	histogram_sum hour label_join label_replace ln log10 log2 max_of min_of minute month pi rad range
//	round scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt start step tan tanh
//	time vector year
package bucketfn
