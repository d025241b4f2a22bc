package promql

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// asker generates queries of all shapes over a sampler's metrics.
type asker struct{ rnd *rand.Rand }

func (a *asker) one(of ...string) string { return of[a.rnd.IntN(len(of))] }

func (a *asker) selector() string {
	metric := a.one("requests_total", "requests_total", "temperature", "temperature", "odd", "up", "latency", "mixed",
		"size_bucket", "nothing")
	switch a.rnd.IntN(8) {
	case 0:
		return metric + a.one(`{job="api"}`, `{instance=~"i[0-4]"}`, `{zone!=""}`, `{job!="db",instance="i3"}`)
	case 1:
		return a.one(`{__name__=~"temperature|up"}`, `{__name__=~"requests_total|odd",job="db"}`, `{zone="z"}`,
			`{__name__=~"typed.*"}`)
	}
	return metric
}

func (a *asker) at() string {
	return " @ " + a.one("start()", "end()", "11000", "13000.5", "1e9", "15999.999")
}

func (a *asker) moved(selector string) string {
	if a.rnd.IntN(4) == 0 {
		selector += " offset " + a.one("1m", "7m", "-3m", "100s", "2h", "(1/3)")
	}
	if a.rnd.IntN(7) == 0 {
		selector += a.at()
	}
	return selector
}

// ranged returns a range selector, sometimes of a kind that only the evaluator reads.
func (a *asker) ranged() string {
	selector := a.selector() + "[" + a.one("30s", "1m", "5m", "5m", "20m", "1h", "17s", "1ms", "2m+1s", "step()*2+1s",
		"60.0005") + "]"
	if a.rnd.IntN(25) == 0 {
		selector += a.one(" anchored", " smoothed")
	}
	return a.moved(selector)
}

func (a *asker) subquery(of string) string {
	q := "(" + of + ")[" + a.one("2m:30s", "10m:1m", "5m:", "3m:17s", "1m:2m") + "]"
	if a.rnd.IntN(4) == 0 {
		q += " offset " + a.one("1m", "-2m", "33s")
	}
	if a.rnd.IntN(5) == 0 {
		q += a.at()
	}
	return q
}

func (a *asker) overRange(of string) string {
	fn := a.one("rate", "rate", "increase", "delta", "irate", "idelta", "deriv", "resets", "changes",
		"avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "last_over_time",
		"first_over_time", "present_over_time", "stddev_over_time", "stdvar_over_time", "mad_over_time",
		"ts_of_max_over_time", "ts_of_min_over_time", "ts_of_last_over_time", "absent_over_time", "quantile_over_time",
		"predict_linear", "double_exponential_smoothing", "histogram_count", "histogram_sum")
	switch fn {
	case "quantile_over_time":
		return fmt.Sprintf("%s(%s, %s)", fn, a.scalar(), of)
	case "predict_linear":
		return fmt.Sprintf("%s(%s, %s)", fn, of, a.one("60", "-60", "1+2", "(5)"))
	case "double_exponential_smoothing":
		return fmt.Sprintf("%s(%s, 0.3, 0.6)", fn, of)
	case "histogram_count", "histogram_sum":
		return fmt.Sprintf("%s(%s(%s))", fn, a.one("rate", "increase", "sum_over_time", "avg_over_time",
			"last_over_time", "sum(rate", "delta"), of)
	}
	return fmt.Sprintf("%s(%s)", fn, of)
}

func (a *asker) scalar() string {
	return a.one("0.5", "0.9", "1", "0", "-1", "1.5", "NaN", "2*3", "scalar(up{instance=\"i1\"})", "-Inf", "time()/1e5")
}

func (a *asker) vector(depth int) string {
	if depth <= 0 {
		if a.rnd.IntN(2) == 0 {
			return a.moved(a.selector())
		}
		return a.overRange(a.ranged())
	}
	switch a.rnd.IntN(13) {
	case 0, 1, 2, 3, 4:
		return a.aggregation(a.vector(depth - 1))
	case 5:
		return a.vector(0)
	case 6:
		return a.overRange(a.subquery(a.vector(depth - 1)))
	case 7, 8:
		return a.binary(a.vector(depth-1), a.vector(depth-1))
	case 9:
		op := " " + a.one("+", "*", ">", "== bool", "/", "%", "^", "-", "<=", "!=", ">= bool", "atan2") + " "
		if a.rnd.IntN(2) == 0 {
			return a.scalar() + op + "(" + a.vector(depth-1) + ")"
		}
		return "(" + a.vector(depth-1) + ")" + op + a.scalar()
	case 10:
		return "-" + a.vector(0)
	default:
		return a.function(a.vector(depth - 1))
	}
}

func (a *asker) aggregation(of string) string {
	op := a.one("sum", "sum", "sum", "avg", "avg", "min", "max", "count", "group", "stddev", "stdvar", "topk",
		"bottomk",
		"quantile", "count_values", "limitk", "limit_ratio")
	switch op {
	case "topk", "bottomk", "limitk":
		of = a.one("1", "2", "3", "100", "0", "-1", "1+1", "2.7", "NaN", "1e30",
			"scalar(up{instance=\"i1\"})") + ", " + of
	case "quantile":
		of = a.scalar() + ", " + of
	case "limit_ratio":
		of = a.one("0.5", "-0.5") + ", " + of
	case "count_values":
		of = `"v", ` + of
	}
	return op + a.one("", " by (job)", " by (job, instance)", " by (__name__)", " without (instance)",
		" without (job, zone)", " by (nope)") + "(" + of + ")"
}

func (a *asker) binary(l, r string) string {
	op := a.one("+", "-", "*", "/", "%", "^", "atan2", ">", "<", "==", "!=", ">=", "<=", "and", "or", "unless")
	matching := a.one("", "", " on (job, instance)", " ignoring (zone)", " ignoring (instance)", " on (instance)",
		" on (job) group_left", " on (instance) group_right", " on (job, instance) group_left (zone, nope)",
		" ignoring (zone) group_right (zone)")
	if strings.Contains("and or unless", op) {
		matching, _, _ = strings.Cut(matching, " group_")
	} else if strings.ContainsAny(op, "<>=") && a.rnd.IntN(3) == 0 {
		matching = " bool" + matching
	}
	return "(" + l + ") " + op + matching + " (" + r + ")"
}

func (a *asker) function(of string) string {
	switch a.rnd.IntN(11) {
	case 0:
		return `label_replace(` + of + `, "x", "$1", "instance", "i(.*)")`
	case 1:
		return `label_join(` + of + `, "x", "-", "job", "instance")`
	case 2:
		return "histogram_quantile(" + a.scalar() + ", " + of + ")"
	case 3:
		return a.one("absent", "timestamp", "scalar", "sort", "sort_desc") + "(" + of + ")"
	case 4:
		return a.one("histogram_count", "histogram_sum", "histogram_avg", "histogram_stddev") + "(" + of + ")"
	case 5:
		return "clamp_max(" + of + ", " + a.scalar() + ")"
	case 6:
		return "sort_by_label(" + of + `, "instance")`
	case 7:
		return "histogram_fraction(0, 1, " + of + ")"
	case 8:
		return a.one(`info(`+of+`, {zone=~".+"})`, "vector(scalar("+of+"))", "start_timestamp("+of+")",
			"absent(("+of+"))")
	default:
		return a.one("abs", "ceil", "sgn", "exp", "sqrt") + "(" + of + ")"
	}
}

// query returns a query that parses. It is always a vector, because a scalar isn't valid everywhere.
func (a *asker) query() string { return a.vector(a.rnd.IntN(4)) }
