package chunk

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/stretchr/testify/require"
)

// TestWinners checks a list of values, each of which wins over all values before it.
func TestWinners(t *testing.T) {
	hist := func(h Histogram, sum float64) Histogram {
		c, err := CanonicalHistogram(h)
		require.NoError(t, err)
		if c.Int != nil {
			c.Int.Sum = sum
		} else {
			c.Float.Sum = sum
		}
		return c
	}
	empty := func(sum float64) Histogram { return hist(Histogram{Int: &histogram.Histogram{}}, sum) }
	float := func(v float64) *Samples {
		s := &Samples{}
		s.AppendFloat(5, 0, v)
		return s
	}
	native := func(h Histogram) *Samples {
		h.T = 5
		return &Samples{H: []Histogram{h}}
	}
	ascending := []*Samples{
		float(staleNaN),
		native(empty(staleNaN)),
		float(math.NaN()),
		float(math.Float64frombits(0xfff8000000000001)),
		float(math.Inf(-1)),
		float(-1),
		float(-math.SmallestNonzeroFloat64),
		float(math.Copysign(0, -1)),
		float(0),
		float(math.SmallestNonzeroFloat64),
		float(1),
		float(math.Inf(1)),
		native(empty(2)), // bytes 00 … 00 40
		native(empty(1)), // bytes 00 … f0 3f
	}
	for i, less := range ascending {
		for j, more := range ascending[i:] {
			for _, order := range [][]*Samples{{less, more}, {more, less}, {more, less, more, less}} {
				var s Samples
				for _, o := range order {
					s.T, s.V, s.H = append(s.T, o.T...), append(s.V, o.V...), append(s.H, o.H...)
				}
				s.Normalize()
				require.Equal(t, 1, s.Len(), "%d against %d", i, i+j)
				requireSame(t, more, &s)
			}
		}
	}
}

func TestGreaterStartWinsBetweenEqualValues(t *testing.T) {
	var s Samples
	s.AppendFloat(1, 7, 3)
	s.AppendFloat(1, 9, 3)
	s.AppendFloat(1, 8, 3)
	s.AppendFloat(1, 99, 2)
	h := &histogram.Histogram{}
	s.AppendHistogram(Histogram{T: 2, ST: 5, Int: h})
	s.AppendHistogram(Histogram{T: 2, ST: 6, Int: h.Copy()})
	s.AppendHistogram(Histogram{T: 2, ST: 4, Int: h})
	s.Normalize()
	require.Equal(t, []int64{1}, s.T)
	require.Equal(t, []int64{9}, s.ST)
	require.Equal(t, []float64{3}, s.V)
	require.Len(t, s.H, 1)
	require.Equal(t, int64(6), s.H[0].ST)
}

// TestOrderOfArrivalIsForgotten shuffles samples with conflicts. All orders must result in the same bytes.
func TestOrderOfArrivalIsForgotten(t *testing.T) {
	type arrival struct {
		t, st int64
		v     float64
		h     *Histogram
	}
	values := []float64{0, math.Copysign(0, -1), 1, 2, staleNaN, math.NaN(), math.Inf(1), -3}
	hs := histogramSeries(t, 40, 5, false, true).H
	hs = append(hs, histogramSeries(t, 40, 6, true, true).H...)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		var arrivals []arrival
		for range 400 {
			a := arrival{t: r.Int64N(150), st: r.Int64N(3) * int64(seed%2), v: values[r.IntN(len(values))]}
			if r.IntN(4) == 0 {
				h := hs[r.IntN(len(hs))]
				h.T = a.t
				a.h = &h
			}
			arrivals = append(arrivals, a)
		}
		var want []byte
		for range 10 {
			r.Shuffle(len(arrivals), func(i, j int) { arrivals[i], arrivals[j] = arrivals[j], arrivals[i] })
			var all Samples
			for i, a := range arrivals {
				if a.h != nil {
					all.AppendHistogram(*a.h)
				} else {
					all.AppendFloat(a.t, a.st, a.v)
				}
				if i == 200 {
					all.Normalize() // Normalize may be called at any time, any number of times.
				}
			}
			all.Normalize()
			got := requireRoundTrip(t, &all)
			if want == nil {
				want = got
			}
			require.Equal(t, want, got)
		}
	}
}

func TestNormalizeLeavesOneSampleATimestamp(t *testing.T) {
	var s Samples
	h := Histogram{Int: &histogram.Histogram{}}
	for _, at := range []int64{3, 1, 2, 2, math.MinInt64, math.MaxInt64} {
		s.AppendFloat(at, 0, float64(at))
	}
	for _, at := range []int64{2, 9, 4, 4} {
		h.T = at
		s.AppendHistogram(h)
	}
	s.Normalize()
	require.Equal(t, []int64{math.MinInt64, 1, 3, math.MaxInt64}, s.T)
	require.Equal(t, []int64{2, 4, 9}, []int64{s.H[0].T, s.H[1].T, s.H[2].T})
	require.Len(t, s.V, 4)
}

