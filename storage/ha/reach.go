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

// findCandidate returns the replica to elect after the elected one has been silent for some time. It prefers the
// replica with the largest reach among those that send to this process. If no replica sends to this process, it returns
// a replica with held samples that aren't covered, but only after a longer silence, because another process may still
// receive samples from a live replica.
func (c *cluster) findCandidate(watermark int64, silence time.Duration) (replica string, found bool) {
	now, failover := c.r.now(), c.r.opts.Failover
	c.mu.Lock()
	defer c.mu.Unlock()
	best, bestLive := int64(math.MinInt64), false
	for i := range c.held {
		h := &c.held[i]
		heard, ok := c.heard[h.Replica]
		live := ok && membership.Elapsed(heard, now) <= failover
		reach := h.reach
		if !live && silence > 2*failover+c.r.env.MaxAhead {
			reach = h.maxT // No replica is live: samples ahead of the clock are also stored.
		}
		if reach <= watermark || !live && silence <= 2*failover || bestLive && !live {
			continue
		}
		if live && !bestLive || reach > best {
			replica, best, bestLive, found = h.Replica, reach, live, true
		}
	}
	return replica, found
}
