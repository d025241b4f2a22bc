package bucketfn

import "github.com/prometheus/prometheus/model/histogram"

// Result holds the values of one series by step. Steps without a value are absent.
type Result struct {
	// Step lists the steps that have a value, ascending.
	Step []int32
	// Value holds their values; 0 where the value is a histogram.
	Value []float64
	// Histogram holds their native histograms; it is empty if no step has one. The buckets own them: a caller that
	// changes one must copy it first.
	Histogram []*histogram.FloatHistogram
	// Unanswered lists the steps, ascending, that can't be computed from buckets, only from the samples.
	Unanswered []int32
}

// Reset empties r and keeps its memory.
func (r *Result) Reset() {
	clear(r.Histogram) // its pointers would keep histograms alive
	r.Step, r.Value, r.Unanswered = r.Step[:0], r.Value[:0], r.Unanswered[:0]
	r.Histogram = r.Histogram[:0]
}

func (r *Result) add(step int, v float64) {
	r.Step, r.Value = append(r.Step, int32(step)), append(r.Value, v)
	if len(r.Histogram) > 0 {
		r.Histogram = append(r.Histogram, nil)
	}
}

func (r *Result) addHistogram(step int, h *histogram.FloatHistogram) {
	for len(r.Histogram) < len(r.Step) {
		r.Histogram = append(r.Histogram, nil)
	}
	r.Step, r.Value, r.Histogram = append(r.Step, int32(step)), append(r.Value, 0), append(r.Histogram, h)
}

func (r *Result) needsSamples(step int) { r.Unanswered = append(r.Unanswered, int32(step)) }
