package bench

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
)

// Generator computes the labels and samples of a workload. It is safe for concurrent use.
type Generator struct {
	Workload
	shapes []shape
}

// NewGenerator returns a generator, or errWorkload for an invalid workload.
func NewGenerator(w Workload) (*Generator, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	return &Generator{Workload: w, shapes: targetShapes(w)}, nil
}

func (g *Generator) shape(i int) shape { return g.shapes[i%seriesPerTarget] }

// Labels returns the labels of series i at step k. A series' labels change when its target is replaced.
func (g *Generator) Labels(i, k int) labels.Labels {
	target := i / seriesPerTarget
	return g.labelsOf(g.shape(i), target, g.generation(target, k))
}

// IsHistogram reports whether series i has native histograms rather than floats.
func (g *Generator) IsHistogram(i int) bool { return g.shape(i).kind >= kindHistogram }

// oddValues contains values that stores often corrupt.
var oddValues = [...]uint64{
	0x7ff8000000000001,                     // the standard NaN
	0x7ff8dead0000beef,                     // a NaN with a payload
	0x7ff0000000000002,                     // the stale marker
	0x8000000000000000,                     // -0
	0x0000000000000000,                     // 0
	0x7ff0000000000000, 0xfff0000000000000, // ±Inf
	0x0000000000000001,                     // the smallest denormal
	0x7fefffffffffffff,                     // the largest number
	0x3fb999999999999a, 0x3fd5555555555555, // 0.1, 1/3
}

// Value returns sample k of float series i.
func (g *Generator) Value(i, k int) float64 {
	own := mixHash(g.Seed, uint64(i)*2+1)
	noise := mixHash(own, uint64(k))
	switch g.shape(i).kind {
	case kindConstant:
		return float64(own % 3 * (own >> 40))
	case kindIdle:
		// Two thirds of these series never change. Each of the others increases by one every 50 to 305 steps.
		if own%3 > 0 {
			return 0
		}
		return float64((uint64(k) + own>>32%256) / (50 + own>>16%256))
	case kindCounter:
		return float64(counterValue(own, noise, k))
	case kindSeconds:
		return float64(counterValue(own, noise, k)%1e12) / 100
	case kindGauge:
		wave := uint64(k) % 240
		if wave > 120 {
			wave = 240 - wave
		}
		return float64(4096 * (own>>40 + wave*(own>>8%64) + noise%32))
	case kindOdd:
		return math.Float64frombits(oddValues[noise%uint64(len(oddValues))])
	default:
		return float64(noise>>11) / (1 << 53) * float64(1+own%100)
	}
}

// counterValue returns the value of an integer counter that resets every 2,000 to 6,095 steps.
func counterValue(own, noise uint64, k int) uint64 {
	step := 1 + own>>20%2000
	since := (uint64(k) + own>>8%4096) % (2000 + own>>40%4096)
	return since*step + noise%step
}

// Histogram returns sample k of histogram series i. Exactly one of the results isn't nil. As in real histograms, counts
// grow like counters and the bucket layout changes every few hundred steps. No bucket is empty, because a store may
// omit empty buckets.
func (g *Generator) Histogram(i, k int) (*histogram.Histogram, *histogram.FloatHistogram) {
	own := mixHash(g.Seed, uint64(i)*2+1)
	layout := int(own%4) + k/300%3
	buckets := 4 + layout
	h := &histogram.Histogram{
		Schema: int32(own>>8%9) - 4, ZeroThreshold: 1e-9, ZeroCount: uint64(k),
		PositiveSpans: []histogram.Span{{Offset: int32(own >> 16 % 7), Length: 2},
			{Offset: 1 + int32(layout), Length: uint32(buckets - 2)}},
		PositiveBuckets: make([]int64, buckets),
		NegativeSpans:   []histogram.Span{{Offset: -3, Length: 1}},
		NegativeBuckets: []int64{int64(k)*2 + 1},
		Sum:             float64(k)*1.5 + float64(own%1000)/7,
	}
	if g.shape(i).kind == kindCustomHistogram {
		h.Schema, h.ZeroThreshold, h.ZeroCount = histogram.CustomBucketsSchema, 0, 0
		h.NegativeSpans, h.NegativeBuckets = nil, nil
		h.PositiveSpans = []histogram.Span{{Length: uint32(buckets)}}
		for b := range buckets {
			h.CustomValues = append(h.CustomValues, float64(b+1)/4)
		}
	}
	h.Count = h.ZeroCount
	for _, b := range h.NegativeBuckets {
		h.Count += uint64(b)
	}
	before := int64(0)
	for b := range buckets {
		count := 1 + int64(k)*int64(1+own>>(b%8*4)%5) + int64(own>>(b*3)%11)
		h.PositiveBuckets[b] = count - before
		before = count
		h.Count += uint64(count)
	}
	if g.shape(i).kind == kindFloatHistogram {
		return nil, h.ToFloat(nil)
	}
	return h, nil
}
