package promql

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage/chunk"
)

// tolerance is the max difference from the answer of raw samples, relative to the largest absolute value that enters
// the computation.
const tolerance = 1e-12

// boundFunc returns the largest absolute value that enters the computation of a series' value at a time.
type boundFunc func(metric labels.Labels, t int64) float64

// differsBy describes how got differs from a by more than the tolerance, or returns "". If bound is nil, both must be
// the same to the last bit.
func (a answer) differsBy(got answer, bound boundFunc) string {
	if a.err != got.err {
		return fmt.Sprintf("error %q, not %q", got.err, a.err)
	}
	if want, got := sureNotes(a.notes), sureNotes(got.notes); !slices.Equal(want, got) {
		return fmt.Sprintf("annotations %q, not %q", got, want)
	}
	return differentRows(a.rows, got.rows, bound)
}

// sureNotes returns the notes that don't depend on the order of histograms in a bucket. If a bucket contains
// exponential histograms and histograms with custom bounds, the note that a histogram isn't a counter depends on the
// order.
func sureNotes(notes []string) []string {
	mixed := slices.ContainsFunc(notes, func(note string) bool {
		return strings.Contains(note, "exponential and custom buckets")
	})
	return slices.DeleteFunc(slices.Clone(notes), func(note string) bool {
		return mixed && strings.Contains(note, "is not a counter")
	})
}

// withoutHints returns a copy of the answer, in which the counter reset hints that are unknown in got are cleared.
// After raw samples have expired, hints are unknown, and conflicts between them aren't detected.
func (a answer) withoutHints(got answer) answer {
	has := valuesOf(got.rows)
	out := answer{err: a.err}
	for _, note := range a.notes {
		if slices.Contains(got.notes, note) || !strings.Contains(note, "conflicting counter resets") {
			out.notes = append(out.notes, note)
		}
	}
	for _, s := range a.rows {
		s.Histograms = slices.Clone(s.Histograms)
		for i, p := range s.Histograms {
			if v := has[point{s.Metric.Hash(), p.T}]; v.h != nil {
				s.Histograms[i].H = withHintOf(p.H, v.h)
			}
		}
		out.rows = append(out.rows, s)
	}
	return out
}

// withHintOf returns h. If the counter reset hint of other is unknown, the hint of the result is unknown as well.
func withHintOf(h, other *histogram.FloatHistogram) *histogram.FloatHistogram {
	if other.CounterResetHint != histogram.UnknownCounterReset {
		return h
	}
	// Copy would drop the zero bucket's count of histograms with custom bounds, which is NaN if the histogram was
	// multiplied by NaN.
	c := *h
	c.CounterResetHint = histogram.UnknownCounterReset
	return &c
}

func differentRows(want, got promengine.Matrix, bound boundFunc) string {
	for i, x := range want {
		if i >= len(got) || !labels.Equal(x.Metric, got[i].Metric) {
			return fmt.Sprintf("no series %s", x.Metric)
		}
		if d := differentSeries(x, got[i], bound); d != "" {
			return fmt.Sprintf("%s has %s", x.Metric, d)
		}
	}
	if len(got) > len(want) {
		return fmt.Sprintf("there is a series %s", got[len(want)].Metric)
	}
	return ""
}

func differentSeries(want, got promengine.Series, bound boundFunc) string {
	for i, p := range want.Floats {
		if i >= len(got.Floats) || got.Floats[i].T != p.T {
			return fmt.Sprintf("no %v", p)
		}
		if q := got.Floats[i]; !near(p.F, q.F, 0) && (bound == nil || !within(p.F, q.F, bound(want.Metric, p.T))) {
			return fmt.Sprintf("%v, not %v", q, p)
		}
	}
	for i, p := range want.Histograms {
		if i >= len(got.Histograms) || got.Histograms[i].T != p.T {
			return fmt.Sprintf("no %v", p)
		}
		if q := got.Histograms[i]; !withinHistogram(p.H, q.H, func() float64 {
			if bound == nil { // All bits must be equal.
				return 0
			}
			return bound(want.Metric, p.T)
		}) {
			return fmt.Sprintf("%v (%v), not %v (%v)", q, q.H.CounterResetHint, p, p.H.CounterResetHint)
		}
	}
	if n := len(want.Floats); len(got.Floats) > n {
		return fmt.Sprintf("%v more", got.Floats[n])
	}
	if n := len(want.Histograms); len(got.Histograms) > n {
		return fmt.Sprintf("%v more", got.Histograms[n])
	}
	return ""
}

// within reports whether two values differ by at most the tolerance of the larger one of want and largest, as far as
// these are finite.
func within(want, got, largest float64) bool {
	if math.IsInf(largest, 1) {
		largest = 0
	}
	return want == got || math.IsNaN(want) && math.IsNaN(got) ||
		!math.IsInf(want, 0) && math.Abs(want-got) <= tolerance*max(largest, math.Abs(want))
}

// withinHistogram compares two histograms bucket by bucket. Their spans may have different layouts.
func withinHistogram(want, got *histogram.FloatHistogram, bound func() float64) bool {
	if nearHistograms(want, got, 0) {
		return true
	}
	if want.CounterResetHint != got.CounterResetHint || want.Schema != got.Schema ||
		want.ZeroThreshold != got.ZeroThreshold ||
		!slices.Equal(want.CustomValues, got.CustomValues) {
		return false
	}
	largest := bound()
	if !within(want.Count, got.Count, largest) || !within(want.Sum, got.Sum, largest) ||
		!within(want.ZeroCount, got.ZeroCount, largest) {
		return false
	}
	a, b := bucketfntest.BucketCounts(want), bucketfntest.BucketCounts(got)
	for at := range a {
		if !within(a[at], b[at], largest) {
			return false
		}
	}
	for at := range b {
		if !within(a[at], b[at], largest) {
			return false
		}
	}
	return true
}

