package ha

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// retireClusterAfter is how long a cluster must be silent before its election is retired.
const retireClusterAfter = 48 * time.Hour

// retiredRow is the prefix of the row of each retired election.
var retiredRow = []byte(`{"retired":true`)

func isRetired(row []byte) bool { return bytes.HasPrefix(row, retiredRow) }

// withoutRetired returns the election with Retired cleared.
func (c *election) withoutRetired(now time.Time) election {
	next := *c
	next.Retired, next.HeardMS = false, now.UnixMilli()
	return next
}

// clearRetired clears Retired in the election's row, so that all processes manage the cluster again. It must be called
// before samples are held or stored.
func (c *cluster) clearRetired(ctx context.Context) error {
	_, _, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || !now.Retired {
			return nil
		}
		next := now.withoutRetired(c.r.now())
		return &next
	})
	return err
}

// retireIfSilent sets Retired in the election's row if the cluster has been silent for retireClusterAfter and has no
// held rows. All processes then remove the cluster from memory.
func (c *cluster) retireIfSilent(ctx context.Context, ch *election) error {
	c.mu.Lock()
	idle := len(c.held) == 0 && membership.Elapsed(c.beatAt, c.r.now()) > c.r.opts.Failover
	c.mu.Unlock()
	if !idle || ch.Taking != "" || c.hasRequestSince(c.r.earliestTime().Add(-retireClusterAfter)) {
		return nil
	}
	for era := ch.Low; era <= ch.heldEpoch(); era++ {
		for _, err := range c.r.env.Engine.Scan(ctx, engine.Range{
			Table: engine.Held, Partition: format.HeldPartition(c.at.Tenant, c.at.Cluster, era), KeysOnly: true,
			Limit: 1,
		}) {
			if err != nil {
				return fmt.Errorf("ha: looking for held samples: %w", err)
			}
			return nil // A sweep will adopt the row.
		}
	}
	_, done, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || now.Version != ch.Version {
			return nil
		}
		next := *now
		next.Retired = true
		return &next
	})
	if done {
		c.r.env.Logger.Info("removed an inactive replica cluster; it is added again when it sends samples",
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "heard", time.UnixMilli(ch.HeardMS).UTC())
	}
	return err
}

// removeRetired removes retired clusters, and silent clusters without an election, from memory.
func (r *Tracker) removeRetired() {
	since := r.now().Add(-forgetClusterAfter)
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, c := range r.clusters {
		if c.isRemovable(since) {
			delete(r.clusters, at)
		}
	}
}

func (c *cluster) isRemovable(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election == nil && c.row != nil || c.election != nil && !c.election.Retired || len(c.held) > 0 || c.bytes > 0 {
		return false
	}
	return !c.heard.anyAfter(since)
}
