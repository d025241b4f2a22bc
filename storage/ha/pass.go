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
	// sweepInterval is the min interval between sweeps for held rows that no process owns.
	sweepInterval = 5 * time.Minute
	// sweepSilentInterval is the min interval between sweeps of a cluster that has been silent for sweepSilentInterval.
	sweepSilentInterval = time.Hour
	// takeoverPasses is the max number of passes that a takeover makes over the held rows. After the last pass, new
	// samples of the replica are stored directly. Rows that are held later are stored by the process that holds them.
	takeoverPasses = 3
)

// runPass does the work that is due for a cluster:
//
//	adoptUnownedRows  adopt held rows of stopped processes
//	writeElection     write the watermark, so that it is exact long before another replica can be elected, and
//	                  confirm the elected replica, if it has sent samples since the last heartbeat
//	markLeaving       stop confirming the elected replica, if it lags too far
//	electIfSilent     elect another replica, if the elected one wasn't confirmed for the failover timeout
//	runTakeover       store the held samples of the replica that this process has elected
//	resolveHeldRows   delete held rows that are covered, and store held rows of the elected replica
//	retireIfSilent    retire the cluster, if all its replicas have been silent for retireClusterAfter
//
// A process with an untrusted clock only writes the watermark and heartbeats.
func (c *cluster) runPass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	c.passing.Lock()
	defer c.passing.Unlock()
	ch, fresh := c.current()
	if !fresh {
		found, err := c.refreshElection(ctx)
		if err != nil || !found {
			return err
		}
		if ch, fresh = c.current(); !fresh {
			return nil
		}
	}
	if ch.Retired {
		if !c.hasHeldRows() {
			return nil
		}
		if err := c.clearRetired(ctx); err != nil { // Rows were held while another process retired the cluster.
			return err
		}
		ch, _ = c.current()
	}
	if c.r.env.Member.MayRemove() != nil { // With an untrusted clock no replica is elected, and no held row is deleted.
		return c.writeElection(ctx, ch)
	}
	if err := c.adoptUnownedRows(ctx, ch); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *election) error{
		c.writeElection, c.markLeaving, c.electIfSilent, c.runTakeover, c.resolveHeldRows, c.retireIfSilent,
	} {
		if err := step(ctx, ch); err != nil {
			return err
		}
		if ch, fresh = c.current(); !fresh {
			return nil // The next pass continues.
		}
	}
	return nil
}

func (c *cluster) hasHeldRows() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held) > 0
}

// writeElection updates the election's row: it adds a heartbeat if one is due, and raises the watermark.
func (c *cluster) writeElection(ctx context.Context, ch *election) error {
	now := c.r.now()
	c.mu.Lock()
	heard := c.heard.of(ch.electedReplica()).at.After(c.renewed) && !c.renewed.IsZero()
	due := ch.isSettled() && heard && c.right.Sub(now) < c.r.maxElectionAge()/2+c.r.interval()
	flush := c.acked.reach > ch.WatermarkMS || c.acked.front > ch.FrontMS || c.acked.oldest != math.MaxInt64 &&
		len(ch.Terms) == 1 && c.acked.oldest <= ch.Terms[0].FromMS+c.r.margin().Milliseconds()
	c.mu.Unlock()
	if !due && !flush {
		return nil
	}
	begun, done, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch {
			return nil
		}
		if due && now.isSettled() {
			return c.withHeartbeat(now)
		}
		c.mu.Lock()
		next := now.withWatermark(c.acked, c.r.margin())
		c.mu.Unlock()
		return &next
	})
	if done && due {
		c.grantRight(begun, ch.Epoch)
	}
	return err
}

// maxOtherReach returns the max reach of the replicas that aren't elected and also have samples up to the elected
// replica's front, according to the held rows that this process owns. If others have only later samples, the elected
// replica may lag because it sends samples of a time in which they were stopped.
func (c *cluster) maxOtherReach(elected string, front int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, last := map[string]int64{}, map[string]int64{}
	for i := range c.held {
		h := &c.held[i]
		if old, ok := first[h.Replica]; !ok {
			first[h.Replica], last[h.Replica] = h.minT, h.reach
		} else {
			first[h.Replica], last[h.Replica] = min(old, h.minT), max(last[h.Replica], h.reach)
		}
	}
	t := int64(math.MinInt64)
	for replica, from := range first {
		if replica != elected && from <= front {
			t = max(t, last[replica])
		}
	}
	return t
}

// watermark returns the largest reach of the elected replica's acknowledged samples that this process knows: from the
// election's row, or from samples that it has acknowledged itself.
func (c *cluster) watermark(ch *election) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election != nil && c.election.Epoch == ch.Epoch {
		return max(ch.WatermarkMS, c.acked.reach)
	}
	return ch.WatermarkMS
}

// front returns the latest front of the elected replica's acknowledged samples that this process knows, or the watermark
// if that is later.
func (c *cluster) front(ch *election) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election != nil && c.election.Epoch == ch.Epoch {
		return max(ch.FrontMS, c.acked.front, c.acked.reach)
	}
	return ch.FrontMS
}

