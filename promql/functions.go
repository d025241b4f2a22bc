package promql

import "github.com/cassia-db/cassia/storage/rollup"

// function is what is known of a function over a range vector, of an instant selector, or of a function that wants
// to know more of an instant selector's samples than their values.
type function struct {
	// name is PromQL's; "" is an instant selector.
	name string
	// over computes the function from buckets, just as from samples; nil: buckets can't say.
	over    overFunc
	columns rollup.Columns // that over needs, besides Count
	// newest says that only the newest sample counts, whose time is known: the left edge of a window needn't be
	// that of a bucket.
	newest bool
	// grows says that the value grows with the window's length: asked for a shorter window than a bucket, the
	// bucket's value is scaled down.
	grows bool
	// snaps says that a window may be moved by a little though its samples are there: the value doesn't hang on single ones.
	snaps bool
	// staleness says that a stale marker ends the series.
	staleness bool
	// withoutRaw says what becomes of the function where raw samples are gone and no bucket fits.
	withoutRaw withoutRaw
	// why says in the tables of doc.go and the manual how it is approximated, or why it is refused.
	why string
}

// withoutRaw is how a function is answered over times whose raw samples are gone.
type withoutRaw uint8

const (
	// cut: exactly where buckets end at the edges of windows; else buckets that lie there are cut, with an info.
	cut withoutRaw = iota
	// approximated: by Prometheus' function from samples made of buckets, with an info.
	approximated
	// refused: with an error, since the answer would mislead.
	refused
)

func (w withoutRaw) String() string {
	switch w {
	case cut:
		return "exact on buckets, else cut"
	case approximated:
		return "approximate"
	default:
		return "refused"
	}
}

// bucketEnds are the first and the last sample of a bucket.
const bucketEnds = rollup.ColumnFirst | rollup.ColumnLast

// functions are instant selectors, the functions that take a range vector, and those that see the samples of
// instant selectors. Every other function takes what these give. The table in doc.go is made of it.
var functions = [...]function{
	{name: "", over: overSelector, columns: rollup.ColumnLast, newest: true, staleness: true},
	{name: "absent", newest: true, withoutRaw: approximated, why: "there is a series where made samples are"},
	{name: "absent_over_time", withoutRaw: approximated, why: "there is a series where made samples are"},
	{name: "avg_over_time", over: overAvg, columns: rollup.ColumnSum, snaps: true},
	{name: "changes", over: overChanges, columns: rollup.ColumnChanges | bucketEnds, grows: true, snaps: true},
	{name: "count_over_time", over: overCount, grows: true, snaps: true},
	{name: "delta", over: overDelta, columns: bucketEnds, grows: true},
	{name: "deriv", withoutRaw: approximated, why: "a line through made samples"},
	{name: "double_exponential_smoothing", withoutRaw: refused, why: "smooths from sample to sample"},
	{name: "first_over_time", over: overOldest(firstIn), columns: rollup.ColumnFirst},
	{name: "idelta", withoutRaw: refused, why: "the last two samples aren't kept"},
	{name: "increase", over: overIncrease, columns: rollup.ColumnCorrection | bucketEnds, grows: true, snaps: true},
	{name: "info", newest: true, withoutRaw: approximated, why: "as its argument"},
	{name: "irate", withoutRaw: approximated, why: "the slope of made samples, about a bucket's average"},
	{name: "last_over_time", over: overNewest(lastIn), columns: rollup.ColumnLast, newest: true},
	{name: "mad_over_time", withoutRaw: approximated, why: "of made samples: off by what a bucket spreads at most"},
	{name: "max_over_time", over: overMax, columns: rollup.ColumnMax, snaps: true},
	{name: "min_over_time", over: overMin, columns: rollup.ColumnMin, snaps: true},
	{name: "predict_linear", withoutRaw: approximated, why: "a line through made samples"},
	{name: "present_over_time", over: overNewest(presentIn), columns: rollup.ColumnLast, newest: true},
	{name: "quantile_over_time", withoutRaw: approximated, why: "of made samples: off by what a bucket spreads at most"},
	{name: "rate", over: overRate, columns: rollup.ColumnCorrection | bucketEnds, snaps: true},
	{name: "resets", over: overResets, columns: rollup.ColumnResets | bucketEnds, grows: true, snaps: true},
	{name: "start_timestamp", newest: true, withoutRaw: approximated, why: "made samples have none"},
	{name: "stddev_over_time", withoutRaw: approximated, why: "of made samples: off by what a bucket spreads at most"},
	{name: "stdvar_over_time", withoutRaw: approximated, why: "of made samples, as stddev_over_time"},
	{name: "sum_over_time", over: overSum, columns: rollup.ColumnSum, grows: true, snaps: true},
	{name: "timestamp", newest: true, withoutRaw: approximated, why: "made samples are evenly spaced in a bucket"},
	{name: "ts_of_first_over_time", over: overOldest(firstTimeIn), columns: rollup.ColumnFirst},
	{name: "ts_of_last_over_time", over: overLastTime, columns: rollup.ColumnLast},
	{name: "ts_of_max_over_time", withoutRaw: refused, why: "a bucket doesn't know when"},
	{name: "ts_of_min_over_time", withoutRaw: refused, why: "a bucket doesn't know when"},
}

// functionOf returns the function of that name, "" for an instant selector; nil if it isn't one of functions.
func functionOf(name string) *function {
	for i := range functions {
		if functions[i].name == name {
			return &functions[i]
		}
	}
	return nil
}
