package ha

import (
	"math"
	"time"

	"github.com/cassia-db/cassia/storage/membership"
)

// reach measures the progress of a replica's samples: the max of the added timestamps, ignoring those that are more
// than a margin ahead of the clock. One series with wrong timestamps may be far ahead of the others, so it must not
// count. If all samples are that far ahead, the replica's clock is fast, and the reach is the current time.
type reach struct {
	now, limit int64
	t          int64 // max timestamp up to limit
	ahead      bool
}

func (r *Tracker) reach() reach {
	now := r.earliestTime()
	return reach{now: now.UnixMilli(), limit: now.Add(r.margin()).UnixMilli(), t: math.MinInt64}
}

// earliestTime returns the clock's time, or the expected time if that is earlier.
func (r *Tracker) earliestTime() time.Time { return r.env.Member.Clock.Earliest() }

// addMargin returns t plus margin, in milliseconds, without an overflow.
func addMargin(t int64, margin time.Duration) int64 {
	return min(t, math.MaxInt64-margin.Milliseconds()) + margin.Milliseconds()
}

func (x *reach) add(t int64) {
	if t > x.limit {
		x.ahead = true
	} else {
		x.t = max(x.t, t)
	}
}

// ms returns the reach in milliseconds, or math.MinInt64 if no sample was added.
func (x *reach) ms() int64 {
	if x.t == math.MinInt64 && x.ahead {
		return x.now
	}
	return x.t
}

// isDead reports whether all replicas have been silent for so long that the clock has passed all their timestamps.
func (r *Tracker) isDead(silence time.Duration) bool {
	return silence > 2*r.opts.Failover+r.env.MaxAhead
}

// candidate is a replica that may be elected.
type candidate struct {
	replica string
	// passed is true if the replica has sent samples after the front of the elected one. Then the elected replica has
	// sent the samples of the same time up to its front.
	passed bool
}

// findCandidate returns the replica to elect after the elected one has been silent for some time, given the watermark
// and the front of the elected one:
//
//   - A replica that sends to this process, and has passed the front. Of multiple replicas, the furthest is returned.
//   - After a longer silence, a replica that sends to this process and has passed only the watermark: the elected
//     replica's clock was fast. A replica that only lags a little passes the front in this time.
//   - After a longer silence, if no replica sends to this process, one whose held samples have passed the front. Before
//     that, another process may still receive samples from a live replica.
//
// The elected replica itself is returned only after a longer silence, and if there is no other one.
func (c *cluster) findCandidate(
	elected string, watermark, front int64, silence time.Duration,
) (found candidate, ok bool) {
	now, failover := c.r.now(), c.r.opts.Failover
	c.mu.Lock()
	defer c.mu.Unlock()
	best, bestLive, bestOther := int64(math.MinInt64), false, false
	for i := range c.held {
		h := &c.held[i]
		heard := c.heard.of(h.Replica)
		live := !heard.at.IsZero() && membership.Elapsed(heard.at, now) <= failover
		reach := h.reach
		if live {
			reach = max(reach, min(heard.recentFront(), h.maxT))
		} else if c.r.isDead(silence) {
			reach = h.maxT // Samples ahead of the clock are also stored.
		}
		passed, other := reach > front, h.Replica != elected
		switch {
		case reach <= watermark, !passed && !live, silence <= 2*failover && !(passed && live && other):
			continue
		case bestOther && !other, bestOther == other && bestLive && !live:
			continue
		}
		if other && !bestOther || live && !bestLive || reach > best {
			found, best, bestLive, bestOther, ok = candidate{h.Replica, passed}, reach, live, other, true
		}
	}
	return found, ok
}
