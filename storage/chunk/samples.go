package chunk

import (
	"github.com/prometheus/prometheus/model/histogram"
)

// Samples holds samples of one series as columns: floats, and native histograms beside them.
// A timestamp may stand in either, not in both, once Normalize was called.
type Samples struct {
	// T are the timestamps of the floats, milliseconds; V their values, of the same length.
	T []int64
	V []float64
	// ST are start timestamps of the floats, milliseconds, 0 where unknown; nil (or empty) if all are 0.
	ST []int64
	// H are the native histograms.
	H []Histogram
}

// Histogram is a native histogram sample: exactly one of Int and Float is set. It is shared once it is
// here: nobody changes it.
type Histogram struct {
	T, ST int64
	Int   *histogram.Histogram
	Float *histogram.FloatHistogram
}
