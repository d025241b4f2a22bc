package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql"
)

func inside(open, inner, closed string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(closed, depth)
}

// shapes are expressions that have a text of a length, at a depth.
var shapes = map[string]func(length, depth int) string{
	"selector in parentheses":  func(n, d int) string { return inside("(", `m{a="`+strings.Repeat("x", n)+`"}`, ")", d) },
	"selector in calls":        func(n, d int) string { return inside("abs(", `m{a="`+strings.Repeat("x", n)+`"}`, ")", d) },
	"selector in signs":        func(n, d int) string { return inside("-", `m{a="`+strings.Repeat("x", n)+`"}`, "", d) },
	"selector in aggregations": func(n, d int) string { return inside("sum(", `m{a="`+strings.Repeat("x", n)+`"}`, ")", d) },
	"quoted text":              func(n, d int) string { return inside("(", `m{a="`+strings.Repeat(`\x01`, n/4)+`"}`, ")", d) },
	"string": func(n, d int) string {
		return inside("(", `label_replace(m, "a", "`+strings.Repeat("x", n)+`", "b", "c")`, ")", d)
	},
	"grouping": func(n, d int) string { return inside("(", "sum by ("+strings.Repeat("x", n)+") (m)", ")", d) },
	"matching": func(n, d int) string { return inside("(", "m * on ("+strings.Repeat("x", n)+") m", ")", d) },
	"numbers":  func(n, d int) string { return inside("(", "sum(m)"+strings.Repeat(" + 1e308", min(n/8, 30)), ")", d) },
	"sums":     func(n, d int) string { return strings.Repeat("a+", d) + strings.Repeat("x", n) },
	"wide": func(n, d int) string {
		return inside("(", "label_join(m"+strings.Repeat(`, "a"`, max(2, min(n/5, 900)))+")", ")", d)
	},
	"subqueries": func(n, d int) string { return inside("rate(", strings.Repeat("x", n), "[5m:1m] offset 1h)", d/3) },
	"durations": func(n, d int) string {
		return "m[" + inside("(", "5m"+strings.Repeat("+1", min(n/2, 30)), ")", d) + "] offset (1m+2m)"
	},
}

// The measured lengths are at least the true ones, and ordinary queries stay below the bound.
func TestLayoutIsMeasured(t *testing.T) {
	p := promql.NewParser(parser.Options{ExperimentalDurationExpr: true})
	for name, shape := range shapes {
		for _, depth := range []int{1, 4, 30} {
			for _, length := range []int{8, 90, 200, 8000} {
				query := shape(length, depth)
				expr, err := p.ParseExpr(query)
				require.NoError(t, err, "%.200s", query)
				l, out, text := measureLayout(expr, 0), len(expr.Pretty(0)), len(expr.String())
				require.GreaterOrEqual(t, l.text, int64(text), "%s of %d at %d", name, length, depth)
				require.GreaterOrEqual(t, l.out, int64(out), "%s of %d at %d", name, length, depth)
				require.Less(t, l.laying, int64(maxLayoutBytes), "%s of %d at %d", name, length, depth)
			}
		}
	}
}

// A layout that would take a minute is refused at once, whatever makes it long.
func TestLayoutIsBounded(t *testing.T) {
	r := newRig(t, nil)
	format := func(query string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodPost, Prefix+"/format_query", strings.NewReader(url.Values{"query": {query}}.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r.do(req)
	}
	for _, name := range []string{
		"selector in parentheses", "selector in calls", "selector in signs", "selector in aggregations", "quoted text", "string", "grouping", "matching",
	} {
		w := format(shapes[name](800_000, 490))
		require.Equal(t, http.StatusBadRequest, w.Code, name)
		kind, message := failure(t, w)
		require.Equal(t, "bad_data", kind, name)
		require.Contains(t, message, "the maximum is 64 MiB", name)
	}
	require.Equal(t, http.StatusOK, format(shapes["selector in signs"](800_000, 2)).Code)
	kind, message := failure(t, format("sum("))
	require.Equal(t, "bad_data", kind)
	require.Contains(t, message, `invalid parameter "query": 1:5: parse error`)
}
