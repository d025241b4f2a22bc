package bucketfntest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// mustAnswer reports whether Evaluate must answer a window from these buckets, instead of leaving it to samples.
func mustAnswer(name string, b *rollup.Buckets, window Points, a, to int64) bool {
	columns, large := bucketfn.Columns(name), magnitudesOf(window)
	switch {
	case columns&(rollup.ColumnMoment|rollup.ColumnLine) != 0 && large.squares:
		return false
	case !large.any || columns&(rollup.ColumnSum|rollup.ColumnCorrection) == 0:
	case large.positive && large.negative, name != "sum_over_time" && large.overflows:
		return false
	}
	if columns&(rollup.ColumnSum|rollup.ColumnCorrection) != 0 && mayDependOnOrder(window) {
		return false
	}
	for i := range b.End {
		if b.End[i] > a && b.End[i] <= to && b.Flags[i]&rollup.NotSimple != 0 {
			return false
		}
		ofMoments := name == "stddev_over_time" || name == "stdvar_over_time"
		if ofMoments && b.End[i] > a && b.End[i] <= to && b.Count[i] > 0 && b.Moment[i] < 0 {
			return false
		}
		ofLines := name == "deriv" || name == "predict_linear"
		if ofLines && b.End[i] > a && b.End[i] <= to && b.Count[i] > 0 && b.TimeSquares[i] < 0 {
			return false
		}
	}
	return true
}

// magnitudes describes the sizes of samples.
type magnitudes struct {
	any, positive, negative bool // positive and negative include infinities
	overflows               bool // a sum of values
	squares                 bool // a square
}

func magnitudesOf(p Points) (l magnitudes) {
	const most = 0x1p932
	sum := 0.0
	for _, f := range p.Floats {
		l.any = l.any || math.Abs(f.F) > most && !math.IsInf(f.F, 0)
		l.positive, l.negative = l.positive || f.F > most, l.negative || f.F < -most
		l.squares = l.squares || math.Abs(f.F) > 1e150 && !math.IsInf(f.F, 0)
		if f.F == f.F {
			sum += math.Abs(f.F)
		}
	}
	l.overflows = math.IsInf(sum, 0)
	return l
}

// RequireExact evaluates every function over b, and compares it with Prometheus' function over the samples from which b
// was made. It returns the number of compared values.
func RequireExact(t testing.TB, funcs []*bucketfn.Evaluator, s *chunk.Samples, b *rollup.Buckets, w bucketfn.Windows,
	context string) int {
	p := pointsOf(s)
	compared := 0
	var out bucketfn.Result
	for _, f := range funcs {
		out.Reset()
		f.SetPrediction(bucketfn.Prediction{First: w.First, Step: w.Step, Seconds: predictionSeconds})
		columns := bucketfn.Columns(f.Name())
		if f.UsesStarts {
			columns |= rollup.ColumnStarts
		}
		f.Evaluate(pruneColumns(b, columns), w, &out)
		compared += requireAnswers(t, f, s, p, b, w, &out, context)
	}
	return compared
}

func requireAnswers(t testing.TB, f *bucketfn.Evaluator, s *chunk.Samples, p Points, b *rollup.Buckets,
	w bucketfn.Windows,
	out *bucketfn.Result, context string,
) int {
	t.Helper()
	name := f.Name()
	at, left, overlaps, width, args := 0, 0, 0, w.Span, argsOf(t, name, w.Span)
	var notes bucketfn.Note
	for k := range w.Steps {
		from, to := w.Window(k)
		if to-from != width { // The window ends after SnapUntil.
			width = to - from
			args = argsOf(t, name, width)
		}
		c := fmt.Sprintf("%s: %q over (%d, %d]", context, name, from, to)
		if left < len(out.Unanswered) && out.Unanswered[left] == int32(k) {
			left++
			require.False(t, mustAnswer(name, b, p.between(from, to), from, to), "%s: left to the samples", c)
			continue
		}
		window := p.between(from, to)
		largest := window.MaxMagnitude(name, predictionSeconds+float64(w.Span+w.Snap)/1000)
		asked := to
		if name == "predict_linear" {
			asked = w.First + int64(k)*w.Step
		}
		want, ok, remarks := referenceValue(name, args, s, window, f.UsesStarts, from, to, asked)
		notes |= notesOf(t, remarks)
		for _, err := range remarks {
			if errors.Is(err, annotations.StartTimeOverlapWarning) {
				overlaps++
			}
		}
		has := at < len(out.Step) && out.Step[at] == int32(k)
		require.Equal(t, ok, has, "%s: has a value", c)
		if !has {
			continue
		}
		got := promengine.Sample{F: out.Value[at]}
		if len(out.Histogram) > 0 {
			got.H = out.Histogram[at]
		}
		if bucketfn.LookupFunction(name).Grows && w.Scale != 0 && w.Scale != 1 {
			require.Less(t, w.Scale, 1.0, c)
			scaleSample(&want, w.Scale)
			if math.IsInf(want.F, 0) && !math.IsInf(got.F, 0) { // Scaled first, the value doesn't overflow.
				require.Equal(t, want.F > 0, got.F > 0, c)
			} else {
				requireCloseSample(t, want, got, largest, c)
			}
		} else {
			requireSameSample(t, name, want, got, largest, c)
		}
		at++
	}
	// If a bucket has two kinds of histograms, their order is unknown. Prometheus notes that histograms are gauges only
	// for one of the two orders.
	unsure := bucketfn.Note(0)
	if notes&bucketfn.NoteMixedKinds != 0 {
		unsure = bucketfn.NoteNotCounter
	}
	require.Equal(t, notes&^unsure, out.Notes&^unsure, "%s: %q: notes", context, name)
	require.Zero(t, out.Notes&^(notes|bucketfn.NoteNotCounter), "%s: %q: notes", context, name)
	require.Equal(t, overlaps, out.Overlaps, "%s: %q: overlapping starts", context, name)
	require.Len(t, out.Step, at, context)
	require.Len(t, out.Unanswered, left, context)
	return at
}