func TestNormalizeKeepsSortedSamplesInPlace(t *testing.T) {
	s := shapes()[3].samples(500, 1)
	require.Zero(t, testing.AllocsPerRun(10, s.Normalize))
}

func TestStartTimestampsAreAbsentWhileZero(t *testing.T) {
	var s Samples
	s.AppendFloat(1, 0, 1)
	s.AppendFloat(2, 0, 1)
	require.Nil(t, s.ST)
	s.AppendFloat(3, 7, 1)
	require.Equal(t, []int64{0, 0, 7}, s.ST)
	s.AppendFloat(4, 0, 1)
	require.Equal(t, []int64{0, 0, 7, 0}, s.ST)
	s.AppendFloat(3, 0, 2) // wins over the only float with a start timestamp
	s.Normalize()
	require.Empty(t, s.ST)
	s.AppendFloat(5, 1, 1)
	require.Equal(t, []int64{0, 0, 0, 0, 1}, s.ST)
	s.Clip(1, 4)
	require.Empty(t, s.ST)
	require.Len(t, s.T, 4)
	s.Reset()
	require.Zero(t, s.Len())
	s.AppendFloat(1, 0, 1)
	require.Empty(t, s.ST)
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		name       string
		minT, maxT int64
		want       []int64
	}{
		{"all", math.MinInt64, math.MaxInt64, []int64{-5, 0, 5, 10}},
		{"edges are included", 0, 5, []int64{0, 5}},
		{"between", 1, 4, nil},
		{"before", -10, -6, nil},
		{"after", 11, 12, nil},
		{"upside down", 6, -1, nil},
		{"tail", 4, 99, []int64{5, 10}},
		{"one", 10, 10, []int64{10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Samples
			for _, at := range []int64{-5, 0, 5, 10} {
				s.AppendFloat(at, at-1, float64(at))
				s.AppendHistogram(Histogram{T: at, Int: &histogram.Histogram{}})
			}
			s.Clip(c.minT, c.maxT)
			require.Equal(t, c.want, slices.Clip(append([]int64(nil), s.T...)))
			require.Len(t, s.V, len(c.want))
			require.Len(t, s.ST, len(c.want))
			require.Len(t, s.H, len(c.want))
			for i, at := range c.want {
				require.Equal(t, float64(at), s.V[i])
				require.Equal(t, at-1, s.ST[i])
				require.Equal(t, at, s.H[i].T)
			}
		})
	}
}

func TestCovers(t *testing.T) {
	base := func() *Samples {
		s := histogramSeries(t, 20, 9, false, true)
		for i := range 50 {
			s.AppendFloat(startMS-1000+int64(i), int64(i%2), float64(i))
		}
		s.Normalize()
		return s
	}
	s := base()
	require.True(t, s.Covers(base()))
	require.True(t, s.Covers(&Samples{}))
	require.False(t, (&Samples{}).Covers(s))

	part := base()
	part.Clip(startMS-980, startMS+5*intervalMS)
	require.True(t, s.Covers(part))
	require.False(t, part.Covers(s))

	for name, change := range map[string]func(*Samples){
		"timestamp":           func(o *Samples) { o.T[49]++ },
		"value":               func(o *Samples) { o.V[0] = math.Copysign(0, -1) },
		"start":               func(o *Samples) { o.ST[7]++ },
		"histogram":           func(o *Samples) { h := *o.H[3].Int; h.Sum++; o.H[3].Int = &h },
		"histogram's time":    func(o *Samples) { o.H[19].T++ },
		"histogram's start":   func(o *Samples) { o.H[0].ST++ },
		"a sample in between": func(o *Samples) { o.AppendFloat(startMS-2000, 0, 0); o.Normalize() },
	} {
		other := base()
		change(other)
		require.False(t, s.Covers(other), name)
	}
}

// TestSubtract subtracts random parts of samples and adds them again. The result must be the original samples.
func TestSubtract(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var all, part Samples
		for at := range int64(40) {
			into := []*Samples{&all}
			if r.IntN(3) > 0 {
				into = append(into, &part)
			}
			st, v := int64(r.IntN(2)), float64(r.IntN(3))
			kind := r.IntN(4)
			for _, s := range into {
				if kind == 0 {
					s.AppendHistogram(Histogram{
						T: at, Int: &histogram.Histogram{Count: uint64(st) + 1, ZeroCount: uint64(st) + 1, Sum: v},
					})
				} else {
					s.AppendFloat(at, st, v)
				}
			}
		}
		all.Normalize()
		part.Normalize()
		var rest Samples
		rest.AppendAll(&all)
		rest.Subtract(&part)
		require.Equal(t, all.Len(), rest.Len()+part.Len())
		require.Equal(t, part.Len() == all.Len(), part.Covers(&all))
		rest.AppendAll(&part)
		rest.Normalize()
		require.True(t, rest.Covers(&all) && all.Covers(&rest))
		other := Samples{T: []int64{0}, V: []float64{-1}}
		before := all.Len()
		all.Subtract(&other)
		require.Equal(t, before, all.Len(), "another value is not the same sample")
	}
}
