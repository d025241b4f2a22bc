package api

import (
	"fmt"
	"net/http"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/promql"
)

// maxLayoutBytes is the maximum number of bytes that formatting a query over multiple lines may copy. Copying that many
// bytes takes a second or two, during which Prometheus' Pretty doesn't check the request's context. To find out whether
// an expression fits on a line, Pretty formats it again at every level above it, and copies it once per level below.
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

// checkLayout returns an error if formatting an expression may copy more than maxLayoutBytes. The estimate is the
// length of the expression times the square of its depth.
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
