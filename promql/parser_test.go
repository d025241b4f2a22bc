package promql

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// TestQueriesAreBoundedBeforeTheyAreParsed checks that queries that exceed the bounds are rejected. Without the bounds,
// the deepest of these queries would take minutes or gigabytes, or end the process.
func TestQueriesAreBoundedBeforeTheyAreParsed(t *testing.T) {
	p := NewParser(parser.Options{ExperimentalDurationExpr: true})
	nested := func(n int, open, inner, closed string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(closed, n)
	}
	wide := func(n int, inner string) string { return "(" + strings.Repeat(inner+"+", n-1) + inner + ")" }
	for about, c := range map[string]struct {
		query string
		want  string // Part of the error; empty: no error.
	}{
		"plain":                    {`sum by (a) (rate(x{b="c",d!="e"}[5m] offset 1h)) > 0`, ""},
		"400 parentheses":          {nested(400, "(", "x", ")"), ""},
		"100,000 parentheses":      {nested(100_000, "(", "x", ")"), "500 levels deep"},
		"unclosed":                 {strings.Repeat("(", 100_000), "500 levels deep"},
		"functions":                {nested(2000, "abs(", "x", ")"), "500 levels deep"},
		"aggregations":             {nested(2000, "sum by(a)(", "x", ")"), "500 levels deep"},
		"signs":                    {strings.Repeat("-", 100_000) + "x", "500 levels deep"},
		"sums":                     {strings.Repeat("x+", 100_000) + "x", "500 levels deep"},
		"400 sums":                 {strings.Repeat("x+", 400) + "x", ""},
		"sums in parentheses":      {nested(150, "(x+1+", "x", ")"), ""},
		"more sums in parentheses": {nested(600, "(x+1+", "x", ")"), "500 levels deep"},
		"on the left":              {nested(600, "(", "x", "+1+1)"), "500 levels deep"},
		"sets":                     {strings.Repeat("x or ", 2000) + "x", "500 levels deep"},
		"powers":                   {strings.Repeat("2^", 2000) + "x", "500 levels deep"},
		"many side by side":        {"(x)" + strings.Repeat("+sum(rate(x[5m]))", 400), ""},
		"10,000 parts":             {wide(99, wide(99, "x")), ""},
		"many parts":               {wide(110, wide(110, "x")), "more than 10000 operators and parentheses"},
		"many parts beside others": {"sum(x) / " + wide(400, "abs(x)") + " + " + wide(400, wide(24, "x")),
			"more than 10000 operators and parentheses"},
		"subqueries":              {"x" + strings.Repeat("[1m:]", 2000), "500 levels deep"},
		"subqueries of functions": {nested(600, "max_over_time(", "x[1m:]", "[1m:])"), "500 levels deep"},
		"durations":               {"x[" + nested(2000, "(", "1m", ")") + "]", "500 levels deep"},
		"sums of durations":       {"x[" + strings.Repeat("1m+", 2000) + "1m]", "500 levels deep"},
		"1,000 matchers":          {"{c='d'," + strings.Repeat(`a!="b",`, 999) + "}", ""},
		"many matchers": {"{" + strings.Repeat(`a="b",`, 10_000) + "}",
			"a selector has more than 1000 matchers"},
		"1,000 labels": {"a * on (a) group_left (b" + strings.Repeat(",b", 999) + ") c", ""},
		"many labels": {"a * on (a) group_left (b" + strings.Repeat(",b", 10_000) + ") c",
			"more than 1000 labels"},
		"many labels in a sum": {"sum by (b" + strings.Repeat(",b", 10_000) + ") (c)", "more than 1000 labels"},
		"matchers are no list": {`label_replace({c='d',` + strings.Repeat(`a!="b",`,
			999) + `}, "x", "y", "z", "w")`, ""},
		"quoted":       {`{a="` + strings.Repeat("(", 5000) + `"}`, ""},
		"comment":      {"x # " + strings.Repeat("(", 5000), ""},
		"long":         {strings.Repeat(" ", maxQueryLen) + "x", "the maximum is 1048576"},
		"10,000 terms": {`{a=~"` + strings.Repeat("term|", 10_000) + `x"}`, ""},
		"repetitions":  {`{a=~"(` + strings.Repeat("ab", 500) + `){1000}"}`, "they would need"},
		"repetitions in a function": {`label_replace(x, "a", "$1", "b", "(` + strings.Repeat("ab", 500) + `){1000}")`,
			"they would need"},
		"many repetitions":          {"{" + strings.Repeat(`a!~"x{1000}",`, 10) + "}", "they would need"},
		"escaped repetitions":       {`{a=~"(` + strings.Repeat("ab", 500) + `){1000}"}`, "they would need"},
		"some repetitions":          {`{a=~"[0-9]{1,3}([.][0-9]{1,3}){3}:[0-9]{2,5}",b=~".{1,1000}"}`, ""},
		"not closed, not a query":   {"((((", "parse error"},
		"closed too often":          {"x))))", "parse error"},
		"brackets closed too often": {"x]]]]", "parse error"},
	} {
		_, err := p.ParseExpr(c.query)
		if c.want != "" {
			require.ErrorContains(t, err, c.want, about)
			require.Less(t, len(err.Error()), 500, about)
			continue
		}
		require.NoError(t, err, about)
	}
	_, err := p.ParseMetricSelector(strings.Repeat("(", 100_000))
	require.ErrorIs(t, err, ErrQueryTooComplex)
	_, err = p.ParseMetricSelectors(make([]string, maxSelectors+1))
	require.ErrorIs(t, err, ErrQueryTooComplex)
	_, err = p.ParseMetricSelectors([]string{`{a="` + strings.Repeat("a", maxQueryLen/2) + `"}`,
		`{a="` + strings.Repeat("a", maxQueryLen/2) + `"}`})
	require.ErrorIs(t, err, ErrQueryTooComplex)
	_, err = p.ParseMetricSelectors(slices.Repeat([]string{`{a=~"x{1000}"}`}, 10))
	require.ErrorIs(t, err, ErrQueryTooComplex)
	all, err := p.ParseMetricSelectors([]string{"a", "b"})
	require.NoError(t, err)
	require.Len(t, all, 2)
}

