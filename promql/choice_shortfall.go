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
	// Moved, Widened, Approximated, LeftOut and Hidden say what happened: windows were moved to the edges of
	// buckets, or made longer; a function saw two samples a bucket; steps that only samples answer have no value
	// (which evaluate tells, not choose); or the query wanted no buckets where only they are left.
	Moved, Widened, Approximated, LeftOut, Hidden bool
}

// none says that there is nothing to tell.
func (s shortfall) none() bool {
	return !s.Moved && !s.Widened && !s.Approximated && !s.LeftOut && !s.Hidden
}

// merge adds what another part of the query lacks.
func (s *shortfall) merge(other shortfall) {
	switch {
	case other.none():
		return
	case s.none():
		*s = other
		return
	}
	s.From, s.To, s.Raw = min(s.From, other.From), max(s.To, other.To), max(s.Raw, other.Raw)
	s.Widest = max(s.Widest, other.Widest)
	s.Moved, s.Widened = s.Moved || other.Moved, s.Widened || other.Widened
	s.Approximated, s.LeftOut = s.Approximated || other.Approximated, s.LeftOut || other.LeftOut
	s.Hidden = s.Hidden || other.Hidden
}

// info returns the annotation that tells the user, nil if there is nothing to tell.
func (s shortfall) info() error {
	if s.none() {
		return nil
	}
	buckets := "buckets of up to " + s.Widest.String()
	var what []string
	if s.Moved {
		what = append(what, "windows are moved to the edges of "+buckets)
	}
	if s.Widened {
		what = append(what, "ranges and lookbacks that are shorter, or don't fit, are widened to "+buckets)
	}
	if s.Approximated {
		what = append(what, "functions that buckets can't answer see the first and the last sample of each of "+buckets)
	}
	if s.LeftOut {
		what = append(what, "steps of which only samples could tell have no value")
	}
	if s.Hidden {
		what = append(what, "nothing is read, as the query asks for no wider buckets")
	}
	return fmt.Errorf("%w: raw samples before %s are gone; from %s to %s %s",
		annotations.PromQLInfo, formatTime(s.Raw), formatTime(s.From), formatTime(s.To), strings.Join(what, "; "))
}

// missingError tells a collector of warnings of a shortfall, which it merges with others.
type missingError struct{ shortfall }

func (e *missingError) Error() string { return e.info().Error() }

func formatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// shortfall gathers what the segments lack for want of raw samples.
func (c *choice) shortfall(segments []segment) shortfall {
	var all shortfall
	for _, s := range segments {
		first := max(s.FromStep, c.begun) // Windows before miss nothing.
		last := min(s.ToStep, c.whole[rollup.Raw]) - 1
		if first > last || s.isExact() {
			continue
		}
		all.merge(shortfall{
			From: c.right(first), To: c.right(last), Raw: c.Horizon[rollup.Raw], Widest: s.Resolution,
			Moved: s.Edges == snapped, Widened: s.Edges == widened, Approximated: s.Approximate,
		})
	}
	all.merge(c.hidden())
	return all
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
