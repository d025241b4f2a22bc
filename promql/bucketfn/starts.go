package bucketfn

import (
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

// starts are the start timestamps of buckets, for functions that use them.
type starts struct {
	// b are the buckets. nil: there are no start timestamps, or they aren't used.
	b *rollup.Buckets
	// overlaps is set if some sample has a start timestamp before the time of the previous sample. Prometheus adds a
	// warning for these samples. Of the first i buckets, inside[i] contain such a sample after their first sample, and
	// between[i] start with one.
	overlaps        bool
	inside, between []int32
}

// setBuckets sets s to the start timestamps of b.
func (s *starts) setBuckets(b *rollup.Buckets, use bool) {
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

// overlapsBefore reports whether the start timestamp of the first sample of bucket i is before the time of the previous
// bucket's last sample.
func (s *starts) overlapsBefore(b *rollup.Buckets, i int) bool {
	return s.startChanges(i) && b.StartOverlaps(i-1, i)
}

// startChanges reports whether the first sample of bucket i has another start timestamp than the last sample of the
// previous bucket. This is rare.
func (s *starts) startChanges(i int) bool {
	return s.b != nil && i > 0 && s.b.FirstST[i] != s.b.LastST[i-1]
}

// hasOverlap reports whether some sample in the buckets [lo, hi) overlaps the sample before it in these buckets.
func (s *starts) hasOverlap(lo, hi int) bool {
	return s.overlaps && s.inside[hi]-s.inside[lo]+s.between[hi]-s.between[lo+1] > 0
}

// isReset reports whether the start timestamp of the first sample of bucket i is after the last sample of the previous
// bucket. Both samples must be of the same kind.
func (s *starts) isReset(i int) bool { return s.startChanges(i) && s.b.IsStartReset(i-1, i) }

// sinceStart returns the time from the start timestamp of the first sample of bucket i to that sample, in milliseconds.
// It returns 0 if the start timestamp isn't later than after.
func (s *starts) sinceStart(i int, after int64) int64 {
	if s.b == nil {
		return 0
	}
	return rollup.SinceStart(s.b.FirstST[i], s.b.FirstT[i], after)
}

// correction returns the correction for the resets inside bucket i that can be detected only by start timestamps.
func (s *starts) correction(i int) float64 {
	if s.b == nil {
		return 0
	}
	return s.b.StartCorrection[i]
}

// resets returns the number of resets inside bucket i that can be detected only by start timestamps.
func (s *starts) resets(i int) float64 {
	if s.b == nil {
		return 0
	}
	return float64(s.b.StartResets[i])
}

// startsWithReset reports whether the second histogram of a bucket is a counter reset.
func (s *starts) startsWithReset(h *rollup.Histograms) bool {
	return h.FirstReset || s.b != nil && h.FirstStartReset
}

// corrections returns the corrections of the increase of histograms for the resets in a bucket. Each correction may be
// nil.
func (s *starts) corrections(h *rollup.Histograms) [2]*histogram.FloatHistogram {
	if s.b == nil {
		return [2]*histogram.FloatHistogram{h.Correction}
	}
	return [2]*histogram.FloatHistogram{h.Correction, h.StartCorrection}
}

// areCorrectionsReconciled reports whether custom bounds were reconciled in one of the histograms that corrections
// returns.
func (s *starts) areCorrectionsReconciled(h *rollup.Histograms) bool {
	reconciled := h.Reconciled
	if s.b == nil {
		reconciled &^= rollup.ReconciledStartCorrection
	}
	return reconciled&^rollup.ReconciledSum != 0
}
