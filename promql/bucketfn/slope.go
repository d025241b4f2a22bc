package bucketfn

import "math"

// Slope describes which of rate, increase and delta is computed, and computes the factors of its windows. It isn't safe
// for concurrent use.
type Slope struct {
	// Counter is set for rate and increase: a decrease is a counter reset.
	Counter bool
	// PerSecond is the length of the windows in seconds, by which rate divides; 0 for increase and delta.
	PerSecond float64
	// Scale is the factor of increase and delta: 1, or less if windows were widened.
	Scale float64

	// of is the spacing of the previous window. The spacings of series that are scraped at regular intervals are all
	// the same. sampled, left and right are its extrapolation in seconds, and factor is computed from these.
	of                           Spacing
	sampled, left, right, factor float64
}

// Spacing describes the times of the samples in a window, milliseconds.
type Spacing struct {
	// BeforeFirst is the time from the left edge to the first sample, AfterLast from the last sample to the right edge,
	// and Sampled from the first sample to the last.
	BeforeFirst, AfterLast, Sampled int64
	// SinceStart is the time from the start timestamp of the first sample to that sample if the window contains the
	// start timestamp, and 0 otherwise. The counter was 0 at the start timestamp, so that nothing is extrapolated to
	// the left.
	SinceStart int64
	// Count is the number of samples: 2 or more, or 1 if SinceStart isn't 0.
	Count uint64
}

// seconds converts milliseconds to seconds in the way that Prometheus does.
func seconds(ms int64) float64 { return float64(ms) / 1000 }

// Factor returns the factor for the rise between the first and the last sample of a window, whose first value is first.
// The results are the same to the last bit as those of extrapolatedRate of promql/functions.go of Prometheus.
func (s *Slope) Factor(spacing Spacing, first, rise float64) float64 {
	if spacing != s.of {
		s.extrapolate(spacing)
	}
	if !s.Counter || !(rise > 0 && first >= 0) || s.aboveZero(first, rise) {
		return s.factor
	}
	// The extrapolation of a counter to the left stops where it would be 0.
	if toZero := s.sampled * (first / rise); toZero < s.left {
		return s.scaled(toZero)
	}
	return s.factor
}

// aboveZero reports whether the counter is certainly above 0, after rounding, over the whole extrapolation. It avoids a
// division for most windows.
func (s *Slope) aboveZero(first, rise float64) bool {
	product := s.sampled * first
	return product > s.left*rise*(1+1e-12) && product > 0x1p-960 && product <= math.MaxFloat64
}

// extrapolate computes the factor of a spacing. If the samples of a window end more than about one interval before an
// edge, the series is assumed to have started, or ended, half an interval beyond its last sample.
func (s *Slope) extrapolate(spacing Spacing) {
	s.of, s.sampled = spacing, seconds(spacing.Sampled)
	interval := 0.0
	if spacing.Count > 1 {
		interval = s.sampled / float64(spacing.Count-1)
	}
	gap := interval * 1.1
	if spacing.SinceStart > 0 {
		s.sampled, s.left = seconds(spacing.Sampled+spacing.SinceStart), 0
	} else if s.left = seconds(spacing.BeforeFirst); s.left >= gap {
		s.left = interval / 2
	}
	if s.right = seconds(spacing.AfterLast); s.right >= gap {
		s.right = interval / 2
	}
	s.factor = s.scaled(s.left)
}

// scaled returns the factor with an extrapolation to the left of the given seconds.
func (s *Slope) scaled(left float64) float64 {
	factor := 1.
	if s.sampled != 0 {
		factor = (s.sampled + left + s.right) / s.sampled
	}
	if s.PerSecond != 0 {
		return factor / s.PerSecond
	}
	return factor * s.Scale
}