func TestSlowReplacementsAreRefused(t *testing.T) {
	p := NewParser(parser.Options{})
	for _, query := range []string{
		`sum(label_replace(up, "a", "$1", "b", "X"))`,
		`label_replace(label_replace(up, "a", "$1", "b", ("X")), "a", "$1", "b", "(.*)")`,
	} {
		_, err := p.ParseExpr(strings.ReplaceAll(query, "X", strings.Repeat(".*", maxReplaceSteps)))
		require.ErrorIs(t, err, ErrQueryTooComplex)
		require.ErrorContains(t, err, "steps for each character")
		for _, text := range []string{"(.*)-([0-9a-z]{5,10})-(.+)", strings.Repeat("pod-a|", 10_000),
			strings.Repeat(".*", maxReplaceSteps/2)} {
			_, err := p.ParseExpr(strings.ReplaceAll(query, "X", text))
			require.NoError(t, err)
		}
	}
}

// FuzzDepth compares the depth computed from the text with the depth of the parsed expression.
func FuzzDepth(f *testing.F) {
	f.Add("-(a + b * c ^ 2 and on (x) d)[5m:1m] offset 3m @ end()")
	f.Add("sum(sum_over_time(a[1m + 2m * 3][5m:])) or vector(1) unless bool")
	p := NewParser(parser.Options{EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true})
	f.Fuzz(func(t *testing.T, query string) {
		expr, err := p.ParseExpr(query)
		if err != nil {
			return
		}
		require.LessOrEqual(t, depth(expr), 2*maxDepth+3)
	})
}

func depth(n parser.Node) int {
	deepest := 0
	for child := range parser.ChildrenIter(n) {
		deepest = max(deepest, depth(child))
	}
	return deepest + 1
}
