package ha

import (
	"math"
	"time"

	"github.com/cassia-db/cassia/storage/membership"
)

// reach is how far some samples show that their replica has gone on: the greatest timestamp that is no more than a
// margin ahead of the clock. A series with a time of its own may be far ahead of the others, and shows nothing about
// them. Where all samples are ahead, the replica's clock is: it has gone on until now.
type reach struct {
	now, limit int64
	t          int64 // of those up to limit
	ahead      bool
}

func (r *Tracker) reach() reach {
	now := r.believed()
	return reach{now: now.UnixMilli(), limit: now.Add(r.margin()).UnixMilli(), t: math.MinInt64}
}

// believed is the time by this machine's clock, or an earlier one that is expected.
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

// candidate returns the replica that is to be elected where nobody has heard the elected one for as long as silence: one
// that sends to this process, and of those the one that has gone on the furthest. Where none does, one of which
// something is held that nothing covers, but later: another process may hear one that sends.
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
			reach = h.maxT // Nobody goes on: samples ahead of the clock are stored as well.
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
