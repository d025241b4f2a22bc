package bucketfn

import "github.com/cassia-db/cassia/storage/rollup"

// Function describes how a function is computed from buckets. It is an instant selector, a function over a range
// vector, or a function such as timestamp that reads more than the values of an instant selector's samples.
type Function struct {
	// Name is the function's name in PromQL; "" is an instant selector.
	Name string
	// evaluate computes the function from buckets, with the same result as from samples. nil: the function can't be
	// computed from buckets.
	evaluate evaluateFunc
	columns  rollup.Columns // needed by evaluate in addition to Count
	// limits computes the min and max value that the function may have if windows cut buckets or were moved. nil: these
	// values are unknown.
	limits limitsFunc
	// Newest is set if only the newest sample of a window matters. Buckets contain the time of this sample, so the left
	// edge of a window doesn't have to be an edge of a bucket.
	Newest bool
	// Grows is set if the value grows with the length of the window. If a window was widened to the width of a bucket,
	// the value is scaled down (see Windows.Scale).
	Grows bool
	// Snaps is set if a window may be moved slightly even if its raw samples exist, because the value doesn't depend on
	// single samples.
	Snaps bool
	// Sketched is set if, after raw samples have expired, the function is computed from the sketches of hours. The
	// windows must consist of whole hours.
	Sketched bool
	// staleness is set if a stale marker ends the series.
	staleness bool
	// WithoutRaw is how the function is answered if raw samples have expired and window edges are inside buckets.
	WithoutRaw WithoutRaw
	// Why is the reason for an approximation or a refusal. It is shown in the tables of this package and of the manual.
	// If WithoutRaw is withoutRawCut, it describes the difference from other functions.
	Why string
	// Bound is the max error of the function where Why applies and windows align with buckets. It is shown in the
	// tables, and TestExpiredAnswersAreWithinTheirInfos of package promql checks it. It is empty if Why doesn't mean an
	// approximation.
	Bound string
}

// WithoutRaw is the way in which a function is answered over times whose raw samples have expired.
type WithoutRaw uint8

const (
	// withoutRawCut: the result is exact if the edges of windows are edges of buckets. Otherwise the buckets at the
	// edges are cut, and the query gets an info.
	withoutRawCut WithoutRaw = iota
	// WithoutRawApproximated: Prometheus' function is applied to samples that are made from buckets, and the query gets
	// an info.
	WithoutRawApproximated
	// WithoutRawRefused: the query gets an error, because the answer would be misleading.
	WithoutRawRefused
)

func (w WithoutRaw) String() string {
	switch w {
	case withoutRawCut:
		return "exact on bucket edges, otherwise interpolated"
	case WithoutRawApproximated:
		return "approximate"
	default:
		return "refused"
	}
}

// bucketEnds are the first and the last sample of a bucket.
const bucketEnds = rollup.ColumnFirst | rollup.ColumnLast

// whySketches is the explanation for quantiles and medians.
const whySketches = "from sketches, each sample within 1 % of its value, if windows align with hours; otherwise, and for counters, from reconstructed samples"

// These are the bounds of functions that are computed from reconstructed samples. The spread within a bucket is the
// largest difference between two values in any of the buckets.
const (
	maxErrorSpread = "the spread within a bucket"
	maxErrorWidth  = "the width of a bucket"
	maxErrorGaps   = "a gap within a bucket, which may not be seen"
	maxErrorLine   = "3 times the spread within a bucket, divided by the time from the first to the last sample, if samples are regular"
)

// momentColumns are the columns needed to merge moments.
const momentColumns = rollup.ColumnMoment | rollup.ColumnSum | rollup.ColumnMin | rollup.ColumnMax

const (
	// whyPresence is the explanation for absence, and whyExtremes for the times of extremes.
	whyPresence = "a series is present where it has reconstructed samples"
	whyExtremes = "the time of a reconstructed sample, in the right bucket"
)

// lineColumns are the columns needed for lines through samples.
const lineColumns = rollup.ColumnLine | rollup.ColumnSum | rollup.ColumnMin | rollup.ColumnMax | rollup.ColumnFirst

// whyNoMoments is the reason why some buckets have no moments and lines, see rollup.AppendStored.
const whyNoMoments = "counters are approximate, from reconstructed samples"

