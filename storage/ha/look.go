package ha

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

const (
	// sweepEvery is the min interval between sweeps for held rows that no process owns.
	sweepEvery = 5 * time.Minute
	// sweepSilentEvery is the min interval between sweeps of a cluster that has been silent for sweepSilentEvery.
	sweepSilentEvery = time.Hour
	// takePasses bounds the passes of a takeover over the held rows. After the last pass, new samples of the replica
	// are stored directly. Rows that are held later are stored by the process that holds them.
	takePasses = 3
)

// look does the work that is due for a cluster:
//
//	flush    write the watermark, at each look, so that it is exact long before another replica can be elected
//	beat     confirm the elected replica, if it has sent samples since the last heartbeat
//	elect    elect another replica, if the elected one lags too far or wasn't confirmed for the failover timeout
//	take     store the held samples of the replica that this process has elected
//	resolve  delete held rows that are covered, and store held rows of the elected replica
//	retire   retire the cluster, if all its replicas have been silent for retireCluster
//	sweep    adopt held rows of stopped processes
//
// A process with an untrusted clock only writes the watermark and heartbeats.
func (c *cluster) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	c.looking.Lock()
	defer c.looking.Unlock()
	ch, fresh := c.current()
	if !fresh {
		found, err := c.refresh(ctx)
		if err != nil || !found {
			return err
		}
		if ch, fresh = c.current(); !fresh {
			return nil
		}
	}
	if ch.Retired {
		if !c.holds() {
			return nil
		}
		if err := c.revive(ctx); err != nil { // Rows were held while another process retired the cluster.
			return err
		}
		ch, _ = c.current()
	}
	if c.r.env.Member.MayRemove() != nil { // With an untrusted clock no replica is elected, and no held row is deleted.
		return c.tell(ctx, ch)
	}
	if err := c.sweep(ctx, ch); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *election) error{
		c.tell, c.leave, c.elect, c.take, c.resolve, c.retire,
	} {
		if err := step(ctx, ch); err != nil {
			return err
		}
		if ch, fresh = c.current(); !fresh {
			return nil // The next look continues.
		}
	}
	return nil
}

func (c *cluster) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held) > 0
}

// tell updates the election's row: it adds a heartbeat if one is due, and raises the watermark.
func (c *cluster) tell(ctx context.Context, ch *election) error {
	now := c.r.now()
	c.mu.Lock()
	heard := c.heard[ch.elected()].After(c.renewed) && !c.renewed.IsZero()
	due := ch.settled() && heard && c.right.Sub(now) < c.r.fresh()/2+c.r.interval()
	flush := c.acked > ch.WatermarkMS ||
		c.oldest != math.MaxInt64 && len(ch.Terms) == 1 && c.oldest <= ch.Terms[0].FromMS+c.r.margin().Milliseconds()
	c.mu.Unlock()
	if !due && !flush {
		return nil
	}
	begun, done, err := c.update(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch {
			return nil
		}
		if due && now.settled() {
			return c.beat(now)
		}
		c.mu.Lock()
		next := now.flushed(c.acked, c.oldest, c.r.margin())
		c.mu.Unlock()
		return &next
	})
	if done && due {
		c.grant(begun, ch.Epoch)
	}
	return err
}

// furthest returns the max reach of the replicas that aren't elected, according to the held rows that this process
// owns.
func (c *cluster) furthest(elected string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := int64(math.MinInt64)
	for i := range c.held {
		if h := &c.held[i]; h.Replica != elected {
			t = max(t, h.reach)
		}
	}
	return t
}

// watermark returns the reach of the elected replica's acknowledged samples that this process has read or acknowledged.
func (c *cluster) watermark(ch *election) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election != nil && c.election.Epoch == ch.Epoch {
		return max(ch.WatermarkMS, c.acked)
	}
	return ch.WatermarkMS
}

// leave marks the elected replica as leaving if it lags another replica too far. No process then confirms it, and
// another replica is elected after the failover timeout.
func (c *cluster) leave(ctx context.Context, ch *election) error {
	if !ch.settled() {
		return nil
	}
	lag := c.r.lag().Milliseconds()
	watermark := c.watermark(ch)
	if furthest := c.furthest(ch.elected()); furthest == math.MinInt64 || furthest-watermark <= lag ||
		c.r.now().UnixMilli()-watermark <= lag {
		return nil
	}
	_, done, err := c.update(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch || !now.settled() {
			return nil
		}
		next := *now
		next.Leaving = true
		return &next
	})
	if done {
		c.r.env.Logger.Warn("the elected replica lags too far behind; another one will be elected",
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "replica", ch.elected(),
			"watermark", format.Instant(watermark))
	}
	return err
}

