package api

import (
	"fmt"
	"net/http"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/promql"
)

// maxLayoutBytes bounds the text that laying out a query writes. Prometheus writes each expression again at every level above it to find out
// whether it fits on a line, and copies it at every level of that: a text of 800 KB in 490 parentheses takes 100 GB of copies, during
// which the request's context isn't checked.
const maxLayoutBytes = 64 << 20

// formatQuery lays out a query over lines.
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

// checkLayout returns an error if laying out an expression would take long.
func checkLayout(expr parser.Expr) error {
	if l := measureLayout(expr, 0); l.laying > maxLayoutBytes {
		return fmt.Errorf("%w: laying it out would write %d MiB, because expressions are long and deeply nested; the maximum is %d MiB",
			promql.ErrQueryTooComplex, l.laying>>20, maxLayoutBytes>>20)
	}
	return nil
}

// layout is the cost of laying out an expression, bytes.
type layout struct {
	// text is the length of the expression on one line, and out that of its lines.
	text, out int64
	// writing counts the bytes that making the text writes, and laying those of making the lines, each with the copies of all levels below.
	writing, laying int64
}

const (
	// lineLength is the length from which on Prometheus splits an expression.
	lineLength = 100
	// writeOverhead is about the cost of one expression besides its text: Prometheus begins most with a buffer of this size.
	writeOverhead = 1024
	// wordsLength bounds an expression's own operator, parentheses and line breaks.
	wordsLength = 16
)

// measureLayout visits each expression once. level is how deep it is indented.
func measureLayout(expr parser.Expr, level int) layout {
	own, children := ownLength(expr), layoutChildren(expr)
	l := layout{text: own, writing: writeOverhead, out: own, laying: writeOverhead}
	for _, child := range children {
		c := measureLayout(child, level+1)
		l.text += c.text
		l.writing += c.writing
		l.out += c.out
		l.laying += c.laying
	}
	l.writing += l.text
	indents := int64(2 * 2 * level)
	if l.text <= lineLength || len(children) == 0 {
		l.out, l.laying = indents+l.text, l.writing
	} else {
		l.out += indents
	}
	l.laying += l.writing + l.out // It is written once to find out how long it is.
	return l
}

// layoutChildren returns the expressions below one whose texts are parts of its text.
func layoutChildren(expr parser.Expr) (children []parser.Expr) {
	add := func(all ...parser.Expr) {
		for _, e := range all {
			if d, ok := e.(*parser.DurationExpr); e != nil && (!ok || d != nil) {
				children = append(children, e)
			}
		}
	}
	switch e := expr.(type) {
	case *parser.AggregateExpr:
		add(e.Param, e.Expr)
	case *parser.BinaryExpr:
		add(e.LHS, e.RHS)
	case *parser.Call:
		add(e.Args...)
	case *parser.DurationExpr:
		add(e.LHS, e.RHS)
	case *parser.MatrixSelector:
		add(e.VectorSelector, e.RangeExpr)
	case *parser.ParenExpr:
		add(e.Expr)
	case *parser.SubqueryExpr:
		add(e.Expr, e.RangeExpr, e.StepExpr, e.OriginalOffsetExpr)
	case *parser.UnaryExpr:
		add(e.Expr)
	case *parser.VectorSelector:
		add(e.OriginalOffsetExpr)
	}
	return children
}

// ownLength is about the length of an expression's text without those of layoutChildren.
func ownLength(expr parser.Expr) int64 {
	switch e := expr.(type) {
	case *parser.AggregateExpr:
		return int64(len(e.ShortString())) + wordsLength
	case *parser.BinaryExpr:
		return int64(len(e.ShortString())) + wordsLength
	case *parser.Call:
		return int64(len(e.Func.Name)+2*len(e.Args)) + wordsLength
	case *parser.MatrixSelector, *parser.SubqueryExpr: // Durations and a timestamp.
		return 8 * wordsLength
	case *parser.NumberLiteral:
		return int64(len(e.String()))
	case *parser.StringLiteral:
		return int64(len(e.String()))
	case *parser.VectorSelector:
		alone := *e
		alone.OriginalOffsetExpr = nil
		return int64(len(alone.String())) + wordsLength
	}
	return wordsLength
}
