package ha

import (
	"math"
	"time"

	"github.com/cassia-db/cassia/storage/membership"
)

// reach is the progress of a replica, derived from some of its samples: the max timestamp that is at most a margin
// ahead of the clock. A single series with wrong timestamps may be far ahead of the others and shows nothing about
// them. If all samples are ahead, the replica's clock is fast, and the reach is the current time.
type reach struct {
	now, limit int64
	t          int64 // max timestamp up to limit
	ahead      bool
}

func (r *Tracker) reach() reach {
	now := r.believed()
	return reach{now: now.UnixMilli(), limit: now.Add(r.margin()).UnixMilli(), t: math.MinInt64}
}

// believed returns the clock's time, or the expected time if that is earlier.
func (r *Tracker) believed() time.Time { return r.env.Member.Clock.Earliest() }

func (x *reach) add(t int64) {
	if t > x.limit {
		x.ahead = true
	} else {
		x.t = max(x.t, t)
	}
}

// ms returns the reach, math.MinInt64 if there are no samples.
func (x *reach) ms() int64 {
	if x.t == math.MinInt64 && x.ahead {
		return x.now
	}
	return x.t
}

// candidate returns the replica to elect after the elected one has been silent for that long: among replicas that send
// to this process, the one with the largest reach. If there is none, it returns a replica with held samples that aren't
// covered, but only after a longer silence, because another process may receive samples from a live replica.
func (c *cluster) candidate(watermark int64, silence time.Duration) (replica string, found bool) {
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
