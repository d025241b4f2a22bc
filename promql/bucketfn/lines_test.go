package bucketfn_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/expand"
)

// exactLine is the least-squares line through the samples of a window. It is computed without rounding.
type exactLine struct {
	slope, value float64 // per second, and at the end of the window
	spread       float64 // max minus min of the values
	largest      float64 // the largest absolute value
	apart        float64 // the standard deviation of the times in seconds
	reach        float64 // from the mean of the times to the end of the window in seconds
}

// lineThrough returns the line through the samples in (from, to].
func lineThrough(s *chunk.Samples, from, to int64) exactLine {
	const bits = 512 // more than sums of products have
	float := func(v float64) *big.Float { return new(big.Float).SetPrec(bits).SetFloat64(v) }
	n, t, v, tt, tv := 0., float(0), float(0), float(0), float(0)
	least, greatest := math.Inf(1), math.Inf(-1)
	mul := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(bits).Mul(a, b) }
	for i, at := range s.T {
		if at <= from || at > to {
			continue
		}
		x, y := float(float64(at-to)), float(s.V[i])
		n++
		t.Add(t, x)
		v.Add(v, y)
		tt.Add(tt, mul(x, x))
		tv.Add(tv, mul(x, y))
		least, greatest = min(least, s.V[i]), max(greatest, s.V[i])
	}
	comoment, squares := mul(float(n), tv), mul(float(n), tt)
	comoment.Sub(comoment, mul(t, v))
	squares.Sub(squares, mul(t, t))
	slope := new(big.Float).Quo(comoment, squares)
	value := v.Quo(v.Sub(v, mul(slope, t)), float(n))
	toFloat := func(x *big.Float) float64 { f, _ := x.Float64(); return f }
	return exactLine{
		slope: toFloat(slope) * 1000, value: toFloat(value), spread: greatest - least,
		largest: max(math.Abs(least), math.Abs(greatest)),
		apart:   math.Sqrt(toFloat(squares)) / n / 1000,
		reach:   -toFloat(t) / n / 1000,
	}
}

// drawLineSamples returns two hours of samples whose values are base plus small changes, at times of multiple kinds.
func drawLineSamples(r *rand.Rand, base float64) *chunk.Samples {
	const end = 2 * 3600_000
	valueAt := []func(t int64) float64{
		func(t int64) float64 { return float64(t / 300_000 * 7 % 3 % 2) }, // steps between 0 and 1
		func(t int64) float64 { return float64(t / 4_000_000) },           // one step
		func(t int64) float64 { return float64(t) / 1000 },
		func(int64) float64 { return r.NormFloat64() },
		func(int64) float64 { return math.Floor(r.Float64()*100) / 4 },
		func(t int64) float64 { return float64(t)/1e6 + float64(r.IntN(2)) },
	}[r.IntN(6)]
	next := []func(t int64) int64{
		func(t int64) int64 { return t + 60_000 }, // on the edges of buckets
		func(t int64) int64 { return t + 15_000 + r.Int64N(40) },
		func(t int64) int64 { return t + 1 + r.Int64N(300_000) },
		func(t int64) int64 { // bursts of samples at the edges of buckets
			if t%300_000 < 5 {
				return t + 1
			}
			return t - t%300_000 + 300_000 - r.Int64N(3)
		},
	}[r.IntN(4)]
	s := &chunk.Samples{}
	for t := next(0); t <= end; t = next(t) {
		s.AppendFloat(t, 0, base+valueAt(t))
	}
	return s
}

// storedBuckets returns the buckets of samples as they are stored: 5m buckets, and 1h buckets made from these.
func storedBuckets(t *testing.T, s *chunk.Samples) (minutes, hours *rollup.Buckets) {
	minutes, hours = &rollup.Buckets{}, &rollup.Buckets{}
	var built rollup.Buckets
	rollup.AppendStored(&built, s, "gauge", 300_000)
	require.NoError(t, rollup.Decode(rollup.AppendChunk(nil, &built, 300_000, 1), rollup.AllColumns, minutes))
	built.Reset()
	rollup.CoarsenStored(&built, minutes, "gauge", 3600_000)
	require.NoError(t, rollup.Decode(rollup.AppendChunk(nil, &built, 3600_000, 1), rollup.AllColumns, hours))
	return minutes, hours
}

// requireExactLines requires that deriv and predict_linear over the buckets are off by at most 1e-13 of the spread of
// the values and 1e-15 of the largest value, in relation to the standard deviation of the times. It returns the number
// of compared windows.
func requireExactLines(t *testing.T, s *chunk.Samples, b *rollup.Buckets, w bucketfn.Windows, context string) int {
	t.Helper()
	const seconds = 3600
	compared := 0
	for _, name := range []string{"deriv", "predict_linear"} {
		var out bucketfn.Result
		f := bucketfn.New(name)
		f.SetPrediction(bucketfn.Prediction{First: w.First, Step: w.Step, Seconds: seconds})
		f.Evaluate(b, w, &out)
		require.Empty(t, out.Unanswered, context)
		for i, got := range out.Value {
			from, to := w.Window(int(out.Step[i]))
			line := lineThrough(s, from, to)
			want, bound := line.slope, (1e-13*line.spread+1e-15*line.largest)/line.apart
			if name == "predict_linear" {
				want, bound = line.value+line.slope*seconds, bound*(line.reach+seconds)+1e-15*line.largest
			}
			require.LessOrEqual(t, math.Abs(got-want), bound, "%s: %s over (%d, %d] is %v, not %v, %+v", context, name,
				from, to, got, want, line)
			compared++
		}
	}
	return compared
}

