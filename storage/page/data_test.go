package page

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	startMS    = 1_700_006_400_000 // a full hour
	intervalMS = 15_000
)

// target is a short-lived scrape target. It was scraped 20 to 24 times, each time all of its metrics.
type target struct {
	labels []byte
	from   int64
	n      int
}

// targets returns n targets that were started by one rollout, each with its own scrape offset.
func targets(n int, seed uint64) (all []target) {
	r := rand.New(rand.NewPCG(seed, 0))
	rollout := startMS + r.Int64N(100)*intervalMS
	template := randomText(r, "0123456789abcdef", 9)
	for range n {
		all = append(all, target{
			labels: format.AppendLabels(nil, labels.FromStrings(
				"instance", fmt.Sprintf("10.0.%d.%d:9100", r.IntN(64), r.IntN(256)), "job", "node",
				"namespace", []string{"default", "shop", "search"}[r.IntN(3)],
				"pod", "api-"+template+"-"+randomText(r, "bcdfghjklmnpqrstvwxz2456789", 5))),
			from: rollout + r.Int64N(3)*intervalMS + r.Int64N(intervalMS),
			n:    20 + r.IntN(5),
		})
	}
	return all
}

// churned are the values of the rows of a metric's series.
type churned struct {
	labels, chunks, r5m, r1h [][]byte
}

// churnOf returns the values of one metric of targets: a counter, or a gauge with two decimals.
func churnOf(of []target, seed uint64, counter bool) (c churned) {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, target := range of {
		s := &chunk.Samples{}
		v := math.Round(1e4*r.Float64()) / 100
		if counter {
			v = float64(r.IntN(1000))
		}
		for i := range target.n {
			if counter {
				v += float64(r.IntN(200))
			} else {
				v = math.Round(100*v+100*r.NormFloat64()) / 100
			}
			s.AppendFloat(target.from+int64(i)*intervalMS, 0, v)
		}
		raw, fine, coarse := valuesOf(s)
		c.labels = append(c.labels, target.labels)
		c.chunks, c.r5m, c.r1h = append(c.chunks, raw), append(c.r5m, fine), append(c.r1h, coarse)
	}
	return c
}

// valuesOf returns the raw chunk of samples, and the rollup chunks of their buckets.
func valuesOf(s *chunk.Samples) (raw, fine, coarse []byte) {
	raw = chunk.AppendChunk(nil, s)
	var of5m, of1h rollup.Buckets
	rollup.AppendEvery(&of5m, s, rollup.FiveMinutes.Width())
	rollup.Coarsen(&of1h, &of5m, rollup.OneHour.Width())
	fine = rollup.AppendChunk(nil, &of5m, rollup.FiveMinutes.Width(), 1)
	coarse = rollup.AppendChunk(nil, &of1h, rollup.OneHour.Width(), 1)
	return raw, fine, coarse
}

func randomText(r *rand.Rand, alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

// oddSamples returns samples that few series have. They include all cases that the encoding of chunks distinguishes.
func oddSamples(t testing.TB, seed uint64) []*chunk.Samples {
	r := rand.New(rand.NewPCG(seed, 3))
	stale := math.Float64frombits(value.StaleNaN)
	series := func(n int, each func(i int) (step, startAgo int64, v float64)) *chunk.Samples {
		s := &chunk.Samples{}
		at := startMS + r.Int64N(intervalMS)
		for i := range n {
			step, ago, v := each(i)
			at += step
			st := int64(0)
			if ago > 0 {
				st = at - ago
			}
			s.AppendFloat(at, st, v)
		}
		return s
	}
	gauge := func() float64 { return math.Round(1e4*r.NormFloat64()) / 100 }
	special := []float64{
		0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), stale, math.MaxFloat64, 1e15, 0.1,
	}
	all := []*chunk.Samples{
		series(1, func(int) (int64, int64, float64) { return 0, 0, gauge() }),
		series(2, func(int) (int64, int64, float64) { return intervalMS, 0, gauge() }),
		series(240, func(int) (int64, int64, float64) { return intervalMS + r.Int64N(9), 0, gauge() }),
		series(480, func(int) (int64, int64, float64) { return 1 + r.Int64N(2*intervalMS), 0, r.NormFloat64() }),
		series(24, func(int) (int64, int64, float64) { return intervalMS, 0, special[r.IntN(len(special))] }),
		series(24, func(int) (int64, int64, float64) { return intervalMS, 0, math.Float64frombits(r.Uint64()) }),
		series(24, func(int) (int64, int64, float64) { return intervalMS, 0, 42 }),
		series(24, func(i int) (int64, int64, float64) { return intervalMS, 0, []float64{gauge(), stale}[i/23] }),
		series(24, func(int) (int64, int64, float64) { return intervalMS, 0, stale }),
		series(24, func(int) (int64, int64, float64) { return intervalMS, 5000, gauge() }),
		series(24, func(int) (int64, int64, float64) { return intervalMS, 0, gauge() / 3 * 7 }),
		series(240, func(int) (int64, int64, float64) { return intervalMS, 0, float64(r.IntN(5)) }),
		series(3000, func(int) (int64, int64, float64) { return intervalMS, 0, gauge() }),
		series(1100, func(i int) (int64, int64, float64) { return intervalMS, 0, float64(i) }),
		{T: []int64{-5, 1 << 50}, V: []float64{1, 2}},
	}
	for _, float := range []bool{false, true} {
		all = append(all, histograms(t, r, 24, float))
	}
	mixed := histograms(t, r, 5, false)
	mixed.AppendFloat(startMS-1, 0, 1)
	mixed.Normalize()
	return append(all, mixed)
}