// functions lists the instant selector, the functions over range vectors, and the functions that read more than the
// values of an instant selector's samples. All other functions read only values that these functions return. The table
// in doc.go is generated from this list.
var functions = [...]Function{
	{Name: "", evaluate: evaluateSelector, limits: boundLast, columns: rollup.ColumnLast, Newest: true,
		staleness: true},
	{Name: "absent", Newest: true, WithoutRaw: WithoutRawApproximated, Why: whyPresence, Bound: maxErrorGaps},
	{Name: "absent_over_time", WithoutRaw: WithoutRawApproximated, Why: whyPresence, Bound: maxErrorGaps},
	{Name: "avg_over_time", evaluate: evaluateAvg, limits: boundAvg, columns: rollup.ColumnSum, Snaps: true},
	{Name: "changes", evaluate: evaluateChanges, limits: boundSteps, columns: rollup.ColumnChanges | bucketEnds,
		Grows: true, Snaps: true},
	{Name: "count_over_time", evaluate: evaluateCount, limits: boundCount, Grows: true, Snaps: true},
	{Name: "delta", evaluate: evaluateDelta, limits: boundDelta, columns: bucketEnds, Grows: true},
	{Name: "deriv", evaluate: evaluateDeriv, columns: lineColumns, Why: whyNoMoments, Bound: maxErrorLine},
	{Name: "double_exponential_smoothing", WithoutRaw: WithoutRawRefused, Why: "smooths over individual samples"},
	{Name: "first_over_time", evaluate: evaluateOldest(firstValue), limits: boundFirst, columns: rollup.ColumnFirst},
	{Name: "idelta", WithoutRaw: WithoutRawRefused, Why: "the last two samples aren't kept"},
	{Name: "increase", evaluate: evaluateIncrease, limits: boundIncrease, columns: rollup.ColumnCorrection | bucketEnds,
		Grows: true, Snaps: true},
	{Name: "info", Newest: true, WithoutRaw: WithoutRawApproximated, Why: "same as its argument",
		Bound: "what its argument is off by"},
	{Name: "irate", WithoutRaw: WithoutRawApproximated,
		Why:   "slope of reconstructed samples, close to the average of the bucket",
		Bound: "the increase within a bucket, divided by the interval of its samples, if these are regular"},
	{Name: "last_over_time", evaluate: evaluateNewest(lastValue), limits: boundLast, columns: rollup.ColumnLast,
		Newest: true},
	{Name: "mad_over_time", WithoutRaw: WithoutRawApproximated, Sketched: true, Why: whySketches,
		Bound: "2 times the spread within a bucket"},
	{Name: "max_over_time", evaluate: evaluateMax, limits: boundMax, columns: rollup.ColumnMax, Snaps: true},
	{Name: "min_over_time", evaluate: evaluateMin, limits: boundMin, columns: rollup.ColumnMin, Snaps: true},
	{
		Name: "predict_linear", evaluate: evaluatePredictLinear, columns: lineColumns, Why: whyNoMoments,
		Bound: "what the slope is off by, as for deriv, times the time from the middle of the samples to the prediction",
	},
	{Name: "present_over_time", evaluate: evaluateNewest(presentValue), limits: boundPresent,
		columns: rollup.ColumnLast, Newest: true},
	{Name: "quantile_over_time", WithoutRaw: WithoutRawApproximated, Sketched: true, Why: whySketches,
		Bound: maxErrorSpread},
	{Name: "rate", evaluate: evaluateRate, limits: boundIncrease, columns: rollup.ColumnCorrection | bucketEnds,
		Snaps: true},
	{Name: "resets", evaluate: evaluateResets, limits: boundSteps, columns: rollup.ColumnResets | bucketEnds,
		Grows: true, Snaps: true},
	{Name: "start_timestamp", Newest: true, WithoutRaw: WithoutRawApproximated,
		Why:   "reconstructed samples have the first and the last start timestamp of a bucket; those between them may differ",
		Bound: "the difference between these two, if start timestamps don't decrease"},
	{Name: "stddev_over_time", evaluate: evaluateStddev, limits: boundStddev, columns: momentColumns, Snaps: true,
		Why: whyNoMoments, Bound: maxErrorSpread},
	{Name: "stdvar_over_time", evaluate: evaluateStdvar, limits: boundStdvar, columns: momentColumns, Snaps: true,
		Why: whyNoMoments, Bound: "the spread within a bucket, times that spread and 2 standard deviations"},
	{Name: "sum_over_time", evaluate: evaluateSum, limits: boundSum, columns: rollup.ColumnSum, Grows: true,
		Snaps: true},
	{Name: "timestamp", Newest: true, WithoutRaw: WithoutRawApproximated,
		Why: "reconstructed samples are evenly spaced within a bucket, except around restarts", Bound: maxErrorWidth},
	{Name: "ts_of_first_over_time", evaluate: evaluateOldest(firstTime), limits: boundFirstTime,
		columns: rollup.ColumnFirst},
	{Name: "ts_of_last_over_time", evaluate: evaluateLastTime, limits: boundLastTime, columns: rollup.ColumnLast},
	{Name: "ts_of_max_over_time", WithoutRaw: WithoutRawApproximated, Why: whyExtremes, Bound: maxErrorWidth},
	{Name: "ts_of_min_over_time", WithoutRaw: WithoutRawApproximated, Why: whyExtremes, Bound: maxErrorWidth},
}

// IsFromBuckets returns true if the function can be computed from buckets.
func (f *Function) IsFromBuckets() bool { return f.evaluate != nil }

// Names returns the sorted names of all functions that LookupFunction finds. The first is "", the instant selector.
func Names() []string {
	all := make([]string, len(functions))
	for i := range functions {
		all[i] = functions[i].Name
	}
	return all
}

// LookupFunction returns the function with the given name ("" is an instant selector), or nil for a function that
// doesn't use samples.
func LookupFunction(name string) *Function {
	for i := range functions {
		if functions[i].Name == name {
			return &functions[i]
		}
	}
	return nil
}
