package promql

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// TestLookbackOfAQuery checks that the ranges of nested subqueries are added, and that the widest of all other ranges
// counts.
func TestLookbackOfAQuery(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1":                                 0,
		"x offset 1d":                       0,
		"rate(x[5m])":                       5 * time.Minute,
		"x[5m]":                             5 * time.Minute,
		"rate(x[5m]) + rate(y[7m])":         7 * time.Minute,
		"max_over_time(rate(x[5m])[1h:1m])": 65 * time.Minute,
		"sum(max_over_time((rate(x[5m]) + rate(y[7m]))[1h:1m])) + x":        67 * time.Minute,
		"rate(x[2h]) - max_over_time(max_over_time(rate(x[1m])[2m:])[3m:])": 2 * time.Hour,
	} {
		expr, err := NewParser(allSyntax).ParseExpr(text)
		require.NoError(t, err)
		start := time.Unix(1000, 0)
		require.Equal(
			t, want+time.Hour, lookbackOf(&parser.EvalStmt{Expr: expr, Start: start, End: start.Add(time.Hour)}), text,
		)
	}
}