// elect elects another replica if no process has confirmed the elected one for the failover timeout. If a takeover has
// made no progress for the failover timeout, this process continues it.
func (c *cluster) elect(ctx context.Context, ch *election) error {
	c.mu.Lock()
	silence := membership.Elapsed(c.beatAt, c.r.now())
	c.mu.Unlock()
	self := c.r.env.Member.Writer()
	if silence <= c.r.opts.Failover || ch.Taking == self {
		return nil
	}
	if ch.Taking != "" {
		_, _, err := c.update(ctx, func(now *election) *election {
			if now == nil || now.Epoch != ch.Epoch || now.Beat != ch.Beat || now.Taking != ch.Taking {
				return nil
			}
			next := *now
			next.Taking = self
			next.Beat++
			return &next
		})
		return err
	}
	// A watermark ahead of the clock means that the clock was set back. The limit prevents a term from starting in the
	// future.
	limit := c.r.reach().limit
	replica, found := c.candidate(min(c.watermark(ch), limit), silence)
	if !found {
		return nil
	}
	_, done, err := c.update(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch || now.Beat != ch.Beat || now.Taking != "" ||
			now.WatermarkMS != ch.WatermarkMS {
			return nil
		}
		next := now.elect(replica, limit, self, c.r.now())
		return &next
	})
	if done {
		c.r.metrics.elected.Inc()
		c.r.env.Logger.Info("elected another replica", "tenant", c.at.Tenant, "cluster", c.at.Cluster,
			"replica", replica, "before", ch.elected(), "heard", time.UnixMilli(ch.HeardMS).UTC())
	}
	return err
}

// take stores the held samples of the replica that this process has elected, and then ends the takeover.
func (c *cluster) take(ctx context.Context, ch *election) error {
	if ch.Taking != c.r.env.Member.Writer() {
		return nil
	}
	t := newTakeover(c, ch)
	for range takePasses {
		n, err := t.pass(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	begun, done, err := c.update(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch || now.Taking != ch.Taking {
			return nil
		}
		next := now.renewed(t.reach, math.MaxInt64, c.r.margin(), c.r.now())
		next.Taking = ""
		return &next
	})
	if done {
		c.grant(begun, ch.Epoch)
		c.r.env.Logger.Info("stored the held samples of the elected replica",
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "replica", ch.elected(), "rows", t.rows,
			"samples", t.samples)
	}
	return err
}

// resolve processes the held rows of this process: it deletes rows that are covered, and stores rows of the elected
// replica and rows that precede all terms.
func (c *cluster) resolve(ctx context.Context, ch *election) error {
	watermark := c.watermark(ch)
	var gone, store []heldRow
	c.mu.Lock()
	for _, h := range c.held {
		switch {
		case h.Replica == ch.elected():
			if ch.settled() {
				store = append(store, h)
			}
		case !ch.covered(h.Replica, h.maxT, watermark, c.r.margin()):
		case h.minT <= ch.Terms[0].FromMS:
			store = append(store, h)
		default:
			gone = append(gone, h)
		}
	}
	c.mu.Unlock()
	if len(store) > 0 {
		if err := newTakeover(c, ch).store(ctx, store); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		if err := c.r.env.Host.DeleteHeld(ctx, c.at, idsOf(gone)); err != nil {
			return err
		}
		for i := range gone {
			c.r.metrics.dropped.Add(float64(gone[i].samples))
		}
		c.release(idsOf(gone))
	}
	return nil
}

// release removes deleted rows from the rows that this process owns, and frees their bytes.
func (c *cluster) release(rows []HeldID) {
	gone := make(map[HeldID]bool, len(rows))
	for _, h := range rows {
		gone[h] = true
	}
	size := int64(0)
	c.mu.Lock()
	c.held = slices.DeleteFunc(c.held, func(h heldRow) bool {
		if gone[h.HeldID] {
			size += h.bytes
			return true
		}
		return false
	})
	c.mu.Unlock()
	if size > 0 {
		c.forget(size)
	}
}
