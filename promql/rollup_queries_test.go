package promql

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/promql/bucketfn"
)

// rollupAsker generates queries over a roller's series. Most of their windows fit buckets.
type rollupAsker struct {
	r *rand.Rand
	// called counts the calls of each function, by name.
	called map[string]int
}

func (a *rollupAsker) one(of ...string) string { return of[a.r.IntN(len(of))] }

func (a *rollupAsker) selector() string {
	metric := rolledMetrics[a.r.IntN(len(rolledMetrics))].name
	if a.r.IntN(3) == 0 {
		metric = "requests_total"
	}
	switch a.r.IntN(8) {
	case 0:
		return metric + a.one(`{job="api"}`, `{instance=~"i[0-1]"}`, `{zone=""}`, `{job!="db",instance!="i3"}`)
	case 1:
		return a.one(`{__name__=~"temperature|up"}`, `{__name__=~"requests_total|odd",job="db"}`, `{zone="z"}`,
			`nothing`)
	}
	return metric
}

func (a *rollupAsker) width() string {
	return a.one("5m", "5m", "10m", "30m", "1h", "1h", "1h", "2h", "2h", "6h", "1d", "1d", "2d", "1h15s", "61m", "7m",
		"90m+3s", "1h5m", "55m")
}

func (a *rollupAsker) moved(selector string) string {
	if a.r.IntN(4) == 0 {
		selector += " offset " + a.one("5m", "1h", "1h", "1d", "-1h", "-5m", "61s", "2h", "6h", "1ms")
	}
	if a.r.IntN(8) == 0 {
		selector += " @ " + a.one("start()", "end()", fmt.Sprint((rolledFrom+a.r.Int64N(80)*hour)/1000),
			fmt.Sprint((rolledFrom+a.r.Int64N(1000)*5*minute)/1000),
			fmt.Sprintf("%.3f", float64(rolledFrom+a.r.Int64N(3*day))/1000))
	}
	return selector
}

func (a *rollupAsker) ranged() string { return a.moved(a.selector() + "[" + a.width() + "]") }

func (a *rollupAsker) subquery(of string) string {
	q := "(" + of + ")[" + a.one("1h:5m", "6h:1h", "3h:1h", "30m:5m", "2h:10m", "1d:2h", "1h:7m", "5m:") + "]"
	if a.r.IntN(5) == 0 {
		q += " offset " + a.one("1h", "5m", "33s")
	}
	if a.r.IntN(8) == 0 {
		q += " @ " + a.one("start()", "end()", fmt.Sprint((rolledFrom+a.r.Int64N(80)*hour)/1000))
	}
	return q
}

// parserFunctions are the sorted names of all functions, and rangeFunctions the sorted names of functions over ranges.
var parserFunctions, rangeFunctions = func() (all, ranged []string) {
	all = slices.Sorted(maps.Keys(parser.Functions))
	for _, name := range all {
		if slices.Contains(parser.Functions[name].ArgTypes, parser.ValueTypeMatrix) {
			ranged = append(ranged, name)
		}
	}
	return all, ranged
}()

// overRange generates a call of a function over a range.
func (a *rollupAsker) overRange(of string) string {
	name := rangeFunctions[a.r.IntN(len(rangeFunctions))]
	if a.r.IntN(2) == 0 {
		name = a.one("rate", "rate", "increase", "delta", "sum_over_time", "avg_over_time", "min_over_time",
			"max_over_time", "resets", "changes", "count_over_time", "stddev_over_time", "stdvar_over_time", "deriv",
			"predict_linear")
	}
	return a.call(name, func() string { return of }, nil)
}