// TestLinesOnLargeBases requires that the lines through values which change little compared to their size are as
// precise as the changes, also for samples that are close together.
func TestLinesOnLargeBases(t *testing.T) {
	compared := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 78))
		base := []float64{0, 1e3, 1e6, -1e9, 1e9, 1 << 40, 1e12, 1e15}[r.IntN(8)]
		s := drawLineSamples(r, base)
		minutes, hours := storedBuckets(t, s)
		for width, b := range map[int64]*rollup.Buckets{300_000: minutes, 3600_000: hours} {
			for _, span := range []int64{width, 2 * width} {
				w := bucketfn.Windows{First: span, Step: width, Steps: int((7200_000-span)/width) + 1, Span: span}
				compared += requireExactLines(t, s, b, w, fmt.Sprintf("seed %d, base %g", seed, base))
			}
		}
	}
	require.Greater(t, compared, 2_000)
}

// TestLinesOfCutBuckets checks the errors of lines, as TestLinesOnLargeBases does, for windows with buckets that other
// windows cut.
func TestLinesOfCutBuckets(t *testing.T) {
	compared := 0
	var x expand.Expander
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 79))
		base := []float64{0, 1e6, -1e9, 1e12}[r.IntN(4)]
		s := drawLineSamples(r, base)
		minutes, hours := storedBuckets(t, s)
		edges := make([]int64, 6)
		for i := range edges {
			edges[i] = 1 + r.Int64N(7199_998)
		}
		slices.Sort(edges)
		for _, b := range []*rollup.Buckets{minutes, hours} {
			var pieces rollup.Buckets
			x.Cut(&pieces, b, edges)
			w := bucketfn.Windows{First: 3600_000, Step: 3600_000, Steps: 2, Span: 3600_000}
			compared += requireExactLines(t, s, &pieces, w, fmt.Sprintf("seed %d, base %g", seed, base))
			w = bucketfn.Windows{First: 7200_000, Steps: 1, Span: 7200_000}
			compared += requireExactLines(t, s, &pieces, w, fmt.Sprintf("seed %d, base %g", seed, base))
		}
	}
	require.Greater(t, compared, 200)
}

// TestPredictionsOfInfiniteValues requires that predict_linear over windows with infinite values is what Prometheus
// computes, or is left to samples, wherever the evaluation time is. If it is inside the window, Prometheus' value may
// be infinite instead of NaN.
func TestPredictionsOfInfiniteValues(t *testing.T) {
	infinite, left := 0, 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 80))
		s := &chunk.Samples{}
		for at := int64(60_000); at <= 3600_000; at += 60_000 {
			v := r.NormFloat64()
			switch r.IntN(40) {
			case 0:
				v = math.Inf(1)
			case 1:
				v = math.Inf(-1)
			case 2:
				v = math.NaN()
			}
			s.AppendFloat(at, 0, v)
		}
		var b rollup.Buckets
		rollup.AppendStored(&b, s, "gauge", 300_000)
		w := bucketfn.Windows{First: 900_000, Step: 900_000, Steps: 4, Span: 900_000}
		later := oneOf(r, -1000_000, -900_000, -899_999, -450_000, -60_000, -1, 0, 1, 60_000) // than the right edge
		f := bucketfn.New("predict_linear")
		f.SetPrediction(bucketfn.Prediction{First: w.First + later, Step: w.Step, Seconds: 6})
		var out bucketfn.Result
		f.Evaluate(&b, w, &out)
		got := map[int]float64{}
		for i, step := range out.Step {
			got[int(step)] = out.Value[i]
		}
		for k := range w.Steps {
			from, to := w.Window(k)
			var floats []promengine.FPoint
			for i, at := range s.T {
				if from < at && at <= to {
					floats = append(floats, promengine.FPoint{T: at, F: s.V[i]})
				}
			}
			vector, _ := promengine.FunctionCalls["predict_linear"]([]promengine.Vector{{{F: 6}}},
				promengine.Matrix{{Floats: floats}}, nil, &promengine.EvalNodeHelper{Ts: to + later})
			want := vector[0].F
			if v, ok := got[k]; ok {
				require.True(t, math.IsNaN(v) && math.IsNaN(want) || math.Abs(v-want) <= 1e-9,
					"seed %d, step %d: %v, not %v", seed, k, v, want)
				continue
			}
			require.True(t, -900_000 < later && later < 0, "seed %d, step %d needs samples", seed, k)
			left++
			if math.IsInf(want, 0) {
				infinite++
			}
		}
	}
	require.Greater(t, left, 200)
	require.Greater(t, infinite, 10)
}

func oneOf(r *rand.Rand, of ...int64) int64 { return of[r.IntN(len(of))] }