func histograms(t testing.TB, r *rand.Rand, n int, float bool) *chunk.Samples {
	s := &chunk.Samples{}
	counts := make([]int64, 8)
	for i := range n {
		h := &histogram.Histogram{
			Schema: 3, ZeroThreshold: 0.001, PositiveSpans: []histogram.Span{{Length: uint32(len(counts))}},
		}
		before := int64(0)
		for k := range counts {
			counts[k] += r.Int64N(4)
			h.PositiveBuckets = append(h.PositiveBuckets, counts[k]-before)
			before = counts[k]
			h.Count += uint64(counts[k])
			h.Sum += float64(k) * float64(counts[k])
		}
		sample := chunk.Histogram{T: startMS + int64(i)*intervalMS, Int: h}
		if float {
			sample.Float, sample.Int = h.ToFloat(nil), nil
		}
		canonical, err := chunk.CanonicalHistogram(sample)
		require.NoError(t, err)
		s.AppendHistogram(canonical)
	}
	return s
}

// oddValues returns unusual values of a kind, including values that aren't of that kind.
func oddValues(t testing.TB, k Kind, seed uint64) (values [][]byte) {
	r := rand.New(rand.NewPCG(seed, 4))
	for _, s := range oddSamples(t, seed) {
		raw := chunk.AppendChunk(nil, s)
		switch k {
		case Chunks:
			ids := format.TombstoneIDs(randomText(r, "0123456789abcdef", 32))
			values = append(values, raw, format.AppendRawChunk(nil, format.RawChunk{Exempt: ids, Data: raw}))
		case Rollups:
			for _, resolution := range rollup.Resolutions {
				var b rollup.Buckets
				rollup.AppendEvery(&b, s, resolution.Width())
				if b.Len() <= rollup.MaxBuckets {
					values = append(values, rollup.AppendChunk(nil, &b, resolution.Width(), 1+seed%3))
				}
			}
		}
	}
	if k == Rollups {
		values = append(values, rollup.AppendEmpty(nil, 7), rollup.AppendEmpty(nil, 1<<40))
	}
	if k == Labels {
		many := labels.NewScratchBuilder(0)
		for i := range maxLabels + 5 {
			many.Add(fmt.Sprintf("l%03d", i), randomText(r, "ab", i%7))
			many.Sort()
			values = append(values, format.AppendLabels(nil, many.Labels()))
		}
		// A length that is encoded in two bytes although one is enough.
		values = append(values, []byte{format.LabelsVersion, 1, 'a', 0x81, 0, 'b'})
	}
	values = append(values, nil, []byte{1}, []byte{2}, []byte("no value"), []byte(randomText(r, "xyz", 500)))
	for range 5 { // damaged values
		v := append([]byte(nil), values[r.IntN(len(values)-5)]...)
		v[r.IntN(len(v))] ^= 1 << r.IntN(8)
		values = append(values, v)
	}
	return values
}
