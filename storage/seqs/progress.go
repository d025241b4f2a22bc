// Package seqs records which numbers of a stream were read.
//
// The follower of package storage reads the rows of other processes' streams. The rows of a stream are numbered, and
// become visible in any order. A StreamProgress is the set of numbers that the follower has read. A caller must not use
// a StreamProgress concurrently.
//
//	0 1 2 3 4 5 6 7 8 9       next to read: 7
//	r r . r . . r             gaps: 2, 4-5
package seqs

import (
	"slices"
	"time"
)

// StreamProgress records which numbers of a stream were read: all numbers below Next, except those in Gaps. The zero
// value is the progress of a stream of which nothing was read.
type StreamProgress struct {
	Next int64
	Gaps []Gap
}

// Gap is a range of numbers, including From and To, that were missing at Since, when a later number was read.
type Gap struct {
	From, To int64
	Since    time.Time
}

// IsUnread reports whether a number hasn't been read.
func (p *StreamProgress) IsUnread(seq int64) bool {
	return seq >= p.Next || slices.ContainsFunc(p.Gaps, func(g Gap) bool { return seq >= g.From && seq <= g.To })
}

// MarkRead records that a number was read.
func (p *StreamProgress) MarkRead(seq int64, now time.Time) {
	if seq >= p.Next {
		p.AddGap(seq, now)
		p.Next = seq + 1
		return
	}
	for i, g := range p.Gaps {
		if seq < g.From || seq > g.To {
			continue
		}
		var rest []Gap
		if g.From < seq {
			rest = append(rest, Gap{g.From, seq - 1, g.Since})
		}
		if seq < g.To {
			rest = append(rest, Gap{seq + 1, g.To, g.Since})
		}
		p.Gaps = slices.Replace(p.Gaps, i, i+1, rest...)
		return
	}
}

// AddGap adds a gap from Next to to-1.
func (p *StreamProgress) AddGap(to int64, now time.Time) {
	if to > p.Next {
		p.Gaps = append(p.Gaps, Gap{p.Next, to - 1, now})
		p.Next = to
	}
}

// RemoveGaps removes the gaps that were found before a time, as if their numbers had been read.
func (p *StreamProgress) RemoveGaps(before time.Time) {
	p.Gaps = slices.DeleteFunc(p.Gaps, func(g Gap) bool { return g.Since.Before(before) })
}
