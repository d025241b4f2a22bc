package promql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/soak"
)

// The generated samples are at times in (sampledFrom, sampledTo], in milliseconds.
const (
	sampledFrom int64 = 10_000_000
	sampledTo         = sampledFrom + 100*60_000
)

// sampler writes series with all irregularities of real series, but more often than real series have them.
type sampler struct {
	t     *testing.T
	rnd   *rand.Rand
	store *storage.Store
	// starts is true if samples have start timestamps.
	starts bool
}

func (s *sampler) series(name string, n int, write func(b *storage.Batch, series *storage.Series, i int)) {
	b := s.store.NewBatch("default")
	for i := range n {
		ls := labels.FromStrings(model.MetricNameLabel, name, "instance", fmt.Sprint("i", i), "job",
			[]string{"api", "db", "web"}[i%3])
		if i%4 == 3 {
			ls = labels.NewBuilder(ls).Set("zone", "z").Labels()
		}
		series, err := b.Define(nil, ls)
		require.NoError(s.t, err)
		write(b, series, i)
	}
	require.NoError(s.t, b.Commit(s.t.Context()))
}

// times calls f for the times of a series, at intervals of about the given length. There are gaps, and some gaps start
// with a stale marker.
func (s *sampler) times(interval int64, f func(t int64, stale bool)) {
	jitter := s.rnd.Int64N(interval)
	for t := sampledFrom + 1 + jitter; t <= sampledTo; t += interval {
		at := t
		if s.rnd.IntN(5) == 0 {
			at += s.rnd.Int64N(interval / 3)
		}
		switch s.rnd.IntN(60) {
		case 0:
			t += s.rnd.Int64N(40) * interval
		case 1:
			f(at, true)
			t += s.rnd.Int64N(40) * interval
			continue
		}
		f(at, false)
	}
}

func (s *sampler) floats(b *storage.Batch, series *storage.Series, next func() float64) {
	starts, before := s.startsOf(), math.Inf(-1)
	s.times(15_000, func(t int64, stale bool) {
		v := next()
		start := starts.Next(t, v < before)
		before = v
		if stale {
			v = math.Float64frombits(value.StaleNaN)
		}
		require.NoError(s.t, b.Float(series, t, start, v))
	})
}

// startsOf returns start timestamps for a series. It chooses their kind at random.
func (s *sampler) startsOf() soak.Starts {
	if !s.starts {
		return soak.Starts{Rand: s.rnd, Kind: "none"}
	}
	return soak.Starts{Rand: s.rnd, Kind: soak.StartKinds[s.rnd.IntN(len(soak.StartKinds))]}
}

// odd returns v or, sometimes, a value for which arithmetic has special rules.
func (s *sampler) odd(v float64) float64 {
	switch s.rnd.IntN(120) {
	case 0:
		return math.NaN()
	case 1:
		return math.Inf(1)
	case 2:
		return math.Inf(-1)
	case 3:
		return math.Copysign(0, -1)
	case 4:
		return math.MaxFloat64
	}
	return v
}

// fill writes metrics that are named for their contents.
func (s *sampler) fill() {
	s.series("requests_total", 14, func(b *storage.Batch, series *storage.Series, _ int) {
		v := 0.0
		s.floats(b, series, func() float64 {
			v += float64(s.rnd.IntN(20))
			if s.rnd.IntN(50) == 0 {
				v = float64(s.rnd.IntN(3))
			}
			return v
		})
	})
	s.series("temperature", 12, func(b *storage.Batch, series *storage.Series, _ int) {
		s.floats(b, series, func() float64 { return s.rnd.NormFloat64() * 20 })
	})
	s.series("odd", 10, func(b *storage.Batch, series *storage.Series, _ int) {
		s.floats(b, series, func() float64 { return s.odd(s.rnd.NormFloat64() * 1e3) })
	})
	s.series("up", 9, func(b *storage.Batch, series *storage.Series, _ int) {
		s.floats(b, series, func() float64 { return float64(s.rnd.IntN(2)) })
	})
	s.series("latency", 8, func(b *storage.Batch, series *storage.Series, i int) {
		s.histograms(b, series, 0)
	})
	s.series("mixed", 8, func(b *storage.Batch, series *storage.Series, i int) {
		if i%3 == 0 {
			s.floats(b, series, s.rnd.Float64)
			return
		}
		s.histograms(b, series, 10*i)
	})
	b := s.store.NewBatch("default")
	for i, typ := range []string{"counter", "gauge", "counter"} {
		series, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, fmt.Sprint("typed", i), "__type__", typ,
			"instance", fmt.Sprint("i", i/2), "zone", "z"))
		require.NoError(s.t, err)
		s.floats(b, series, func() float64 { return s.rnd.Float64() })
	}
	require.NoError(s.t, b.Commit(s.t.Context()))
	for _, le := range []string{"0.1", "1", "10", "+Inf"} {
		b := s.store.NewBatch("default")
		for i := range 4 {
			series, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "size_bucket", "le", le, "instance",
				fmt.Sprint("i", i), "job", "api"))
			require.NoError(s.t, err)
			v := 0.0
			s.floats(b, series, func() float64 { v += float64(s.rnd.IntN(10)); return v })
		}
		require.NoError(s.t, b.Commit(s.t.Context()))
	}
}

// histograms writes native histograms. floats is the percentage of floats among them.
func (s *sampler) histograms(b *storage.Batch, series *storage.Series, floats int) {
	g, starts := generator{rnd: s.rnd}, s.startsOf()
	s.times(30_000, func(t int64, _ bool) {
		start := starts.Next(t, false)
		if s.rnd.IntN(100) < floats {
			require.NoError(s.t, b.Float(series, t, start, s.rnd.Float64()))
			return
		}
		h := g.next()
		require.NoError(s.t, b.Histogram(series, t, start, h.Int, h.Float))
	})
}
