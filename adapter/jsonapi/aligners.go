package jsonapi

import (
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// operation is a PromQL function or aggregation and its parameter, if any.
type operation struct {
	name, param string
}

// aligners maps the name of an aligner to the PromQL function that reduces each series to one point per period.
var aligners = map[string]operation{
	"ALIGN_DELTA":         {"increase", ""},
	"ALIGN_RATE":          {"rate", ""},
	"ALIGN_MIN":           {"min_over_time", ""},
	"ALIGN_MAX":           {"max_over_time", ""},
	"ALIGN_MEAN":          {"avg_over_time", ""},
	"ALIGN_COUNT":         {"count_over_time", ""},
	"ALIGN_SUM":           {"sum_over_time", ""},
	"ALIGN_STDDEV":        {"stddev_over_time", ""},
	"ALIGN_NEXT_OLDER":    {"last_over_time", ""},
	"ALIGN_PERCENTILE_99": {"quantile_over_time", "0.99"},
	"ALIGN_PERCENTILE_95": {"quantile_over_time", "0.95"},
	"ALIGN_PERCENTILE_50": {"quantile_over_time", "0.5"},
	"ALIGN_PERCENTILE_05": {"quantile_over_time", "0.05"},
}

// reducers maps the name of a reducer to the PromQL aggregation over the series with equal values of the groupBy tags.
var reducers = map[string]operation{
	"REDUCE_MIN":           {"min", ""},
	"REDUCE_MAX":           {"max", ""},
	"REDUCE_MEAN":          {"avg", ""},
	"REDUCE_COUNT":         {"count", ""},
	"REDUCE_SUM":           {"sum", ""},
	"REDUCE_STDDEV":        {"stddev", ""},
	"REDUCE_PERCENTILE_99": {"quantile", "0.99"},
	"REDUCE_PERCENTILE_95": {"quantile", "0.95"},
	"REDUCE_PERCENTILE_50": {"quantile", "0.5"},
	"REDUCE_PERCENTILE_05": {"quantile", "0.05"},
}

// Names of the aligner and the reducer that do nothing.
const (
	alignNone  = "ALIGN_NONE"
	reduceNone = "REDUCE_NONE"
)

// formatSelector returns a range selector. The range is in milliseconds.
func formatSelector(matchers []*labels.Matcher, rangeMS int64) string {
	texts := make([]string, len(matchers))
	for i, m := range matchers {
		texts[i] = strconv.Quote(m.Name) + "=" + strconv.Quote(m.Value)
	}
	return "{" + strings.Join(texts, ",") + "}[" + strconv.FormatInt(rangeMS, 10) + "ms]"
}

func (o operation) formatCall(of string) string {
	if o.param != "" {
		return o.name + "(" + o.param + ", " + of + ")"
	}
	return o.name + "(" + of + ")"
}

// formatAggregate returns the PromQL text that applies the aggregation to the expression in of, by the given labels. It
// quotes the labels, because some valid names are numbers in PromQL if unquoted, such as NaN.
func (o operation) formatAggregate(by []string, of string) string {
	names := make([]string, len(by))
	for i, name := range by {
		names[i] = strconv.Quote(name)
	}
	return operation{o.name + " by (" + strings.Join(names, ", ") + ") ", o.param}.formatCall(of)
}
