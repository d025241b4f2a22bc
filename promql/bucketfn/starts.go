package bucketfn

import (
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

// starts are the start timestamps of buckets, for functions that use them.
type starts struct {
	// b are the buckets; nil: start timestamps aren't used, or there are none.
	b *rollup.Buckets
	// overlaps is set if there are samples that start before the one before them, of which Prometheus warns. inside[i] is how many of the
	// first i buckets have such samples, between[i] how many of them begin with one.
	overlaps        bool
	inside, between []int32
}

// of sets s to the start timestamps of b.
func (s *starts) of(b *rollup.Buckets, use bool) {
	if s.b, s.overlaps = nil, false; !use {
		return
	}
	if b.FirstST != nil {
		s.b = b
	}
	for i, flags := range b.Flags {
		if s.overlaps = flags&rollup.StartsOverlap != 0 || s.overlapsBefore(b, i); s.overlaps {
			break
		}
	}
	if !s.overlaps {
		return
	}
	s.inside, s.between = append(s.inside[:0], 0), append(s.between[:0], 0)
	for i, flags := range b.Flags {
		inside, between := s.inside[i], s.between[i]
		if flags&rollup.StartsOverlap != 0 {
			inside++
		}
		if s.overlapsBefore(b, i) {
			between++
		}
		s.inside, s.between = append(s.inside, inside), append(s.between, between)
	}
}

// overlapsBefore returns true if bucket i begins with such a sample.
func (s *starts) overlapsBefore(b *rollup.Buckets, i int) bool {
	return s.changes(i) && b.StartOverlaps(i-1, i)
}

// changes returns true if bucket i begins with another start than the one before ends with. Hardly any does.
func (s *starts) changes(i int) bool { return s.b != nil && i > 0 && s.b.FirstST[i] != s.b.LastST[i-1] }

// overlapIn returns true if there are such samples in buckets lo to before hi.
func (s *starts) overlapIn(lo, hi int) bool {
	return s.overlaps && s.inside[hi]-s.inside[lo]+s.between[hi]-s.between[lo+1] > 0
}

// isReset returns true if the first sample of bucket i starts anew after the last of the bucket before, both being of one kind.
func (s *starts) isReset(i int) bool { return s.changes(i) && s.b.IsStartReset(i-1, i) }

// sinceStart returns how long before the first sample of bucket i that starts, milliseconds, if it does so after a time; 0: it doesn't.
func (s *starts) sinceStart(i int, after int64) int64 {
	if s.b == nil {
		return 0
	}
	return rollup.SinceStart(s.b.FirstST[i], s.b.FirstT[i], after)
}

// correction returns what resets inside of bucket i add that only start timestamps show.
func (s *starts) correction(i int) float64 {
	if s.b == nil {
		return 0
	}
	return s.b.StartCorrection[i]
}

// resets returns how many resets in bucket i only start timestamps show.
func (s *starts) resets(i int) float64 {
	if s.b == nil {
		return 0
	}
	return float64(s.b.StartResets[i])
}

// firstReset returns true if the second histogram of a bucket begins with a reset.
func (s *starts) firstReset(h *rollup.Histograms) bool {
	return h.FirstReset || s.b != nil && h.FirstStartReset
}

// corrections returns what resets in a bucket add to the rise of histograms; each may be nil.
func (s *starts) corrections(h *rollup.Histograms) [2]*histogram.FloatHistogram {
	if s.b == nil {
		return [2]*histogram.FloatHistogram{h.Correction}
	}
	return [2]*histogram.FloatHistogram{h.Correction, h.StartCorrection}
}