// truths are the series that were sent, with their samples, from which the expected answers are computed.
type truths []truth

type truth struct {
	labels labels.Labels
	bucketfntest.Points
	all *chunk.Samples
	// strange is true if sums of the samples overflow or depend on the order of addition.
	strange bool
	// mayHint is true if the series has histograms. Their hints depend on earlier samples.
	mayHint bool
}

// strangeMetrics are the metrics whose sums buckets may leave to samples.
var strangeMetrics = []string{"huge", "zeros", "wild"}

func truthsOf(all []*rolledSeries) (out truths) {
	for _, s := range all {
		p := samplePointsOf(&s.truth)
		out = append(out, truth{s.labels, p, &s.truth, slices.Contains(strangeMetrics, s.labels.Get(labels.MetricName)),
			len(p.Histograms) > 0})
	}
	return out
}

// withoutStarts returns the samples without their start timestamps, as a store returns them to reads that don't need
// start timestamps.
func (ts truths) withoutStarts() (out truths) {
	for _, s := range ts {
		hidden := &chunk.Samples{}
		hidden.AppendAll(s.all)
		hidden.ST = nil
		for i := range hidden.H {
			hidden.H[i].ST = 0
		}
		s.all = hidden
		out = append(out, s)
	}
	return out
}

// bound returns the largest absolute value that enters the computation of the fragment's series with these labels at a
// step.
func (ts truths) bound(c candidate, metric labels.Labels, step int) float64 {
	from, to := c.window(step)
	return ts.boundIn(c, metric, step, from, to)
}

// boundIn is bound for a window that was moved to (from, to].
func (ts truths) boundIn(c candidate, metric labels.Labels, step int, from, to int64) float64 {
	at := c.eval.timeAt(step)
	ahead := float64(max(at-from, to-at)) / 1000
	if c.function == "predict_linear" {
		ahead += math.Abs(c.scalars[0][0].F)
	}
	most := 0.0
	for _, s := range ts {
		if s.feeds(c, metric) {
			most = max(most, s.in(from, to).MaxMagnitude(c.function, ahead))
		}
	}
	return most
}

// boundOfAll returns the largest of the bounds of all steps.
func (ts truths) boundOfAll(c candidate, metric labels.Labels) float64 {
	most := 0.0
	for step := range c.eval.n {
		most = max(most, ts.bound(c, metric, step))
	}
	return most
}

// selected reports whether the fragment selects the series.
func (s truth) selected(c candidate) bool {
	for _, m := range c.matchers {
		if !m.Matches(s.labels.Get(m.Name)) {
			return false
		}
	}
	return true
}

// feeds reports whether the series contributes to the fragment's series with these labels.
func (s truth) feeds(c candidate, metric labels.Labels) bool {
	if !s.selected(c) {
		return false
	}
	if c.over == nil {
		return labels.Equal(c.metric(s.labels), metric)
	}
	in := true
	metric.Range(func(l labels.Label) { in = in && s.labels.Get(l.Name) == l.Value })
	return in
}

// in returns the points in (from, to].
func (s truth) in(from, to int64) bucketfntest.Points {
	i, _ := slices.BinarySearchFunc(s.Floats, from+1, func(p promengine.FPoint, t int64) int { return int(p.T - t) })
	j, _ := slices.BinarySearchFunc(s.Floats, to+1, func(p promengine.FPoint, t int64) int { return int(p.T - t) })
	k, _ := slices.BinarySearchFunc(s.Histograms, from+1, func(p promengine.HPoint, t int64) int {
		return int(p.T - t)
	})
	l, _ := slices.BinarySearchFunc(s.Histograms, to+1, func(p promengine.HPoint, t int64) int { return int(p.T - t) })
	return bucketfntest.Points{Floats: s.Floats[i:j], Histograms: s.Histograms[k:l]}
}

// boundOf returns the bound of a query that consists of one fragment.
func (ts truths) boundOf(c candidate) boundFunc {
	if c.over == nil && bucketfntest.BitExact[c.function] {
		return func(labels.Labels, int64) float64 { return 0 }
	}
	return func(metric labels.Labels, t int64) float64 {
		return ts.bound(c, metric, c.stepAt(t))
	}
}

// stepAt returns the step with the given time.
func (c candidate) stepAt(t int64) int {
	if c.eval.n == 1 {
		return 0
	}
	return int((t - c.eval.first) / c.eval.step)
}

// candidatesOf returns the fragments of a query, and whether the query is a single fragment.
func candidatesOf(stmt *parser.EvalStmt, starts bool) (all []candidate, single bool) {
	all = findFragments(stmt, false, starts)
	if len(all) != 1 {
		return all, false
	}
	at := &stmt.Expr
	for {
		switch e := (*at).(type) {
		case *parser.StepInvariantExpr:
			at = &e.Expr
			continue
		case *parser.ParenExpr:
			at = &e.Expr
			continue
		}
		return all, at == all[0].at
	}
}
