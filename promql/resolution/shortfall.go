package resolution

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage/rollup"
)

// ErrRawExpired is returned if a function requires raw samples and these have expired.
var ErrRawExpired = errors.New("promql: raw samples have expired")

func (c *choice) refusal() error {
	return fmt.Errorf(
		"%w: there are none before %s, and %s can't be computed from rollups (%s). Query a later time, or use rate, delta or an aggregation over time",
		ErrRawExpired, FormatTime(c.Boundary[rollup.Raw]), c.fn.Name, c.fn.Why,
	)
}

// Shortfall describes the difference between a result and the result of raw samples, which have expired or weren't
// read. The shortfalls of all fragments of a query are merged.
type Shortfall struct {
	// From and To are the first and last right edge of the windows that differ, in milliseconds.
	From, To int64
	// Raw is the oldest time of raw samples, in milliseconds.
	Raw int64
	// Widest is the resolution of the widest buckets that were read.
	Widest rollup.Resolution
	// Moved is set if windows were moved to bucket edges, and Widened if they were made longer.
	Moved, Widened bool
	// Cut is set if window edges cut buckets.
	Cut bool
	// Approximated is set if a function was applied to samples reconstructed from buckets.
	Approximated bool
	// Extended is set if anchored or smoothed ranges were computed from samples reconstructed from buckets. ErrorBound
	// bounds their errors.
	Extended bool
	// Sketched is set if a function was applied to samples reconstructed from sketches.
	Sketched bool
	// LeftOut is set if some steps have no value because their values can be computed only from samples. It is set by
	// the reader of buckets, never by Choose.
	LeftOut bool
	// Hidden is set if there are times for which only buckets are left, and the query excludes buckets.
	Hidden bool
	// MovedBy is the sum of the shifts of both edges of a window, and MovedOf is the length of this window, in
	// milliseconds. The window is the one with the largest ratio of MovedBy to MovedOf.
	MovedBy, MovedOf int64
	// SnappedBy and SnappedOf are like MovedBy and MovedOf, for windows that were moved although their raw samples
	// exist. SnappedBy is 0 if no such window was moved. Snapped is the resolution of the buckets.
	SnappedBy, SnappedOf int64
	Snapped              rollup.Resolution
	// ErrorBound bounds the error of values whose windows were moved or widened, or whose buckets were cut.
	ErrorBound ErrorBound
}

// ErrorBound is a bound on the error of values.
type ErrorBound struct {
	// Bounded is set if the bound was computed. Unknown is set if some values have no bound.
	Bounded, Unknown bool
	// By bounds the error of the values of each series, SumBy the error of the sum of all series.
	By, SumBy float64
}

// IsDegraded reports whether any value is missing, or computed from something other than raw samples or whole buckets
// of the requested window.
func (s Shortfall) IsDegraded() bool {
	return s.Moved || s.Widened || s.Cut || s.Approximated || s.Extended || s.Sketched || s.LeftOut || s.Hidden
}

// IsNone reports whether the result equals the result of raw samples.
func (s Shortfall) IsNone() bool { return !s.IsDegraded() && s.SnappedBy == 0 }

// Merge merges the shortfall of another fragment of the query into s.
func (s *Shortfall) Merge(other Shortfall) {
	if isLargerRatio(other.SnappedBy, other.SnappedOf, s.SnappedBy, s.SnappedOf) {
		s.SnappedBy, s.SnappedOf, s.Snapped = other.SnappedBy, other.SnappedOf, other.Snapped
	}
	s.ErrorBound = s.ErrorBound.merge(other.ErrorBound)
	s.ErrorBound.Unknown = s.ErrorBound.Unknown || other.hasErrorBound() && !other.ErrorBound.Bounded
	switch {
	case !other.IsDegraded():
		return
	case !s.IsDegraded():
		other.SnappedBy, other.SnappedOf, other.Snapped = s.SnappedBy, s.SnappedOf, s.Snapped
		other.ErrorBound = s.ErrorBound
		*s = other
		return
	}
	s.From, s.To, s.Raw = min(s.From, other.From), max(s.To, other.To), max(s.Raw, other.Raw)
	s.Widest = max(s.Widest, other.Widest)
	s.Moved, s.Widened, s.Cut = s.Moved || other.Moved, s.Widened || other.Widened, s.Cut || other.Cut
	if isLargerRatio(other.MovedBy, other.MovedOf, s.MovedBy, s.MovedOf) {
		s.MovedBy, s.MovedOf = other.MovedBy, other.MovedOf
	}
	s.Approximated, s.LeftOut = s.Approximated || other.Approximated, s.LeftOut || other.LeftOut
	s.Hidden, s.Sketched = s.Hidden || other.Hidden, s.Sketched || other.Sketched
	s.Extended = s.Extended || other.Extended
}

