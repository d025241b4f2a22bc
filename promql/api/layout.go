package api

import (
	"fmt"
	"net/http"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/promql"
)

// maxLayoutBytes is the maximum number of bytes that formatting a query over multiple lines copies, which takes a
// second or two. Prometheus' Pretty formats each expression again at every level above it, to find out whether it fits
// on a line, and each time copies it once more per level below. It doesn't check the request's context.
const maxLayoutBytes = 1 << 30

// formatQuery formats a query over multiple lines, as Prometheus does.
func (a *api) formatQuery(w http.ResponseWriter, r *http.Request) {
	expr, err := promql.NewParser(a.Parser).ParseExpr(r.FormValue("query"))
	if err == nil {
		err = checkLayout(expr)
	}
	if err != nil {
		a.fail(w, r, http.StatusBadRequest, "bad_data", fmt.Sprintf("invalid parameter %q: %v", "query", err))
		return
	}
	a.respond(w, r, expr.Pretty(0))
}

// checkLayout returns an error if formatting an expression may copy more than maxLayoutBytes. The estimate is its
// length times the square of its depth.
func checkLayout(expr parser.Expr) error {
	depth := 0
	parser.Inspect(expr, func(_ parser.Node, above []parser.Node) error {
		depth = max(depth, len(above)+1)
		return nil
	})
	if length := len(expr.String()); int64(length)*int64(depth)*int64(depth) > maxLayoutBytes {
		return fmt.Errorf(
			"%w: laying out %d bytes in %d levels would take long; shorten the query or nest it less deeply",
			promql.ErrQueryTooComplex, length, depth,
		)
	}
	return nil
}