// notesOf returns the notes that correspond to Prometheus' annotations.
func notesOf(t testing.TB, remarks annotations.Annotations) (notes bucketfn.Note) {
	for text, err := range remarks {
		switch {
		case errors.Is(err, annotations.MixedFloatsHistogramsWarning):
			notes |= bucketfn.NoteFloatsAndHistograms
		case errors.Is(err, annotations.MixedExponentialCustomHistogramsWarning):
			notes |= bucketfn.NoteMixedKinds
		case errors.Is(err, annotations.NativeHistogramNotCounterWarning):
			notes |= bucketfn.NoteNotCounter
		case errors.Is(err, annotations.NativeHistogramNotGaugeWarning):
			notes |= bucketfn.NoteNotGauge
		case errors.Is(err, annotations.HistogramIgnoredInMixedRangeInfo):
			notes |= bucketfn.NoteHistogramsIgnored
		case errors.Is(err, annotations.PossibleNonCounterInfo):
		case errors.Is(err, annotations.StartTimeOverlapWarning):
		case strings.Contains(text, "during addition"):
			notes |= bucketfn.NoteBoundsReconciledAdd
		case strings.Contains(text, "during subtraction"):
			notes |= bucketfn.NoteBoundsReconciledSub
		case strings.Contains(text, "during aggregation"):
			notes |= bucketfn.NoteBoundsReconciledSum
		default:
			require.Fail(t, "an unknown annotation", text)
		}
	}
	return notes
}

// pruneColumns returns b with only the columns in want, so that a test fails if a function reads another column.
func pruneColumns(b *rollup.Buckets, want rollup.Columns) *rollup.Buckets {
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
	if want&rollup.ColumnLine != 0 {
		out.Comoment, out.TimeSum, out.TimeSquares = b.Comoment, b.TimeSum, b.TimeSquares
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
	if want&rollup.ColumnStarts != 0 {
		out.FirstST, out.LastST, out.StartCorrection, out.StartResets = b.FirstST, b.LastST, b.StartCorrection,
			b.StartResets
	}
	for i, h := range b.Histograms {
		if h == nil {
			continue
		}
		kept := &rollup.Histograms{
			Count: h.Count, Coarser: h.Coarser, FirstReset: h.FirstReset, FirstStartReset: h.FirstStartReset,
			MixedKinds: h.MixedKinds, HasGauges: h.HasGauges, SumDropped: h.SumDropped, Second: h.Second,
			Reconciled: h.Reconciled, Layouts: h.Layouts,
		}
		if want&rollup.ColumnSum != 0 {
			kept.Sum = h.Sum
		}
		if want&rollup.ColumnFirst != 0 {
			kept.First = h.First
		}
		if want&rollup.ColumnLast != 0 {
			kept.Last = h.Last
		}
		if want&rollup.ColumnCorrection != 0 {
			kept.Correction = h.Correction
			if want&rollup.ColumnStarts != 0 {
				kept.StartCorrection = h.StartCorrection
			}
		}
		if out.Histograms == nil {
			out.Histograms = make([]*rollup.Histograms, len(b.End))
		}
		out.Histograms[i] = kept
	}
	return out
}

// Evaluators returns the evaluators of all functions that buckets answer. Functions that use start timestamps have one
// evaluator with start timestamps and one without.
func Evaluators() (all []*bucketfn.Evaluator) {
	for _, name := range bucketfn.Names() {
		if b := bucketfn.New(name); b != nil {
			all = append(all, b)
		}
		if name == "rate" || name == "increase" || name == "resets" {
			b := bucketfn.New(name)
			b.UsesStarts = true
			all = append(all, b)
		}
	}
	return all
}