// merge returns a bound that applies to the values of b and of other.
func (b ErrorBound) merge(other ErrorBound) ErrorBound {
	return ErrorBound{
		Bounded: b.Bounded || other.Bounded, Unknown: b.Unknown || other.Unknown, By: max(b.By, other.By),
		SumBy: max(b.SumBy, other.SumBy),
	}
}

// hasErrorBound reports whether ErrorBound applies: windows were moved or widened, buckets were cut, or anchored or
// smoothed ranges were computed from reconstructed samples.
func (s *Shortfall) hasErrorBound() bool {
	return s.Moved || s.Widened || s.Cut || s.Extended || s.SnappedBy > 0
}

// boundText describes the error bound. It returns "" if the bound is unknown or values are missing. It
// doesn't say which values exist: if a window is as short as a gap between samples, it may have a value with raw
// samples but not with reconstructed ones, or the reverse.
func (s *Shortfall) boundText() string {
	const presence = "; next to gaps between samples, values may be missing or additional"
	switch o := s.ErrorBound; {
	case s.Extended && s.Approximated: // ErrorBound excludes the errors of other functions of reconstructed samples.
		return ""
	case !s.hasErrorBound() || !o.Bounded || o.Unknown || s.LeftOut || s.Hidden:
		return ""
	case o.By == 0 && o.SumBy == 0:
		return "; no value differs by that" + presence
	case o.By == o.SumBy:
		return "; values computed from rollups differ by at most " + formatRoundedUp(o.By) + presence
	default:
		return "; values computed from rollups differ by at most " + formatRoundedUp(o.By) +
			" per series, the sum of all series by at most " + formatRoundedUp(o.SumBy) + presence
	}
}

// formatRoundedUp formats v with three significant digits, rounded up.
func formatRoundedUp(v float64) string {
	text := strconv.FormatFloat(v, 'g', 3, 64)
	if rounded, err := strconv.ParseFloat(text, 64); err == nil && rounded < v {
		return strconv.FormatFloat(min(v*1.0051, math.MaxFloat64), 'g', 3, 64)
	}
	return text
}

// isLargerRatio reports whether the ratio by/of is larger than otherBy/otherOf.
func isLargerRatio(by, of, otherBy, otherOf int64) bool {
	return by > 0 && (otherBy == 0 || float64(by)/float64(of) > float64(otherBy)/float64(otherOf))
}

// movedText describes a shift of window edges. The shift, by, and the length of the windows, of, are in milliseconds.
func movedText(by, of int64) string {
	return fmt.Sprintf("edges of %s windows are moved by up to %s (%.2g %% of the range)",
		formatDuration(of), formatDuration(by), 100*float64(by)/float64(of))
}

