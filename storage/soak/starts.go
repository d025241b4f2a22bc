package soak

import "math/rand/v2"

// StartKinds are the kinds of start timestamps that Starts generates.
var StartKinds = []string{
	"none", "constant", "restarts", "deltas", "partly deltas", "unknown at first", "partly unknown", "overlapping",
	"any",
}

// Starts generates consecutive start timestamps of one series, in milliseconds.
type Starts struct {
	Rand *rand.Rand
	// Kind is one of StartKinds.
	Kind string

	start, before int64
	begun         bool
}

// Next returns the start timestamp of the sample at t, which must be after all previous ones. restarted is set if the
// sample's value is reset.
func (s *Starts) Next(t int64, restarted bool) int64 {
	if s.Kind == "none" { // It draws no random numbers.
		return 0
	}
	r := s.Rand
	before, first := s.before, !s.begun
	if s.before = t; first {
		s.begun, s.start = true, t-r.Int64N(400_000)
		before = s.start
	}
	between := before + r.Int64N(max(t-before, 1)) // in [before, t)
	switch s.Kind {
	case "restarts":
		if restarted || r.IntN(15) == 0 {
			s.start = between
		}
	case "deltas":
		return before
	case "partly deltas":
		if r.IntN(3) > 0 {
			s.start = []int64{before, before + 1, between, t - 1}[r.IntN(4)]
		}
	case "unknown at first": // as from OpenTelemetry: the first sample starts at its own time
		if first || r.IntN(20) == 0 {
			s.start = t
			return t
		}
	case "partly unknown":
		if restarted {
			s.start = between
		}
		if r.IntN(4) == 0 {
			return 0
		}
	case "overlapping":
		if r.IntN(6) == 0 {
			s.start -= r.Int64N(50_000)
		}
	case "any":
		return []int64{0, before, t, t + 1, between, s.start, before - 1, t - 1, t - r.Int64N(900_000)}[r.IntN(9)]
	}
	return s.start
}
