package promql

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
)

// rollupDuel are two stores of the same samples: the subject has rollups and a planner; the reference keeps raw samples
// for ever, and Prometheus' evaluator answers from it alone.
type rollupDuel struct {
	t                  *testing.T
	store              *rolledStore
	subject, reference *Queryable
	planned, plain     *Engine
	truths             truths
	// segments counts from what parts were answered.
	segments map[string]int
	// outcomes counts how queries ended.
	outcomes map[string]int
}

func newRollupDuel(t *testing.T, store, reference *rolledStore, truths truths) *rollupDuel {
	o := DefaultOptions()
	o.Parser = allSyntax
	d := &rollupDuel{
		t: t, store: store, subject: NewQueryable(store.Store), reference: NewQueryable(reference.Store), truths: truths,
		planned: NewEngine(o), segments: map[string]int{}, outcomes: map[string]int{},
	}
	o.NoPlanner = true
	d.plain = NewEngine(o)
	t.Cleanup(func() { require.NoError(t, d.planned.Close()); require.NoError(t, d.plain.Close()) })
	return d
}

func (d *rollupDuel) in(mode string) context.Context {
	ctx, err := WithResolution(d.t.Context(), mode, 0)
	require.NoError(d.t, err)
	return ctx
}

// parts returns the parts of a query, and whether it is nothing but one.
func (d *rollupDuel) parts(a asked) ([]candidate, bool) {
	q, err := a.query(d.t.Context(), d.plain, d.reference)
	require.NoError(d.t, err)
	defer q.Close()
	return candidatesOf(q.Statement().(*parser.EvalStmt))
}

// difference asks both and says how the answers differ; ok is false if the query isn't one.
func (d *rollupDuel) difference(a asked, mode string) (why string, ok bool) {
	want, _, err := a.ask(d.t.Context(), d.plain, d.reference)
	if err != nil {
		return "", false
	}
	got, stats, err := a.ask(d.in(mode), d.planned, d.subject)
	require.NoError(d.t, err)
	for _, p := range stats {
		for _, s := range p.Segments {
			if p.Refused == "" {
				d.segments[s.String()]++
			}
		}
	}
	why = d.judge(a, mode, want, got)
	// The evaluator's own answer may be one of several, where it walks through a map: then nothing is known.
	for i := 0; why != "" && i < 10; i++ {
		again, _, err := a.ask(d.t.Context(), d.plain, d.reference)
		require.NoError(d.t, err)
		if want.differs(again, 0) != "" {
			d.outcomes["undecided"]++
			return "", true
		}
	}
	return why, true
}

func (d *rollupDuel) judge(a asked, mode string, want, got answer) string {
	parts, single := d.parts(a)
	if single {
		d.outcomes["one part"]++
		return want.differsBy(got, d.truths.boundOf(parts[0]))
	}
	d.outcomes["composite"]++
	why := want.differsBy(got, nil)
	if why == "" {
		return ""
	}
	d.outcomes["other bits"]++
	spread, ok := d.steady(a, want)
	if !ok {
		d.outcomes["unsteady"]++
		return ""
	}
	return want.differsBy(got, boundOfSpread(spread))
}

// smallest returns a query inside a failing one, as small as possible, that fails, too.
func (d *rollupDuel) smallest(a asked, mode, why string) (asked, string) {
	if a.end != 0 {
		for t := a.start; t <= a.end; t += a.step.Milliseconds() {
			b := asked{text: a.text, start: t}
			if why, ok := d.difference(b, mode); ok && why != "" {
				return d.smallest(b, mode, why)
			}
		}
	}
	expr, err := parser.NewParser(allSyntax).ParseExpr(a.text)
	require.NoError(d.t, err)
	for child := range parser.ChildrenIter(expr) {
		e, ok := child.(parser.Expr)
		if !ok || e.Type() == parser.ValueTypeString {
			continue
		}
		b := a
		b.text = e.String()
		if why, ok := d.difference(b, mode); ok && why != "" {
			return d.smallest(b, mode, why)
		}
	}
	return a, why
}

// contest asks so many queries of a kind in a mode, and reports those whose answers aren't as they have to be.
func (d *rollupDuel) contest(ask func() asked, mode string, queries int) {
	count, failed := 0, 0
	for count < queries && failed < 6 {
		q := ask()
		why, ok := d.difference(q, mode)
		if !ok {
			continue
		}
		if count++; why != "" {
			failed++
			small, smallWhy := d.smallest(q, mode, why)
			d.t.Errorf("%s: %s\n%s\nsmaller: %s\n%s", mode, q, why, small, smallWhy)
		}
	}
	d.t.Logf("%s: %d queries, %v, %v", mode, count, d.outcomes, d.segments)
}

func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SEED=%d", seed)
	return seed
}

func TestRollupsAnswerAsRawSamplesDo(t *testing.T) {
	seed := seedOf(t)
	all := (&roller{r: rand.New(rand.NewPCG(seed, 1))}).all()
	truths, reference := truthsOf(all), unrolled(t, all)
	store := rolled(t, memory.New(), all, 5*24*time.Hour, 20*24*time.Hour)
	a := &rollupAsker{r: rand.New(rand.NewPCG(seed, 2)), called: map[string]int{}}
	newRollupDuel(t, store, reference, truths).contest(func() asked { return a.at(a.simple()) }, "exact", 1000)
	newRollupDuel(t, store, reference, truths).contest(func() asked { return a.at(a.vector(1 + a.r.IntN(3))) }, "exact", 700)
}