// call generates a call of a function. ranged and vector generate the arguments.
func (a *rollupAsker) call(name string, ranged, vector func() string) string {
	a.called[name]++
	f := parser.Functions[name]
	var args []string
	for i, typ := range f.ArgTypes {
		switch {
		case f.Variadic > 0 && i >= len(f.ArgTypes)-f.Variadic && (name == "info" || a.r.IntN(2) == 0):
			continue
		case typ == parser.ValueTypeMatrix:
			args = append(args, ranged())
		case typ == parser.ValueTypeVector:
			args = append(args, vector())
		case typ == parser.ValueTypeString:
			args = append(args, a.text(name, i))
		default:
			args = append(args, a.one("0.5", "0.9", "0.3", "1", "60", "-60", "2*3"))
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.ReturnType == parser.ValueTypeScalar {
		call = "vector(" + call + ")"
	}
	return call
}

// text returns argument i of a function that requires a string.
func (a *rollupAsker) text(name string, i int) string {
	switch name {
	case "label_replace":
		return []string{"", `"x"`, `"$1"`, `"instance"`, `"i(.*)"`}[i]
	case "label_join":
		return []string{"", `"x"`, `"-"`, `"job"`}[i]
	case "histogram_quantiles":
		return `"q"`
	default:
		return a.one(`"instance"`, `"job"`)
	}
}

// simple generates a query that consists of a single fragment.
func (a *rollupAsker) simple() string {
	if a.r.IntN(6) == 0 {
		return a.moved(a.selector())
	}
	return a.overRange(a.ranged())
}

func (a *rollupAsker) vector(depth int) string {
	if depth <= 0 {
		return a.simple()
	}
	deeper := func() string { return a.vector(depth - 1) }
	switch a.r.IntN(10) {
	case 0, 1, 2:
		return a.aggregation(deeper())
	case 3:
		return a.simple()
	case 4:
		return a.overRange(a.subquery(deeper()))
	case 5, 6:
		return a.binary(deeper(), deeper())
	case 7:
		return "(" + deeper() + ") " + a.one("+", "*", ">", "== bool", "/", "%") + " " + a.one("2", "0.5", "1e3",
			"scalar(up{instance=\"i1\"})")
	default:
		name := parserFunctions[a.r.IntN(len(parserFunctions))]
		return a.call(name, func() string {
			if a.r.IntN(3) == 0 {
				return a.subquery(deeper())
			}
			return a.ranged()
		}, deeper)
	}
}

func (a *rollupAsker) aggregation(of string) string {
	op := a.one("sum", "sum", "sum", "avg", "avg", "min", "max", "count", "group", "stddev", "stdvar", "topk",
		"bottomk",
		"quantile", "count_values", "limitk", "limit_ratio")
	switch op {
	case "topk", "bottomk", "limitk":
		of = a.one("1", "2", "100") + ", " + of
	case "quantile":
		of = a.one("0.5", "0.9", "1") + ", " + of
	case "limit_ratio":
		of = a.one("0.5", "-0.5") + ", " + of
	case "count_values":
		of = `"v", ` + of
	}
	return op + a.one("", " by (job)", " by (job, instance)", " by (__name__)", " without (instance)",
		" without (job, zone)") + "(" + of + ")"
}

func (a *rollupAsker) binary(l, r string) string {
	op := a.one("+", "-", "*", "/", ">", "<", "and", "or", "unless")
	matching := a.one("", "", " on (job, instance)", " ignoring (zone)", " on (job) group_left")
	if strings.Contains("and or unless", op) {
		matching = strings.TrimSuffix(matching, " group_left")
	}
	return "(" + l + ") " + op + matching + " (" + r + ")"
}

// at returns a query with random times, which are often ends of buckets.
func (a *rollupAsker) at(text string) asked {
	q := asked{text: text, start: rolledFrom - 2*hour + a.r.Int64N(rolledTo-rolledFrom+4*hour)}
	align := []int64{hour, hour, hour, 5 * minute, 5 * minute, 2 * hour, day, second, 1}[a.r.IntN(9)]
	q.start = bucketfn.FloorTo(q.start, align)
	if a.r.IntN(4) == 0 {
		return q
	}
	q.step = time.Duration([]int64{5 * minute, 5 * minute, 15 * minute, hour, hour, hour, 2 * hour, 6 * hour, day,
		61 * minute, hour + 15*second}[a.r.IntN(11)]) * time.Millisecond
	steps := 1 + a.r.Int64N(24)
	if q.step >= time.Hour { // A query with wide steps must start early to have samples at most steps.
		q.start = bucketfn.FloorTo(rolledFrom-2*hour+a.r.Int64N(day), align)
	}
	q.end = min(q.start+q.step.Milliseconds()*steps, rolledTo+2*hour)
	q.end = max(q.end, q.start)
	return q
}

// dashboard generates a query as Grafana sends it for a range of days: the window is slightly longer than the step, and
// starts at any time.
func (a *rollupAsker) dashboard() asked {
	step := []int64{hour, hour, 2 * hour, 30 * minute}[a.r.IntN(4)]
	width := step + []int64{15 * second, minute, 4 * minute, 0}[a.r.IntN(4)]
	text := fmt.Sprintf("%s(%s[%ds])", a.one("rate", "increase", "delta", "avg_over_time", "max_over_time",
		"sum_over_time", "count_over_time", "changes", "stddev_over_time"), a.selector(), width/1000)
	if a.r.IntN(2) == 0 {
		text = a.one("sum by (job)", "max", "avg by (instance)") + "(" + text + ")"
	}
	start := rolledFrom + a.r.Int64N(3*hour)
	if a.r.IntN(2) == 0 {
		start = bucketfn.FloorTo(start, step)
	}
	return asked{text: text, start: start, end: rolledTo, step: time.Duration(step) * time.Millisecond}
}
