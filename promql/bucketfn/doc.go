// Package bucketfn computes PromQL's functions over range vectors from the buckets of rollups instead of from samples. It
// is pure: it reads no store, and depends on nothing of a query besides its windows.
//
// # Functions over rollups
//
// A function that is exact from buckets has raw's answer (to 1e-12) where the edges of its windows are edges of buckets, or
// where raw samples are there for the ragged ends. Where those are gone, the buckets at the ends are cut, like the samples that
// are made of them: there is one info per query, and the answer is off by at most the content of these buckets: values between
// their least and greatest, their number, their increase. The rest is the same.
//
// Made samples are as many as there were, from the first to the last time of a bucket, evenly spaced, with the same first, last,
// least and greatest value, sum, changes and resets, and for counters the same increase (see rollup.Expander). With start timestamps
// they have the same first and last of these, and as many resets that only these show. A window that contains a
// bucket whole has the answer of the bucket, also where the edges of other windows cut it. Functions that are computed from made
// samples, instead of from buckets, are named in the same info: those below that buckets don't answer, and those that the evaluator
// computes by itself (some uses of absent, timestamp, limitk, anchored, smoothed and of names that are removed late, and remote
// read). Over whole buckets that is exact, too, for the functions that are exact from buckets but deviations, for anchored and
// smoothed, and where samples came at regular times for timestamp and absent. What counts or sorts values, such as count_values,
// sees the values of made samples: the last of a bucket where it asks at the bucket's end.
//
// Native histograms of any layout are brought together as Prometheus brings them together (FloatHistogram.Add and Sub), and its
// warnings about them are in Result.Notes. Only samples can answer for a bucket with values whose sum could overflow. Once raw is
// gone there is no value for such buckets, and the info has it.
//
//	function                       from buckets  where raw samples have expired
//	(an instant selector)          exact         exact on bucket edges, otherwise interpolated
//	absent                         -             approximate: a series is present where it has reconstructed samples
//	absent_over_time               -             approximate: a series is present where it has reconstructed samples
//	avg_over_time                  exact         exact on bucket edges, otherwise interpolated
//	changes                        exact         exact on bucket edges, otherwise interpolated
//	count_over_time                exact         exact on bucket edges, otherwise interpolated
//	delta                          exact         exact on bucket edges, otherwise interpolated
//	deriv                          -             approximate: regression over reconstructed samples
//	double_exponential_smoothing   -             refused: smooths over individual samples
//	first_over_time                exact         exact on bucket edges, otherwise interpolated
//	idelta                         -             refused: the last two samples aren't kept
//	increase                       exact         exact on bucket edges, otherwise interpolated
//	info                           -             approximate: same as its argument
//	irate                          -             approximate: slope of reconstructed samples, close to the average of the bucket
//	last_over_time                 exact         exact on bucket edges, otherwise interpolated
//	mad_over_time                  -             approximate: from sketches, each sample within 1 % of its value, if windows align with hours; otherwise, and for counters, from reconstructed samples: the error is at most the spread within a bucket
//	max_over_time                  exact         exact on bucket edges, otherwise interpolated
//	min_over_time                  exact         exact on bucket edges, otherwise interpolated
//	predict_linear                 -             approximate: regression over reconstructed samples
//	present_over_time              exact         exact on bucket edges, otherwise interpolated
//	quantile_over_time             -             approximate: from sketches, each sample within 1 % of its value, if windows align with hours; otherwise, and for counters, from reconstructed samples: the error is at most the spread within a bucket
//	rate                           exact         exact on bucket edges, otherwise interpolated
//	resets                         exact         exact on bucket edges, otherwise interpolated
//	start_timestamp                -             approximate: reconstructed samples have the first and the last start timestamp of a bucket; those between them may differ
//	stddev_over_time               exact         exact on bucket edges, otherwise interpolated; counters are approximate, from reconstructed samples
//	stdvar_over_time               exact         exact on bucket edges, otherwise interpolated; counters are approximate, from reconstructed samples
//	sum_over_time                  exact         exact on bucket edges, otherwise interpolated
//	timestamp                      -             approximate: reconstructed samples are evenly spaced within a bucket
//	ts_of_first_over_time          exact         exact on bucket edges, otherwise interpolated
//	ts_of_last_over_time           exact         exact on bucket edges, otherwise interpolated
//	ts_of_max_over_time            -             refused: a bucket has no timestamps of min and max
//	ts_of_min_over_time            -             refused: a bucket has no timestamps of min and max
//
// All others take what these give, or no series at all:
//
//	abs acos acosh asin asinh atan atanh ceil clamp clamp_max clamp_min cos cosh day_of_month
//	day_of_week day_of_year days_in_month deg end exp floor histogram_avg histogram_count
//	histogram_fraction histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar
//	histogram_sum hour label_join label_replace ln log10 log2 max_of min_of minute month pi rad range
//	round scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt start step tan tanh
//	time vector year
package bucketfn
