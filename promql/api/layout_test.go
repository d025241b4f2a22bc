package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLayoutIsBounded checks that formatting that would take a minute is rejected immediately, with all kinds of
// expressions that take so long.
func TestLayoutIsBounded(t *testing.T) {
	r := newRig(t, nil)
	format := func(query string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodPost, Prefix+"/format_query",
			strings.NewReader(url.Values{"query": {query}}.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r.do(req)
	}
	nested := func(open, inner, closed string, depth int) string {
		return strings.Repeat(open, depth) + inner + strings.Repeat(closed, depth)
	}
	long := strings.Repeat("x", 800_000)
	selector := `m{a="` + long + `"}`
	for name, query := range map[string]string{
		"selector in parentheses":  nested("(", selector, ")", 490),
		"selector in calls":        nested("abs(", selector, ")", 490),
		"selector in signs":        nested("-", selector, "", 490),
		"selector in aggregations": nested("sum(", selector, ")", 490),
		"quoted text":              nested("(", `m{a="`+strings.Repeat(`\x01`, 200_000)+`"}`, ")", 490),
		"string":                   nested("(", `label_replace(m, "a", "`+long+`", "b", "c")`, ")", 490),
		"grouping":                 nested("(", "sum by ("+long+") (m)", ")", 490),
		"matching":                 nested("(", "m * on ("+long+") m", ")", 490),
		"sums":                     strings.Repeat("a_longer_metric_name+", 450) + "a",
	} {
		w := format(query)
		require.Equal(t, http.StatusBadRequest, w.Code, name)
		kind, message := failure(t, w)
		require.Equal(t, "bad_data", kind, name)
		require.Contains(t, message, "shorten the query or nest it less deeply", name)
	}
	for _, query := range []string{nested("-", selector, "", 2), strings.Repeat("a+", 100) + "a",
		nested("sum(rate(", "m", "[5m:]))", 40)} {
		require.Equal(t, http.StatusOK, format(query).Code, "%.100s", query)
	}
	kind, message := failure(t, format("sum("))
	require.Equal(t, "bad_data", kind)
	require.Contains(t, message, `invalid parameter "query": 1:5: parse error`)
}
