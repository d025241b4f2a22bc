package promql

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage/rollup"
)

// errRawGone says that a function can't be answered over times whose raw samples are gone.
var errRawGone = errors.New("promql: raw samples are gone")

func (c *choice) refusal() error {
	return fmt.Errorf("%w before %s, and rollups can't answer %s (%s): "+
		"ask for a later time, or use rate, delta or an aggregate over time",
		errRawGone, formatTime(c.Horizon[rollup.Raw]), c.fn.name, c.fn.why)
}

// shortfall says in what an answer differs from that of raw samples because these are gone. Those of a query's
// parts are merged into one.
type shortfall struct {
	// From and To are the first and the last right edge of the windows that differ, milliseconds.
	From, To int64
	// Raw is the oldest time of raw samples, milliseconds.
	Raw int64
	// Widest is the greatest width of a bucket that answers.
	Widest rollup.Resolution
	// Moved, Widened, Cut, Approximated, LeftOut and Hidden say what happened: windows were moved to the edges of
	// buckets, or made longer; they end inside buckets, which were cut; a function saw samples that are made of buckets; steps that
	// only samples answer have no value (which evaluate tells, not choose); or the query wanted no buckets where only they are left.
	Moved, Widened, Cut, Approximated, LeftOut, Hidden bool
	// MovedBy is by how much edges of windows that are MovedOf long were moved at most, in all, milliseconds: the greatest share
	// of those of the query.
	MovedBy, MovedOf int64
	// SnappedBy is by how much edges were moved at most, in all, of windows that are SnappedOf long and whose samples are there,
	// milliseconds; 0: none were. Snapped is the width of the buckets.
	SnappedBy, SnappedOf int64
	Snapped              rollup.Resolution
}

// lacks says whether raw samples were missing.
func (s shortfall) lacks() bool {
	return s.Moved || s.Widened || s.Cut || s.Approximated || s.LeftOut || s.Hidden
}

// none says that there is nothing to tell.
func (s shortfall) none() bool { return !s.lacks() && s.SnappedBy == 0 }

// merge adds what another part of the query lacks.
func (s *shortfall) merge(other shortfall) {
	if moreOf(other.SnappedBy, other.SnappedOf, s.SnappedBy, s.SnappedOf) {
		s.SnappedBy, s.SnappedOf, s.Snapped = other.SnappedBy, other.SnappedOf, other.Snapped
	}
	switch {
	case !other.lacks():
		return
	case !s.lacks():
		other.SnappedBy, other.SnappedOf, other.Snapped = s.SnappedBy, s.SnappedOf, s.Snapped
		*s = other
		return
	}
	s.From, s.To, s.Raw = min(s.From, other.From), max(s.To, other.To), max(s.Raw, other.Raw)
	s.Widest = max(s.Widest, other.Widest)
	s.Moved, s.Widened, s.Cut = s.Moved || other.Moved, s.Widened || other.Widened, s.Cut || other.Cut
	if moreOf(other.MovedBy, other.MovedOf, s.MovedBy, s.MovedOf) {
		s.MovedBy, s.MovedOf = other.MovedBy, other.MovedOf
	}
	s.Approximated, s.LeftOut = s.Approximated || other.Approximated, s.LeftOut || other.LeftOut
	s.Hidden = s.Hidden || other.Hidden
}

// moreOf says whether by, of so much, is a greater share than another.
func moreOf(by, of, otherBy, otherOf int64) bool {
	return by > 0 && (otherBy == 0 || float64(by)/float64(of) > float64(otherBy)/float64(otherOf))
}

// movedText says by how much edges of windows are moved.
func movedText(by, of int64) string {
	return fmt.Sprintf("edges of windows of %v are moved by up to %v (%.2g %% of the range)",
		time.Duration(of)*time.Millisecond, time.Duration(by)*time.Millisecond, 100*float64(by)/float64(of))
}

