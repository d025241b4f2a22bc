package bucketfntest

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Points are the samples of one series in the form of Prometheus' functions, without stale markers.
type Points struct {
	Floats     []promengine.FPoint
	Histograms []promengine.HPoint
	// Starts are the start timestamps of Floats and Histograms.
	Starts promengine.StartTimestamps
}

// pointsOf returns the points of samples. It clears all counter reset hints except for gauges, so that Prometheus'
// functions detect resets by comparing buckets, as they do for samples from Prometheus' storage.
func pointsOf(s *chunk.Samples) Points {
	var p Points
	for i, t := range s.T {
		if v := s.V[i]; !value.IsStaleNaN(v) {
			p.Floats = append(p.Floats, promengine.FPoint{T: t, F: v})
			start := int64(0)
			if len(s.ST) > 0 {
				start = s.ST[i]
			}
			p.Starts.Floats = append(p.Starts.Floats, start)
		}
	}
	for i := range s.H {
		h := toFloat(&s.H[i]).Copy()
		if value.IsStaleNaN(h.Sum) {
			continue
		}
		if h.CounterResetHint != histogram.GaugeType {
			h.CounterResetHint = histogram.UnknownCounterReset
		}
		p.Histograms = append(p.Histograms, promengine.HPoint{T: s.H[i].T, H: h})
		p.Starts.Histograms = append(p.Starts.Histograms, s.H[i].ST)
	}
	return p
}

func toFloat(h *chunk.Histogram) *histogram.FloatHistogram {
	if h.Int != nil {
		return h.Int.ToFloat(nil)
	}
	return h.Float
}

// between returns the points in (a, b].
func (p Points) between(a, b int64) Points {
	var out Points
	for i, f := range p.Floats {
		if a < f.T && f.T <= b {
			out.Floats = append(out.Floats, f)
			out.Starts.Floats = append(out.Starts.Floats, p.Starts.Floats[i])
		}
	}
	for i, h := range p.Histograms {
		if a < h.T && h.T <= b {
			out.Starts.Histograms = append(out.Starts.Histograms, p.Starts.Histograms[i])
			out.Histograms = append(out.Histograms, promengine.HPoint{T: h.T, H: h.H.Copy()})
		}
	}
	return out
}

// Largest returns the largest finite absolute value among the points, or 0.
func (p Points) Largest() float64 {
	most := 0.0
	take := func(v float64) {
		if v = math.Abs(v); v > most && !math.IsInf(v, 0) {
			most = v
		}
	}
	for _, f := range p.Floats {
		take(f.F)
	}
	for _, h := range p.Histograms {
		take(h.H.Count)
		take(h.H.Sum)
	}
	return most
}

// referenceValue computes the reference value: the result of Prometheus' function over the samples in (a, b] at an
// evaluation time. It also returns whether there is a value, and the annotations.
func referenceValue(name string, args parser.Expressions, s *chunk.Samples, window Points,
	usesStarts bool, a, b, asked int64) (promengine.Sample, bool, annotations.Annotations) {
	if name == "" {
		newest, ok := newestSample(s, a, b)
		return newest, ok, nil
	}
	if len(window.Floats)+len(window.Histograms) == 0 {
		return promengine.Sample{}, false, nil
	}
	helper := promengine.EvalNodeHelper{Ts: asked}
	if usesStarts {
		helper.StartTimestamps = &window.Starts
	}
	scalars := []promengine.Vector{{{F: predictionSeconds}}} // of predict_linear
	out, remarks := promengine.FunctionCalls[name](scalars,
		promengine.Matrix{{Floats: window.Floats, Histograms: window.Histograms}}, args, &helper)
	if len(out) == 0 {
		return promengine.Sample{}, false, remarks
	}
	return out[0], true, remarks
}

// argsOf returns the arguments of a function over a range of span milliseconds.
func argsOf(t testing.TB, name string, span int64) parser.Expressions {
	if name == "" {
		return nil
	}
	options := parser.Options{EnableExperimentalFunctions: true}
	text := fmt.Sprintf("%s(x[%dms])", name, span)
	if name == "predict_linear" {
		text = fmt.Sprintf("predict_linear(x[%dms], %d)", span, predictionSeconds)
	}
	expr, err := parser.NewParser(options).ParseExpr(text)
	require.NoError(t, err)
	return expr.(*parser.Call).Args
}

// newestSample returns the sample that an instant selector at b with lookback b-a selects.
func newestSample(s *chunk.Samples, a, b int64) (promengine.Sample, bool) {
	newest, at, stale := promengine.Sample{}, a, true
	for i, t := range s.T {
		if at < t && t <= b {
			newest, at, stale = promengine.Sample{F: s.V[i]}, t, value.IsStaleNaN(s.V[i])
		}
	}
	for i := range s.H {
		if h := &s.H[i]; at < h.T && h.T <= b {
			at, stale = h.T, value.IsStaleNaN(toFloat(h).Sum)
			newest = promengine.Sample{H: toFloat(h)}
		}
	}
	return newest, !stale
}