// markLeaving marks the elected replica as leaving if it lags both another replica and the clock too far. No process
// then confirms it, and another replica is elected after the failover timeout.
func (c *cluster) markLeaving(ctx context.Context, ch *election) error {
	if !ch.isSettled() {
		return nil
	}
	lag := c.r.lag().Milliseconds()
	front := c.front(ch)
	if furthest := c.maxOtherReach(ch.electedReplica(), front); furthest == math.MinInt64 || furthest-front <= lag ||
		c.r.now().UnixMilli()-front <= lag {
		return nil
	}
	return c.setLeaving(ctx, ch, "it lags too far behind")
}

// isAfterGap reports whether samples from minT on, in milliseconds, follow the elected replica's samples after a gap of
// more than maxGap. The replica was then stopped, perhaps while no process of Cassia was running. Samples ahead of the
// clock are no evidence.
func (c *cluster) isAfterGap(ch *election, minT int64) bool {
	return minT > addMargin(c.front(ch), c.r.maxGap()) && minT <= c.r.reach().limit
}

// setLeaving marks the elected replica as leaving. Its samples are then held, and after the failover timeout another
// replica is elected, or the same one if no other one has samples.
func (c *cluster) setLeaving(ctx context.Context, ch *election, reason string) error {
	_, done, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch || !now.isSettled() {
			return nil
		}
		next := *now
		next.Leaving = true
		return &next
	})
	if done {
		c.r.env.Logger.Warn("the elected replica may be replaced: "+reason,
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "replica", ch.electedReplica(),
			"sent_until", format.FormatTime(c.front(ch)))
	}
	return err
}

// silence returns the time since a process has confirmed the elected replica.
func (c *cluster) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return membership.Elapsed(c.beatAt, c.r.now())
}

// electIfSilent elects another replica if no process has confirmed the elected one for the failover timeout. If a
// takeover has made no progress for the failover timeout, this process continues it.
func (c *cluster) electIfSilent(ctx context.Context, ch *election) error {
	silence := c.silence()
	self := c.r.env.Member.Writer()
	if silence <= c.r.opts.Failover || ch.Taking == self {
		return nil
	}
	if ch.Taking != "" {
		_, _, err := c.updateElection(ctx, func(now *election) *election {
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
	// future, unless the next replica has samples of that time.
	limit := c.r.reach().limit
	next, found := c.findCandidate(ch.electedReplica(), min(c.watermark(ch), limit), c.front(ch), silence)
	if !found {
		return nil
	}
	_, done, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch || now.Beat != ch.Beat || now.Taking != "" ||
			now.WatermarkMS != ch.WatermarkMS || now.FrontMS != ch.FrontMS {
			return nil
		}
		elected := now.withTerm(next, limit, self, c.r.now())
		return &elected
	})
	if done && next.replica != ch.electedReplica() {
		c.r.metrics.elected.Inc()
		c.r.env.Logger.Info("elected another replica", "tenant", c.at.Tenant, "cluster", c.at.Cluster,
			"replica", next.replica, "before", ch.electedReplica(), "heard", time.UnixMilli(ch.HeardMS).UTC())
	}
	return err
}

// runTakeover stores the held samples of a newly elected replica if this process is the one that must do this, and then
// ends the takeover.
func (c *cluster) runTakeover(ctx context.Context, ch *election) error {
	if ch.Taking != c.r.env.Member.Writer() {
		return nil
	}
	t := newTakeover(c, ch)
	for range takeoverPasses {
		n, err := t.storeHeldRows(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	begun, done, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || now.Epoch != ch.Epoch || now.Taking != ch.Taking {
			return nil
		}
		next := now.withHeartbeat(t.stored, c.r.margin(), c.r.now())
		next.Taking = ""
		return &next
	})
	if done {
		c.grantRight(begun, ch.Epoch)
		c.r.env.Logger.Info("stored the held samples of the elected replica",
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "replica", ch.electedReplica(), "rows", t.rows,
			"samples", t.samples)
	}
	return err
}

// resolveHeldRows processes the held rows of this process: it deletes rows that are covered, and stores rows of the
// elected replica and samples that precede all terms or are in a former term of their replica.
func (c *cluster) resolveHeldRows(ctx context.Context, ch *election) error {
	watermark := c.watermark(ch)
	var gone, store []heldRow
	c.mu.Lock()
	for _, h := range c.held {
		switch {
		case h.Replica == ch.electedReplica():
			if ch.isSettled() {
				store = append(store, h)
			}
		case !ch.isCovered(h.Replica, h.maxT, watermark, c.r.margin()):
		case h.minT <= ch.lastTerm().FromMS: // It may have late samples of a former term of its replica.
			store = append(store, h)
		default:
			gone = append(gone, h)
		}
	}
	c.mu.Unlock()
	if len(store) > 0 {
		if err := newTakeover(c, ch).storeRows(ctx, store); err != nil {
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
		c.releaseRows(idsOf(gone))
	}
	return nil
}

// releaseRows removes deleted rows from the rows that this process owns, and frees their bytes.
func (c *cluster) releaseRows(rows []HeldID) {
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
		c.releaseBytes(size)
	}
}