// info returns the annotation that tells the user, nil if there is nothing to tell.
func (s shortfall) info() error {
	if s.none() {
		return nil
	}
	snapped := ""
	if s.SnappedBy > 0 {
		snapped = fmt.Sprintf("%s to those of buckets of %s, so as not to read all samples; resolution=exact reads them",
			movedText(s.SnappedBy, s.SnappedOf), s.Snapped)
		if !s.lacks() {
			return fmt.Errorf("%w: %s", annotations.PromQLInfo, snapped)
		}
		snapped = "; where samples are there, " + snapped
	}
	buckets := "buckets of up to " + s.Widest.String()
	var what []string
	if s.Moved {
		what = append(what, movedText(s.MovedBy, s.MovedOf)+" to those of "+buckets)
	}
	if s.Widened {
		what = append(what, "ranges and lookbacks that are shorter, or don't fit, are widened to "+buckets)
	}
	if s.Cut {
		what = append(what, "edges of windows lie inside "+buckets+", which are cut as samples made of buckets say: "+
			"a value is off by at most what is in the buckets at its window's ends")
	}
	if s.Approximated {
		what = append(what, "what buckets can't answer is computed from samples made of "+buckets)
	}
	if s.LeftOut {
		what = append(what, "steps of which only samples could tell have no value")
	}
	if s.Hidden {
		what = append(what, "nothing is read, as the query asks for no wider buckets")
	}
	return fmt.Errorf("%w: raw samples before %s are gone; from %s to %s %s%s",
		annotations.PromQLInfo, formatTime(s.Raw), formatTime(s.From), formatTime(s.To), strings.Join(what, "; "), snapped)
}

// missingError tells a collector of warnings of a shortfall, which it merges with others.
type missingError struct{ shortfall }

func (e *missingError) Error() string { return e.info().Error() }

func formatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// shortfall gathers what the segments lack for want of raw samples.
func (c *choice) shortfall(segments []segment) shortfall {
	var all shortfall
	for _, s := range segments {
		all.merge(c.snappedIn(s))
		first := max(s.FromStep, c.begun) // Windows before miss nothing.
		last := min(s.ToStep, c.whole[rollup.Raw]) - 1
		if first > last || s.isExact() {
			continue
		}
		all.merge(shortfall{
			From: c.right(first), To: c.right(last), Raw: c.Horizon[rollup.Raw], Widest: s.Resolution,
			Moved: s.Edges == snapped, Widened: s.Edges == widened,
			Cut: s.Approximate && s.Edges == ragged, Approximated: s.Approximate && s.Edges == onEdges,
		}.movedBy(c.driftOf(s)))
	}
	all.merge(c.hidden())
	return all
}

// movedBy returns the shortfall with how far edges were moved.
func (s shortfall) movedBy(by, of int64) shortfall {
	s.MovedBy, s.MovedOf = by, of
	return s
}

// driftOf returns by how much edges of windows, of what length, were moved; 0: they weren't.
func (c *choice) driftOf(s segment) (by, of int64) {
	if s.Edges != snapped {
		return 0, 0
	}
	return c.drifts(s), c.Range
}

// snappedIn tells of windows of a segment that were moved, unasked, though their samples are there.
func (c *choice) snappedIn(s segment) shortfall {
	if s.Edges != snapped || s.ToStep <= c.whole[rollup.Raw] || c.Mode != modeAuto {
		return shortfall{}
	}
	return shortfall{SnappedBy: c.drifts(s), SnappedOf: c.Range, Snapped: s.Resolution}
}

// hidden says whether older times are kept than the request allows to read, and any window asks for them.
func (c *choice) hidden() (all shortfall) {
	for _, k := range c.classes {
		all.merge(c.hiddenOf(k))
	}
	return all
}

func (c *choice) hiddenOf(k keptClass) shortfall {
	older := int64(math.MaxInt64)
	for _, res := range resolutions {
		if !c.allowed[res] {
			older = min(older, max(k.horizon[res], c.Oldest))
		}
	}
	last := c.steps() - 1
	for last >= 0 && c.right(last)-c.Range+1 >= k.oldest {
		last--
	}
	if older >= k.oldest || last < 0 || c.right(last) < older {
		return shortfall{}
	}
	return shortfall{From: c.From, To: c.right(last), Raw: c.Horizon[rollup.Raw], Hidden: true}
}

// sortedOnce sorts times and leaves out what stands twice.
func sortedOnce(times []int64) []int64 {
	slices.Sort(times)
	return slices.Compact(times)
}
