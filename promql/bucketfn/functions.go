package bucketfn

import "github.com/cassia-db/cassia/storage/rollup"

// Function describes how a function is computed from buckets. It is a function over a range vector, an instant
// selector, or a function that uses more of an instant selector's samples than their values, such as timestamp.
type Function struct {
	// Name is the function's name in PromQL; "" is an instant selector.
	Name string
	// over computes the function from buckets, with the result that samples would give; nil if buckets don't suffice.
	over    evaluateFunc
	columns rollup.Columns // needed by over, besides Count
	// Newest is set if only the newest sample of a window matters. Buckets hold its time, so the left edge of a window
	// needn't be an edge of a bucket.
	Newest bool
	// Grows is set if the value grows with the length of the window. If a window was widened to that of a bucket, the
	// value is scaled down (see Windows.Scale).
	Grows bool
	// Snaps is set if a window may be moved slightly even though its raw samples exist, since the value doesn't depend
	// on single samples.
	Snaps bool
	// Sketched is set if sketches of hours answer the function where raw samples are gone, and hours fit the window.
	Sketched bool
	// staleness is set if a stale marker ends the series.
	staleness bool
	// WithoutRaw is how the function is answered if raw samples are gone and no bucket fits the window.
	WithoutRaw WithoutRaw
	// Why is the reason, shown in the tables of this package and the manual, for an approximation or a refusal; for Cut it is
	// what differs from the other functions.
	Why string
}

// WithoutRaw is how a function is answered over times whose raw samples are gone.
type WithoutRaw uint8

const (
	// Cut: exact if the edges of windows are edges of buckets; otherwise the buckets at the edges are cut, and the
	// query gets an info.
	Cut WithoutRaw = iota
	// Approximated: Prometheus' function is applied to samples that are made of buckets, and the query gets an info.
	Approximated
	// Refused: the query gets an error, since the answer would be misleading.
	Refused
)

func (w WithoutRaw) String() string {
	switch w {
	case Cut:
		return "exact on bucket edges, otherwise interpolated"
	case Approximated:
		return "approximate"
	default:
		return "refused"
	}
}

// bucketEnds are the first and the last sample of a bucket.
const bucketEnds = rollup.ColumnFirst | rollup.ColumnLast

// bySketches is how far quantiles and medians are off.
const bySketches = "from sketches, each sample within 1 % of its value, if windows align with hours; otherwise, and for counters, from reconstructed samples: the error is at most the spread within a bucket"

// momentColumns are the columns that moments are merged by.
const momentColumns = rollup.ColumnMoment | rollup.ColumnSum | rollup.ColumnMin | rollup.ColumnMax

// noMoments is when moments are left out, see rollup.AppendStored.
const noMoments = "counters are approximate, from reconstructed samples"

// functions lists the instant selector, the functions that take a range vector, and those that use the samples of
// instant selectors. Every other function takes the values that these return. The table in doc.go is generated from it.
var functions = [...]Function{
	{Name: "", over: overSelector, columns: rollup.ColumnLast, Newest: true, staleness: true},
	{Name: "absent", Newest: true, WithoutRaw: Approximated, Why: "a series is present where it has reconstructed samples"},
	{Name: "absent_over_time", WithoutRaw: Approximated, Why: "a series is present where it has reconstructed samples"},
	{Name: "avg_over_time", over: overAvg, columns: rollup.ColumnSum, Snaps: true},
	{Name: "changes", over: overChanges, columns: rollup.ColumnChanges | bucketEnds, Grows: true, Snaps: true},
	{Name: "count_over_time", over: overCount, Grows: true, Snaps: true},
	{Name: "delta", over: overDelta, columns: bucketEnds, Grows: true},
	{Name: "deriv", WithoutRaw: Approximated, Why: "regression over reconstructed samples"},
	{Name: "double_exponential_smoothing", WithoutRaw: Refused, Why: "smooths over individual samples"},
	{Name: "first_over_time", over: overOldest(firstIn), columns: rollup.ColumnFirst},
	{Name: "idelta", WithoutRaw: Refused, Why: "the last two samples aren't kept"},
	{Name: "increase", over: overIncrease, columns: rollup.ColumnCorrection | bucketEnds, Grows: true, Snaps: true},
	{Name: "info", Newest: true, WithoutRaw: Approximated, Why: "same as its argument"},
	{Name: "irate", WithoutRaw: Approximated, Why: "slope of reconstructed samples, close to the average of the bucket"},
	{Name: "last_over_time", over: overNewest(lastIn), columns: rollup.ColumnLast, Newest: true},
	{Name: "mad_over_time", WithoutRaw: Approximated, Sketched: true, Why: bySketches},
	{Name: "max_over_time", over: overMax, columns: rollup.ColumnMax, Snaps: true},
	{Name: "min_over_time", over: overMin, columns: rollup.ColumnMin, Snaps: true},
	{Name: "predict_linear", WithoutRaw: Approximated, Why: "regression over reconstructed samples"},
	{Name: "present_over_time", over: overNewest(presentIn), columns: rollup.ColumnLast, Newest: true},
	{Name: "quantile_over_time", WithoutRaw: Approximated, Sketched: true, Why: bySketches},
	{Name: "rate", over: overRate, columns: rollup.ColumnCorrection | bucketEnds, Snaps: true},
	{Name: "resets", over: overResets, columns: rollup.ColumnResets | bucketEnds, Grows: true, Snaps: true},
	{Name: "start_timestamp", Newest: true, WithoutRaw: Approximated, Why: "reconstructed samples have the first and the last start timestamp of a bucket; those between them may differ"},
	{Name: "stddev_over_time", over: overStddev, columns: momentColumns, Snaps: true, Why: noMoments},
	{Name: "stdvar_over_time", over: overStdvar, columns: momentColumns, Snaps: true, Why: noMoments},
	{Name: "sum_over_time", over: overSum, columns: rollup.ColumnSum, Grows: true, Snaps: true},
	{Name: "timestamp", Newest: true, WithoutRaw: Approximated, Why: "reconstructed samples are evenly spaced within a bucket"},
	{Name: "ts_of_first_over_time", over: overOldest(firstTimeIn), columns: rollup.ColumnFirst},
	{Name: "ts_of_last_over_time", over: overLastTime, columns: rollup.ColumnLast},
	{Name: "ts_of_max_over_time", WithoutRaw: Refused, Why: "a bucket has no timestamps of min and max"},
	{Name: "ts_of_min_over_time", WithoutRaw: Refused, Why: "a bucket has no timestamps of min and max"},
}

// FromBuckets returns true if the function can be computed from buckets.
func (f *Function) FromBuckets() bool { return f.over != nil }

// Names returns the names of all functions that Lookup finds, sorted. The first is "", the instant selector.
func Names() []string {
	all := make([]string, len(functions))
	for i := range functions {
		all[i] = functions[i].Name
	}
	return all
}

// Lookup returns the function of that name ("" is an instant selector), or nil for a function that doesn't use samples.
func Lookup(name string) *Function {
	for i := range functions {
		if functions[i].Name == name {
			return &functions[i]
		}
	}
	return nil
}
