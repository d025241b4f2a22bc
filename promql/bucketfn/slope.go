package bucketfn

import "math"

// Slope computes the factors by which rate, increase and delta multiply the rise of each window. Its fields determine
// which of these functions is computed. It isn't safe for concurrent use.
type Slope struct {
	// Counter is set for rate and increase: a decrease is a counter reset.
	Counter bool
	// PerSecond is the length of the windows in seconds, by which rate divides. It is 0 for increase and delta.
	PerSecond float64
	// Scale is the factor for increase and delta: 1, or less if windows were widened.
	Scale float64

	// spacing and sinceStart are those of the previous window, and the other fields are computed from them. They are
	// cached because all windows of a series that is scraped at regular intervals have the same spacing. sampled, left
	// and right are in seconds.
	spacing                      Spacing
	sinceStart                   int64
	sampled, left, right, factor float64
}

// Spacing describes the times of the samples in a window, in milliseconds. Go keeps structs of at most four fields in
// registers; with five, Factor takes several times as long.
type Spacing struct {
	// BeforeFirst is the time from the left edge to the first sample, AfterLast from the last sample to the right edge,
	// and Sampled from the first sample to the last.
	BeforeFirst, AfterLast, Sampled int64
	// Count is the number of samples: 2 or more, or 1 if the series starts in the window.
	Count uint64
}

// toSeconds converts milliseconds to seconds in the way that Prometheus does.
func toSeconds(ms int64) float64 { return float64(ms) / 1000 }

// Factor returns the factor by which rise, the increase between the first and the last sample of a window, is
// multiplied. first is the first value. sinceStart is the time in milliseconds from the start timestamp of the first
// sample to that sample, or 0 if the start timestamp isn't in the window. The counter was 0 at the start timestamp, so
// nothing is extrapolated to the left of it. The results are the same to the last bit as those of extrapolatedRate in
// promql/functions.go of Prometheus.
func (s *Slope) Factor(spacing Spacing, sinceStart int64, first, rise float64) float64 {
	if spacing != s.spacing || sinceStart != s.sinceStart {
		s.setSpacing(spacing, sinceStart)
	}
	if !s.Counter || !(rise > 0 && first >= 0) || s.isAboveZero(first, rise) {
		return s.factor
	}
	// The extrapolation of a counter to the left stops where the counter would be 0.
	if toZero := s.sampled * (first / rise); toZero < s.left {
		return s.factorFor(toZero)
	}
	return s.factor
}

// isAboveZero reports whether the counter is certainly above 0, even after rounding, over the whole extrapolation. It
// saves a division for most windows.
func (s *Slope) isAboveZero(first, rise float64) bool {
	product := s.sampled * first
	return product > s.left*rise*(1+1e-12) && product > 0x1p-960 && product <= math.MaxFloat64
}

// setSpacing computes the factor of a spacing. If the gap between an edge and the nearest sample is longer than about
// one average interval, the series is assumed to have started, or ended, half an interval beyond that sample.
func (s *Slope) setSpacing(spacing Spacing, sinceStart int64) {
	s.spacing, s.sinceStart, s.sampled = spacing, sinceStart, toSeconds(spacing.Sampled)
	interval := 0.0
	if spacing.Count > 1 {
		interval = s.sampled / float64(spacing.Count-1)
	}
	gap := interval * 1.1
	if sinceStart > 0 {
		s.sampled, s.left = toSeconds(spacing.Sampled+sinceStart), 0
	} else if s.left = toSeconds(spacing.BeforeFirst); s.left >= gap {
		s.left = interval / 2
	}
	if s.right = toSeconds(spacing.AfterLast); s.right >= gap {
		s.right = interval / 2
	}
	s.factor = s.factorFor(s.left)
}

// factorFor returns the factor if left is the number of seconds by which the rise is extrapolated to the left.
func (s *Slope) factorFor(left float64) float64 {
	factor := 1.
	if s.sampled != 0 {
		factor = (s.sampled + left + s.right) / s.sampled
	}
	if s.PerSecond != 0 {
		return factor / s.PerSecond
	}
	return factor * s.Scale
}
