package seqs

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgress(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for name, c := range map[string]struct {
		do   func(p *StreamProgress)
		next int64
		gaps []Gap
	}{
		"in order": {
			func(p *StreamProgress) { p.MarkRead(0, at(1)); p.MarkRead(1, at(2)) }, 2, nil},
		"begins later": {
			func(p *StreamProgress) { p.MarkRead(3, at(1)) }, 4, []Gap{{0, 2, at(1)}}},
		"skips, and skips again": {
			func(p *StreamProgress) { p.MarkRead(0, at(1)); p.MarkRead(2, at(2)); p.MarkRead(5, at(3)) }, 6,
			[]Gap{{1, 1, at(2)}, {3, 4, at(3)}}},
		"a tail without rows": {
			func(p *StreamProgress) { p.AddGap(3, at(1)) }, 3, []Gap{{0, 2, at(1)}}},
		"a tail that is known": {
			func(p *StreamProgress) { p.MarkRead(4, at(1)); p.AddGap(3, at(2)); p.AddGap(5, at(2)) }, 5,
			[]Gap{{0, 3, at(1)}}},
		"fills a gap": {
			func(p *StreamProgress) { p.AddGap(1, at(1)); p.MarkRead(0, at(2)) }, 1, nil},
		"fills a gap's beginning": {
			func(p *StreamProgress) { p.AddGap(3, at(1)); p.MarkRead(0, at(2)) }, 3, []Gap{{1, 2, at(1)}}},
		"fills a gap's end": {
			func(p *StreamProgress) { p.AddGap(3, at(1)); p.MarkRead(2, at(2)) }, 3, []Gap{{0, 1, at(1)}}},
		"cuts a gap in two": {
			func(p *StreamProgress) { p.AddGap(5, at(1)); p.MarkRead(2, at(2)) }, 5,
			[]Gap{{0, 1, at(1)}, {3, 4, at(1)}}},
		"fills the second of two gaps": {
			func(p *StreamProgress) { p.MarkRead(1, at(1)); p.MarkRead(3, at(2)); p.MarkRead(2, at(3)) }, 4,
			[]Gap{{0, 0, at(1)}}},
		"takes again what it has": {
			func(p *StreamProgress) { p.MarkRead(1, at(1)); p.MarkRead(1, at(2)) }, 2, []Gap{{0, 0, at(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			var p StreamProgress
			c.do(&p)
			require.Equal(t, c.next, p.Next)
			if len(c.gaps) == 0 {
				require.Empty(t, p.Gaps)
			} else {
				require.Equal(t, c.gaps, p.Gaps)
			}
		})
	}
}

// TestProgressFindsUnreadNumbers marks random numbers as read, and compares the unread numbers with a plain set.
func TestProgressFindsUnreadNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var p StreamProgress
		const n = 24
		took := map[int64]bool{}
		for range rng.IntN(40) {
			if seq := rng.Int64N(n); rng.IntN(5) == 0 {
				p.AddGap(seq, time.Time{})
			} else if p.IsUnread(seq) {
				p.MarkRead(seq, time.Time{})
				took[seq] = true
			}
			for seq := range int64(n) {
				require.Equal(t, !took[seq], p.IsUnread(seq), "%d of %+v", seq, p)
			}
			for i, g := range p.Gaps {
				require.LessOrEqual(t, g.From, g.To, "gap %d of %+v", i, p)
				require.Less(t, g.To, p.Next)
			}
		}
	}
}
