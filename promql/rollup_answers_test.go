package promql

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rawGoneText is part of the errors that users get if raw samples have expired.
var rawGoneText = storage.PlainText(resolution.ErrRawExpired.Error())

// rollupDuel holds two stores with the same samples. The subject has rollups and a planner. The reference keeps raw
// samples indefinitely, and its queries are answered by Prometheus' evaluator alone.
type rollupDuel struct {
	t                  *testing.T
	store              *rolledStore
	subject, reference *Queryable
	planned, plain     *Engine
	truths             truths
	// starts is true if functions use start timestamps.
	starts bool
	// segments counts fragments by the resolutions that answered them.
	segments map[string]int
	// outcomes counts the comparisons by result.
	outcomes map[string]int
}

func newRollupDuel(t *testing.T, store, reference *rolledStore, truths truths, starts bool) *rollupDuel {
	if !starts {
		truths = truths.withoutStarts()
	}
	o := DefaultOptions()
	o.Parser, o.StartTimestamps = allSyntax, starts
	d := &rollupDuel{
		t: t, store: store, subject: NewQueryable(store.Store), reference: NewQueryable(reference.Store),
		truths: truths,
		starts: starts, planned: NewEngine(o), segments: map[string]int{}, outcomes: map[string]int{},
	}
	o.NoPlanner = true
	d.plain = NewEngine(o)
	t.Cleanup(func() { require.NoError(t, d.planned.Close()); require.NoError(t, d.plain.Close()) })
	return d
}

func (d *rollupDuel) in(mode string) context.Context { return newRollupContext(d.t, mode) }

// newRollupContext returns a context whose queries use a resolution.
func newRollupContext(t *testing.T, mode string) context.Context {
	ctx, err := WithResolution(t.Context(), mode, 0)
	require.NoError(t, err)
	return ctx
}

// fragments returns the fragments of a query, and whether the query is a single fragment.
func (d *rollupDuel) fragments(a asked) ([]candidate, bool) {
	q, err := a.query(d.t.Context(), d.plain, d.reference)
	require.NoError(d.t, err)
	defer q.Close()
	return candidatesOf(q.Statement().(*parser.EvalStmt), d.starts)
}

// difference runs a query on both stores and describes how the answers differ. ok is false if the query is invalid or
// too large.
func (d *rollupDuel) difference(a asked, mode string) (why string, ok bool) {
	want, _, err := a.ask(d.t.Context(), d.plain, d.reference)
	if err != nil {
		return "", false
	}
	got, stats, err := a.ask(d.in(mode), d.planned, d.subject)
	require.NoError(d.t, err)
	if strings.Contains(got.err, meter.ErrQueryTooLarge.Error()) { // Prometheus has no such limit.
		d.outcomes["too large"]++
		return "", false
	}
	for _, p := range stats {
		require.NotContains(d.t, p.Refused, errPanicked.Error(), a)
		for _, s := range p.Segments {
			if p.Refused == "" {
				d.segments[s.String()]++
			}
		}
	}
	switch {
	case want.err != "":
		d.outcomes["error"]++
	case len(want.rows) == 0:
		d.outcomes["empty"]++
	}
	why = d.judge(a, mode, want, got, stats)
	if why != "" && statsOnly.MatchString(a.text) && d.agreesWithBuckets(a, mode, got, stats) {
		d.outcomes["resets of buckets"]++
		return "", true
	}
	// The evaluator may have more than one answer if it iterates over a map. The comparison is undecided if one of them
	// matches.
	for i := 0; why != "" && i < orders; i++ {
		again, _, err := a.ask(d.t.Context(), d.plain, d.reference)
		require.NoError(d.t, err)
		if want.differs(again, 0) != "" {
			d.outcomes["undecided"]++
			return "", true
		}
	}
	return why, true
}

// statsOnly matches functions for which Prometheus reads histograms without their buckets. The iterator for such
// histograms loses the previous histogram whenever the iterator is moved, and then misses resets that only the buckets
// show. So a rate inside such a function may have another count than the rate on its own.
var statsOnly = regexp.MustCompile(`histogram_(count|sum|avg)\(`)

// agreesWithBuckets reports whether the answer equals the answer that the evaluator computes from whole histograms.
func (d *rollupDuel) agreesWithBuckets(a asked, mode string, got answer, stats []FragmentStats) bool {
	want, ok := d.withBuckets(a)
	return ok && d.judge(a, mode, want, got, stats) == ""
}

// withBuckets returns the evaluator's answer from whole histograms. It evaluates each step separately, inside a
// subquery of one step, in which the evaluator always reads buckets.
func (d *rollupDuel) withBuckets(a asked) (out answer, ok bool) {
	if a.end == 0 {
		out, _, err := a.of("last_over_time(("+a.text+")[1ms:1ms])").ask(d.t.Context(), d.plain, d.reference)
		return out, err == nil
	}
	seconds := func(ms int64) string { return fmt.Sprintf("%.3f", float64(ms)/1000) }
	text := strings.NewReplacer("start()", seconds(a.start), "end()", seconds(a.end)).Replace(a.text)
	rows := map[string]promengine.Series{}
	for t := a.start; t <= a.end; t += a.step.Milliseconds() {
		at, ok := d.withBuckets(asked{text: text, start: t})
		if !ok || at.err != "" {
			return answer{}, false
		}
		out.notes = append(out.notes, at.notes...)
		for _, r := range at.rows {
			row := rows[r.Metric.String()]
			row.Metric = r.Metric
			row.Floats, row.Histograms = append(row.Floats, r.Floats...), append(row.Histograms, r.Histograms...)
			rows[r.Metric.String()] = row
		}
	}
	slices.Sort(out.notes)
	out.notes = slices.Compact(out.notes)
	out.rows = slices.SortedFunc(maps.Values(rows), func(a, b promengine.Series) int {
		return labels.Compare(a.Metric, b.Metric)
	})
	return out, true
}

