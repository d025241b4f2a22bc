package membership

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
)

const (
	// maxStagedSpans bounds how many spans of time the clock's row has.
	maxStagedSpans = 8
	// spanSlack is how far from a durable span something may be staged before the span is written anew, milliseconds.
	spanSlack = format.DayMS / 2
)

// TimeSpan is a span of time, both ends within it, milliseconds.
type TimeSpan struct {
	From int64 `json:"from_ms"`
	To   int64 `json:"to_ms"`
}

// TimeSpans are in the order of time, and lie further than MaxLeap apart. A clock that leaps makes a new one; a clock
// that runs on makes the last one longer.
type TimeSpans []TimeSpan

// with returns the spans with one more.
func (s TimeSpans) with(span TimeSpan) TimeSpans {
	if slices.ContainsFunc(s, func(have TimeSpan) bool { return have.From <= span.From && span.To <= have.To }) {
		return s
	}
	all := append(slices.Clone(s), span)
	slices.SortFunc(all, func(a, b TimeSpan) int {
		if a.From < b.From {
			return -1
		}
		return 1
	})
	merged := all[:1]
	for _, next := range all[1:] {
		if last := &merged[len(merged)-1]; next.From-last.To <= MaxLeap.Milliseconds() {
			last.To = max(last.To, next.To)
		} else {
			merged = append(merged, next)
		}
	}
	for len(merged) > maxStagedSpans { // What lies between the nearest two is looked through in vain.
		at := 1
		for i := 2; i < len(merged); i++ {
			if merged[i].From-merged[i-1].To < merged[at].From-merged[at-1].To {
				at = i
			}
		}
		merged[at-1].To = merged[at].To
		merged = slices.Delete(merged, at, at+1)
	}
	return merged
}

// cover reports whether all that lies in a span is found where the spans, and spanSlack around them, are looked through.
func (s TimeSpans) cover(span TimeSpan) bool {
	return slices.ContainsFunc(s, func(have TimeSpan) bool {
		return have.From-spanSlack <= span.From && span.To <= have.To+spanSlack
	})
}

// assumedSpans are those of a store whose row has none: it is new, or was in use by an earlier release. It has staged
// something at any time since it was created, but for those that a doubted clock has skipped.
func (c *CheckedClock) assumedSpans() TimeSpans {
	now, expected := c.read.UnixMilli(), c.expected.UnixMilli()
	born := c.o.Created.UnixMilli() - format.YoungMS
	if d := c.doubt; d != nil && d.by > 0 && d.clock.UnixMilli() > expected {
		leapt := d.clock.UnixMilli()
		return TimeSpans{}.with(TimeSpan{min(born, expected), expected}).with(TimeSpan{leapt - format.YoungMS, max(leapt, now)})
	}
	until := max(now, expected)
	return TimeSpans{{min(born, until), until}}
}

// KeepSpans makes sure that the next process finds the stage rows of these times: of samples the times of their slots, of
// pending rows the hours of arrival.
func (c *CheckedClock) KeepSpans(ctx context.Context, spans []TimeSpan) error {
	c.mu.Lock()
	due := false
	if c.alone {
		for _, span := range spans {
			c.staged = c.staged.with(span)
			due = due || !c.stagedKept.cover(span)
		}
	}
	c.mu.Unlock()
	if !due {
		return nil
	}
	return c.KeepSeen(ctx)
}

// spansDue reports whether there is a span that the next process wouldn't look through. It needs the lock.
func (c *CheckedClock) spansDue() bool {
	return slices.ContainsFunc(c.staged, func(span TimeSpan) bool { return !c.stagedKept.cover(span) })
}

// StagedTimes returns the times at which something may be staged, in order. Where several processes stage, that is any
// time up to a day from now: another clock may run ahead by less. A doubted clock doesn't count, as it stages nothing: a process whose
// clock shows 2099 must not look through 73 years.
func (c *CheckedClock) StagedTimes() TimeSpans {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if !c.alone || len(c.staged) == 0 {
		until := c.expected.UnixMilli()
		if c.doubt == nil {
			until = max(until, now.UnixMilli())
		}
		return TimeSpans{{-format.MaxTime, until + format.DayMS}}
	}
	around := slices.Clone(c.staged)
	for i := range around {
		around[i].From -= format.DayMS
		around[i].To += format.DayMS
	}
	return around
}

// Steps yields the numbers of slots, or of hours, that spans touch, in order, from the lowest on, which is among them.
func (s TimeSpans) Steps(lowest int64, number func(ms int64) int64) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		if !yield(lowest) {
			return
		}
		next := lowest + 1
		for _, span := range s {
			if span.To < span.From {
				continue
			}
			last := number(span.To)
			for next = max(next, number(span.From)); next <= last; next++ {
				if !yield(next) {
					return
				}
			}
		}
	}
}
