package promql

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/storage/engine"
)

// Queries whose answers are expected to be small don't wait for others' answers to be read, see fairQueue. How large an answer is isn't
// known before it is there: so it is estimated from the expression, and a query whose answer was large nevertheless counts as
// large from then on.

// Numbers of series that are expected of an expression.
const (
	seriesOfSelector = 1000
	seriesOfGroups   = 30
)

// errUnread means that a query's answer was larger than expected, and there is no room for it.
var errUnread = errors.Join(engine.ErrUnavailable, errors.New("promql: answers that clients haven't read take as much memory as they may; ask for less, or again later"))

// Expectation is that the answer to a request is small. Whoever asks with one must be prepared to ask again without it.
type Expectation struct {
	asked   string
	refused atomic.Bool
}

// NewExpectation returns that of a request, of which asked has all that its answer depends on.
func NewExpectation(asked string) *Expectation { return &Expectation{asked: asked} }

// Refused returns true if the answer was refused, because it isn't small and there is no room for it.
func (x *Expectation) Refused() bool { return x.refused.Load() }

type (
	expectationKey struct{}
	smallKey       struct{}
)

// Into returns a context for the request.
func (x *Expectation) Into(ctx context.Context) context.Context {
	return context.WithValue(ctx, expectationKey{}, x)
}

func expectationOf(ctx context.Context) *Expectation {
	x, _ := ctx.Value(expectationKey{}).(*Expectation)
	return x
}

// expect returns a context that isSmall, unless the answer to the same request was large before.
func (g *gate) expect(ctx context.Context, x *Expectation) context.Context {
	if g.large.has(x.asked) {
		return ctx
	}
	return context.WithValue(ctx, smallKey{}, true)
}

func isSmall(ctx context.Context) bool { return ctx.Value(smallKey{}) != nil }

// isStillSmall returns false if the answer of a context that isSmall turned out to be large, and there is no room for it.
func (g *gate) isStillSmall(ctx context.Context, bytes int64) bool {
	if bytes <= roomless {
		return true
	}
	x := expectationOf(ctx)
	g.large.add(x.asked)
	if !g.isFull() {
		return true
	}
	x.refused.Store(true)
	return false
}

// looksSmall returns true if a statement's answer is expected to be smaller than roomless.
func looksSmall(stmt parser.Statement) bool {
	s, ok := stmt.(*parser.EvalStmt)
	if !ok || s.Expr.Type() == parser.ValueTypeMatrix {
		return false
	}
	steps := int64(1)
	if s.Interval > 0 {
		steps += int64(s.End.Sub(s.Start) / s.Interval)
	}
	return expectedSeries(s.Expr)*(2*unreadSeries+steps*unreadPoint) <= roomless
}

// expectedSeries estimates the number of series of an expression's result.
func expectedSeries(expr parser.Expr) int64 {
	switch e := expr.(type) {
	case *parser.VectorSelector, *parser.MatrixSelector:
		return seriesOfSelector
	case *parser.AggregateExpr:
		return expectedGroups(e)
	case *parser.ParenExpr:
		return expectedSeries(e.Expr)
	case *parser.UnaryExpr:
		return expectedSeries(e.Expr)
	case *parser.StepInvariantExpr:
		return expectedSeries(e.Expr)
	case *parser.SubqueryExpr:
		return expectedSeries(e.Expr)
	case *parser.BinaryExpr:
		return max(expectedSeries(e.LHS), expectedSeries(e.RHS))
	case *parser.Call:
		n := int64(1)
		for _, arg := range e.Args {
			if !strings.HasPrefix(e.Func.Name, "absent") {
				n = max(n, expectedSeries(arg))
			}
		}
		return n
	}
	return 1
}

func expectedGroups(e *parser.AggregateExpr) int64 {
	of := expectedSeries(e.Expr)
	switch {
	case e.Op == parser.TOPK || e.Op == parser.BOTTOMK || e.Op == parser.LIMITK:
		if k, ok := e.Param.(*parser.NumberLiteral); ok && len(e.Grouping) == 0 && !e.Without {
			return min(of, max(1, int64(k.Val)))
		}
		return of
	case e.Op == parser.COUNT_VALUES || e.Op == parser.LIMIT_RATIO || e.Without:
		return of
	case len(e.Grouping) > 0:
		return min(of, seriesOfGroups)
	}
	return 1
}

// maxLargeAnswers bounds the queries that are known to have large answers.
const maxLargeAnswers = 4096

// largeAnswers are the queries that look small and have large answers, by hashes of their texts.
type largeAnswers struct {
	mu   sync.Mutex
	seed maphash.Seed
	all  map[uint64]struct{}
}

func (l *largeAnswers) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil || len(l.all) >= maxLargeAnswers {
		l.seed, l.all = maphash.MakeSeed(), map[uint64]struct{}{}
	}
	l.all[maphash.String(l.seed, text)] = struct{}{}
}

func (l *largeAnswers) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		return false
	}
	_, known := l.all[maphash.String(l.seed, text)]
	return known
}