// judge describes the error of an answer, given the reference's answer. It returns "" if the answer is correct.
func (d *rollupDuel) judge(a asked, mode string, want, got answer, stats []FragmentStats) string {
	info := shortfallsIn(got.notes)
	if info > 1 {
		return fmt.Sprintf("%d infos of what is missing: %q", info, got.notes)
	}
	fragments, single := d.fragments(a)
	if single && (len(stats) == 0 || stats[0].Refused == "") {
		return d.judgeFragment(a, mode, fragments[0], want, got, info)
	}
	rawGone := d.store.Retention().PastRetention("", retention.DefaultClass, rollup.Raw) >= rolledFrom
	// If the answer is an error, it has no infos about samples that the evaluator's own reads are missing.
	if inexact(stats) || info > 0 || strings.Contains(got.err, rawGoneText) || rawGone && got.err != "" {
		d.outcomes["composite of the inexact"]++
		return unlikelyError(want.err, got.err)
	}
	d.outcomes["composite"]++
	if rawGone || strings.Contains(a.text, "sum_over_time") || strings.Contains(a.text, "avg_over_time") {
		want = want.withoutHints(got)
	}
	why := want.differsBy(got, nil)
	if why == "" {
		return ""
	}
	if strings.Contains(a.text, "count_values") && slices.ContainsFunc(fragments, mayRound) {
		// The labels of the answer contain values, whose last bits may differ.
		d.outcomes["values as labels"]++
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

// unlikelyError returns a reason if an error can't be caused by windows that are moved, widened or approximated. Such
// windows may change which series exist at a time, and the evaluator reports a wrong argument only if there is a
// series.
func unlikelyError(want, got string) string {
	if got == "" || got == want || strings.Contains(got, rawGoneText) {
		return ""
	}
	for _, of := range []string{"duplicate series", "same labelset", "many-to-one", "many-to-many", "one-to-one",
		"factor. Expected: 0 <"} {
		if strings.Contains(got, of) {
			return ""
		}
	}
	return fmt.Sprintf("error %q, not %q", got, want)
}

// judgeFragment is judge for a query that consists of one fragment.
func (d *rollupDuel) judgeFragment(a asked, mode string, c candidate, want, got answer, info int) string {
	how := resolutionParamsOf(d.in(mode))
	how.noSnap = a.end == 0 || a.end == a.start
	segments, short, err := c.resolve(d.in(mode), d.store.Store, "default", how)
	if err != nil {
		d.outcomes["refused"]++
		if !strings.Contains(got.err, rawGoneText) {
			return fmt.Sprintf("error %q, not %q", got.err, err)
		}
		return ""
	}
	if why := d.beyond(c, want, got); why != "" {
		return why
	}
	exact, approximate := true, false
	for _, l := range segments {
		exact = exact && l.IsExact()
		approximate = approximate || l.Approximate
	}
	switch {
	case !short.IsNone() && info == 0 && got.err == "":
		return "no info of what is missing"
	case short.Hidden: // See TestQueriesReadNoCoarserBucketsThanTheyAllow.
		d.outcomes["hidden"]++
		return ""
	case exact && info == 0 && d.store.Retention().PastRetention("", retention.DefaultClass, rollup.Raw) < rolledFrom:
		d.outcomes["exact"]++
		if !c.keepsName() { // Sums and averages have unknown hints.
			want = want.withoutHints(got)
		}
		return want.differsBy(got, d.truths.boundOf(c))
	case exact && info == 0:
		d.outcomes["exact, raw being gone"]++
		if want, got := sureNotes(want.notes), sureNotes(got.notes); !slices.Equal(want, got) {
			return fmt.Sprintf("annotations %q, not %q", got, want)
		}
	case approximate && c.over != nil:
		d.outcomes["aggregated made"]++
		return ""
	case approximate:
		d.outcomes["made of buckets"]++
	case exact:
		d.outcomes["exact but for left out"]++
	default:
		d.outcomes["moved"]++
	}
	m := movedFragment{d: d, a: a, candidate: c, segments: segments, want: want, memo: map[[3]int64]answer{}}
	return m.differs(got)
}

// mayRound reports whether the last bits of a fragment's values may differ.
func mayRound(c candidate) bool { return !bucketfntest.BitExact[c.function] }

// shortfallsIn counts the infos about missing raw samples.
func shortfallsIn(notes []string) (n int) {
	for _, note := range notes {
		if strings.Contains(note, "raw samples before") || strings.Contains(note, " windows are moved by up to ") {
			n++
		}
	}
	return n
}

// inexact reports whether a fragment's answer may differ from the answer of raw samples.
func inexact(stats []FragmentStats) bool {
	for _, p := range stats {
		for _, s := range p.Segments {
			if s.Edges != resolution.FitAligned.String() || s.Approximate {
				return true
			}
		}
	}
	return false
}

// smallest returns the smallest failing query that it finds among the parts of a failing query.
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

// contest runs queries that ask generates, in a mode, and reports the queries with incorrect answers.
func (d *rollupDuel) contest(about string, ask func() asked, mode string, queries int) {
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
			d.t.Errorf("%s, %s: %s\n%s\nsmaller: %s\n%s", about, mode, q, why, small, smallWhy)
		}
	}
}
