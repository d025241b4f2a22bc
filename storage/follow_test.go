package storage

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlace(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for name, c := range map[string]struct {
		do   func(p *streamProgress)
		next int64
		gaps []gap
	}{
		"in order": {
			func(p *streamProgress) { p.markRead(0, at(1)); p.markRead(1, at(2)) }, 2, nil},
		"begins later": {
			func(p *streamProgress) { p.markRead(3, at(1)) }, 4, []gap{{0, 2, at(1)}}},
		"skips, and skips again": {
			func(p *streamProgress) { p.markRead(0, at(1)); p.markRead(2, at(2)); p.markRead(5, at(3)) }, 6,
			[]gap{{1, 1, at(2)}, {3, 4, at(3)}}},
		"a tail without rows": {
			func(p *streamProgress) { p.addGap(3, at(1)) }, 3, []gap{{0, 2, at(1)}}},
		"a tail that is known": {
			func(p *streamProgress) { p.markRead(4, at(1)); p.addGap(3, at(2)); p.addGap(5, at(2)) }, 5,
			[]gap{{0, 3, at(1)}}},
		"fills a gap": {
			func(p *streamProgress) { p.addGap(1, at(1)); p.markRead(0, at(2)) }, 1, nil},
		"fills a gap's beginning": {
			func(p *streamProgress) { p.addGap(3, at(1)); p.markRead(0, at(2)) }, 3, []gap{{1, 2, at(1)}}},
		"fills a gap's end": {
			func(p *streamProgress) { p.addGap(3, at(1)); p.markRead(2, at(2)) }, 3, []gap{{0, 1, at(1)}}},
		"cuts a gap in two": {
			func(p *streamProgress) { p.addGap(5, at(1)); p.markRead(2, at(2)) }, 5, []gap{{0, 1, at(1)}, {3, 4, at(1)}}},
		"fills the second of two gaps": {
			func(p *streamProgress) { p.markRead(1, at(1)); p.markRead(3, at(2)); p.markRead(2, at(3)) }, 4,
			[]gap{{0, 0, at(1)}}},
		"takes again what it has": {
			func(p *streamProgress) { p.markRead(1, at(1)); p.markRead(1, at(2)) }, 2, []gap{{0, 0, at(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			var p streamProgress
			c.do(&p)
			require.Equal(t, c.next, p.next)
			if len(c.gaps) == 0 {
				require.Empty(t, p.gaps)
			} else {
				require.Equal(t, c.gaps, p.gaps)
			}
		})
	}
}

// TestStreamProgressFindsUnreadNumbers marks random numbers as read, and compares the unread numbers with a plain set.
func TestStreamProgressFindsUnreadNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var p streamProgress
		const n = 24
		took := map[int64]bool{}
		for range rng.IntN(40) {
			if seq := rng.Int64N(n); rng.IntN(5) == 0 {
				p.addGap(seq, time.Time{})
			} else if p.isUnread(seq) {
				p.markRead(seq, time.Time{})
				took[seq] = true
			}
			for seq := range int64(n) {
				require.Equal(t, !took[seq], p.isUnread(seq), "%d of %+v", seq, p)
			}
			for i, g := range p.gaps {
				require.LessOrEqual(t, g.from, g.to, "gap %d of %+v", i, p)
				require.Less(t, g.to, p.next)
			}
		}
	}
}