// formatDuration formats milliseconds for people: 6h, not 6h0m0s.
func formatDuration(ms int64) string {
	s := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Info returns an annotation that describes the shortfall to the user, or nil if IsNone.
func (s Shortfall) Info() error {
	if s.IsNone() {
		return nil
	}
	snapped := ""
	if s.SnappedBy > 0 {
		snapped = fmt.Sprintf("%s to bucket edges of %s, to avoid reading all samples; resolution=exact reads them",
			movedText(s.SnappedBy, s.SnappedOf), s.Snapped)
		if !s.IsDegraded() {
			return fmt.Errorf("%w: %s%s", annotations.PromQLInfo, snapped, s.boundText())
		}
		snapped = "; where raw samples exist, " + snapped
	}
	buckets := "buckets of up to " + s.Widest.String()
	var what []string
	if s.Moved {
		what = append(what, movedText(s.MovedBy, s.MovedOf)+" to the edges of "+buckets)
	}
	if s.Widened {
		what = append(what, "ranges and lookbacks that are shorter than "+buckets+
			", or not aligned to them, are widened to whole buckets")
	}
	if s.Cut {
		what = append(what, "window edges within "+buckets+
			" are interpolated; the error is at most the content of the first and the last bucket of the window")
	}
	if s.Approximated || s.Extended {
		what = append(
			what, "functions that rollups don't support are computed from samples reconstructed from "+buckets,
		)
	}
	if s.Sketched {
		what = append(
			what, "quantiles are computed from sketches in "+buckets+", with each sample within 1 % of its value",
		)
	}
	if s.LeftOut {
		what = append(what, "steps that need raw samples have no value")
	}
	if s.Hidden {
		what = append(what, "no data is returned, because the query excludes wider buckets")
	}
	return fmt.Errorf("%w: raw samples before %s have expired; from %s to %s %s%s",
		annotations.PromQLInfo, FormatTime(s.Raw), FormatTime(s.From), FormatTime(s.To), strings.Join(what, "; "),
		snapped+s.boundText())
}

// MissingError is a warning that carries a shortfall to the collector of warnings. The collector merges it with other
// shortfalls.
type MissingError struct{ Shortfall }

// Error implements error.
func (e *MissingError) Error() string { return e.Info().Error() }

// FormatTime formats a time in milliseconds as RFC 3339 in UTC.
func FormatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// shortfall returns the merged shortfall of the segments.
func (c *choice) shortfall(segments []Segment) Shortfall {
	var all Shortfall
	for _, s := range segments {
		all.Merge(c.snappedShortfall(s))
		first := max(s.FromStep, c.begun) // Earlier windows have no samples to miss.
		last := min(s.ToStep, c.firstCovered[rollup.Raw]) - 1
		if first > last || s.IsExact() {
			continue
		}
		all.Merge(Shortfall{
			From: c.rightEdge(first), To: c.rightEdge(last), Raw: c.Boundary[rollup.Raw], Widest: s.Resolution,
			Moved: s.Fit == FitSnapped, Widened: s.Fit == fitWidened,
			Cut:          s.Approximate && s.Fit == FitRagged,
			Approximated: s.Approximate && s.Fit == FitAligned && !s.Sketched, Sketched: s.Sketched,
		}.withMove(c.moveOf(s)))
	}
	all.Merge(c.hiddenShortfall())
	return all
}

// withMove returns the shortfall with MovedBy and MovedOf set.
func (s Shortfall) withMove(by, of int64) Shortfall {
	s.MovedBy, s.MovedOf = by, of
	return s
}

// moveOf returns the drift of a segment and the length of its windows. Both are 0 if the windows weren't moved.
func (c *choice) moveOf(s Segment) (by, of int64) {
	if s.Fit != FitSnapped {
		return 0, 0
	}
	return c.maxDrift(s), c.Range
}

// snappedShortfall returns the shortfall of windows that modeAuto moved although their raw samples exist.
func (c *choice) snappedShortfall(s Segment) Shortfall {
	if s.Fit != FitSnapped || s.ToStep <= c.firstCovered[rollup.Raw] || c.Mode != modeAuto {
		return Shortfall{}
	}
	return Shortfall{SnappedBy: c.maxDrift(s), SnappedOf: c.Range, Snapped: s.Resolution}
}

// hiddenShortfall returns the shortfall of windows with times for which only resolutions that the request excludes have
// data.
func (c *choice) hiddenShortfall() (all Shortfall) {
	for _, k := range c.classes {
		all.Merge(c.hiddenShortfallOf(k))
	}
	return all
}

func (c *choice) hiddenShortfallOf(k keptClass) Shortfall {
	older := int64(math.MaxInt64)
	for _, res := range resolutions {
		if !c.allowed[res] {
			older = min(older, max(k.boundary[res], c.Oldest))
		}
	}
	last := c.steps() - 1
	for last >= 0 && c.rightEdge(last)-c.Range+1 >= k.oldest {
		last--
	}
	if older >= k.oldest || last < 0 || c.rightEdge(last) < older {
		return Shortfall{}
	}
	return Shortfall{From: c.From, To: c.rightEdge(last), Raw: c.Boundary[rollup.Raw], Hidden: true}
}

// sortAndCompact sorts times and removes duplicates.
func sortAndCompact(times []int64) []int64 {
	slices.Sort(times)
	return slices.Compact(times)
}
