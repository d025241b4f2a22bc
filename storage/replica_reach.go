package storage

import (
	"math"
	"time"
)

// reach is how far some samples show that their replica has gone on: the greatest timestamp that is no more than a
// margin ahead of the clock. A series with a time of its own may be far ahead of the others, and says nothing about
// them. Where all samples are ahead, the replica's clock is: it has gone on until now.
type reach struct {
	now, limit int64
	t          int64 // of those up to limit
	ahead      bool
}

func (r *Replicas) reach() reach {
	now := r.believed()
	return reach{now: now.UnixMilli(), limit: now.Add(r.margin()).UnixMilli(), t: math.MinInt64}
}

// believed is the time by this machine's clock, or by that of the engine where that is behind; on one machine, where it
// isn't believed, what is expected, if that is earlier.
func (r *Replicas) believed() time.Time {
	if !r.s.opts.Shared {
		earlier, _ := r.s.times()
		return earlier
	}
	off, _ := r.s.clockOff()
	return r.now().Add(-max(off, 0))
}

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

// reach returns how far the samples of a batch show that their replica has gone on.
func (b *Batch) reach(r *Replicas) int64 {
	x := r.reach()
	for i := range b.entries {
		x.add(b.entries[i].T)
	}
	return x.ms()
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
		heard, ok := c.heard[h.replica]
		live := ok && Elapsed(heard, now) <= failover
		reach := h.reach
		if !live && silence > 2*failover+MaxAhead {
			reach = h.maxT // Nobody goes on: what is ahead is stored as well.
		}
		if reach <= watermark || !live && silence <= 2*failover || bestLive && !live {
			continue
		}
		if live && !bestLive || reach > best {
			replica, best, bestLive, found = h.replica, reach, live, true
		}
	}
	return replica, found
}
