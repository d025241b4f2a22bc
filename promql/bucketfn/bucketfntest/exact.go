package bucketfntest

import (
	"fmt"
	"testing"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// answerable reports whether Evaluate has to answer a window with these buckets, each of which may be mixed with
// others only where the function defines the result.
func answerable(name string, b *rollup.Buckets, a, to int64) bool {
	floats, hists, unknown := 0, 0, false
	for i := range b.End {
		if b.End[i] <= a || b.End[i] > to {
			continue
		}
		switch {
		case b.Flags[i]&rollup.NotSimple != 0:
			return false
		case b.Flags[i]&rollup.HasHistograms != 0:
			hists++
		case b.Count[i] > 0:
			floats++
			unknown = unknown || b.Moment[i] < 0
		}
	}
	switch name {
	case "", "last_over_time", "first_over_time", "count_over_time", "present_over_time", "ts_of_first_over_time", "ts_of_last_over_time":
		return true
	case "stddev_over_time", "stdvar_over_time":
		return !unknown && (floats == 0 || hists == 0)
	case "resets", "changes", "min_over_time", "max_over_time":
		return floats == 0 || hists == 0
	default:
		return hists == 0
	}
}

// RequireExact evaluates every function over b and compares it with Prometheus' on the samples of which b are
// the buckets. It returns how many values it compared.
func RequireExact(t testing.TB, funcs []*bucketfn.Evaluator, s *chunk.Samples, b *rollup.Buckets, w bucketfn.Windows, context string) int {
	p := PointsOf(s)
	compared := 0
	var out bucketfn.Result
	for _, f := range funcs {
		out.Reset()
		f.Evaluate(pruned(b, bucketfn.Columns(f.Name())), w, &out)
		compared += requireAnswers(t, f.Name(), s, p, b, w, &out, context)
	}
	return compared
}

func requireAnswers(t testing.TB, name string, s *chunk.Samples, p Points, b *rollup.Buckets, w bucketfn.Windows,
	out *bucketfn.Result, context string,
) int {
	t.Helper()
	at, left, width, args := 0, 0, w.Span, argsOf(t, name, w.Span)
	for k := range w.Steps {
		from, to := w.Window(k)
		if to-from != width { // After SnapUntil.
			width = to - from
			args = argsOf(t, name, width)
		}
		c := fmt.Sprintf("%s: %q over (%d, %d]", context, name, from, to)
		if left < len(out.Unanswered) && out.Unanswered[left] == int32(k) {
			left++
			require.False(t, answerable(name, b, from, to), "%s: left to the samples", c)
			continue
		}
		window := p.in(from, to)
		largest := Bound(name, window.Largest())
		want, ok := onSamples(name, args, s, window, from, to)
		has := at < len(out.Step) && out.Step[at] == int32(k)
		require.Equal(t, ok, has, "%s: has a value", c)
		if !has {
			continue
		}
		got := promengine.Sample{F: out.Value[at]}
		if len(out.Histogram) > 0 {
			got.H = out.Histogram[at]
		}
		if bucketfn.Lookup(name).Grows && w.Scale != 0 && w.Scale != 1 {
			require.Less(t, w.Scale, 1.0, c)
			scaleSample(&want, w.Scale)
			requireCloseSample(t, want, got, largest, c)
		} else {
			requireSameSample(t, name, want, got, largest, c)
		}
		at++
	}
	require.Len(t, out.Step, at, context)
	require.Len(t, out.Unanswered, left, context)
	return at
}

// pruned returns b with only the columns asked for, so that a test fails if a function looks at another.
func pruned(b *rollup.Buckets, want rollup.Columns) *rollup.Buckets {
	out := &rollup.Buckets{Start: b.Start, End: b.End, Flags: b.Flags}
	if want&rollup.ColumnCount != 0 {
		out.Count = b.Count
	}
	if want&rollup.ColumnFirst != 0 {
		out.First, out.FirstT = b.First, b.FirstT
	}
	if want&rollup.ColumnLast != 0 {
		out.Last, out.LastT = b.Last, b.LastT
	}
	if want&rollup.ColumnMin != 0 {
		out.Min = b.Min
	}
	if want&rollup.ColumnMax != 0 {
		out.Max = b.Max
	}
	if want&rollup.ColumnSum != 0 {
		out.Sum, out.SumLow = b.Sum, b.SumLow
	}
	if want&rollup.ColumnMoment != 0 {
		out.Moment = b.Moment
	}
	if want&rollup.ColumnCorrection != 0 {
		out.Correction = b.Correction
	}
	if want&rollup.ColumnResets != 0 {
		out.Resets = b.Resets
	}
	if want&rollup.ColumnChanges != 0 {
		out.Changes = b.Changes
	}
	for i, h := range b.Histograms {
		if h == nil {
			continue
		}
		kept := &rollup.Histograms{}
		if want&rollup.ColumnFirst != 0 {
			kept.First = h.First
		}
		if want&rollup.ColumnLast != 0 {
			kept.Last = h.Last
		}
		if want&rollup.ColumnCorrection != 0 {
			kept.Correction = h.Correction
		}
		if out.Histograms == nil {
			out.Histograms = make([]*rollup.Histograms, len(b.End))
		}
		out.Histograms[i] = kept
	}
	return out
}

// Evaluators returns those that buckets answer.
func Evaluators() (all []*bucketfn.Evaluator) {
	for _, name := range bucketfn.Names() {
		if b := bucketfn.New(name); b != nil {
			all = append(all, b)
		}
	}
	return all
}
