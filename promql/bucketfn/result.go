package bucketfn

import "github.com/prometheus/prometheus/model/histogram"

// Result holds the values of one series by step. Steps without a value are left out.
type Result struct {
	// Step lists the steps that have a value, ascending.
	Step []int32
	// Value holds the values of these steps. An entry is 0 if the value is a histogram.
	Value []float64
	// Histogram holds the native histograms of these steps, and is empty if no step has one. The buckets own the
	// histograms: a caller must copy a histogram before changing it.
	Histogram []*histogram.FloatHistogram
	// Unanswered lists the steps, ascending, that can be computed only from samples.
	Unanswered []int32
	// Notes are the annotations that Prometheus would add for the samples.
	Notes Note
	// Overlaps is the number of steps whose samples have overlapping start timestamps. Prometheus adds a warning for
	// each of these steps.
	Overlaps int
}

// Note is a set of annotations that Prometheus' functions return.
type Note uint16

const (
	// NoteFloatsAndHistograms: a window contains floats and histograms, and therefore has no value.
	NoteFloatsAndHistograms Note = 1 << iota
	// NoteHistogramsIgnored: a window contains histograms, but only its floats count.
	NoteHistogramsIgnored
	// NoteMixedKinds: a window contains exponential histograms and histograms with custom bounds, and therefore has no
	// value.
	NoteMixedKinds
	// NoteNotCounter: gauge histograms are treated as counters. NoteNotGauge: histograms that aren't gauges are treated
	// as gauges.
	NoteNotCounter
	NoteNotGauge
	// NoteBoundsReconciledAdd, NoteBoundsReconciledSub, NoteBoundsReconciledSum: custom bounds differed when histograms
	// were added, subtracted, or summed over a window.
	NoteBoundsReconciledAdd
	NoteBoundsReconciledSub
	NoteBoundsReconciledSum

	notesOfBounds = NoteBoundsReconciledAdd | NoteBoundsReconciledSub | NoteBoundsReconciledSum
)

func (r *Result) addNote(n Note) { r.Notes |= n }

// Reset empties r and keeps its memory.
func (r *Result) Reset() {
	clear(r.Histogram) // its pointers would keep histograms reachable
	r.Step, r.Value, r.Unanswered = r.Step[:0], r.Value[:0], r.Unanswered[:0]
	r.Histogram, r.Notes, r.Overlaps = r.Histogram[:0], 0, 0
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
