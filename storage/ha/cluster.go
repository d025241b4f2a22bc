package ha

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
)

// cluster is this process' state of a cluster of replicas.
type cluster struct {
	r  *Tracker
	at ClusterName
	// change is a lock: a channel of capacity one that contains an item while this process changes the election's row.
	change chan struct{}
	// passing serializes the passes of this cluster.
	passing sync.Mutex

	heard *heardReplicas

	mu sync.Mutex
	// row is the election's row as of its last read, nil before the first. election is its parsed value, nil if it is
	// unreadable or was never read.
	row      []byte
	election *election
	// known is the time when the read that returned election started. beatAt is when this process first read the
	// election's current heartbeat.
	known, beatAt time.Time
	// right is the time until which this process may store samples of the elected replica. It is half of the failover
	// timeout after the start of this process' last heartbeat, long before another replica can be elected. renewed is
	// the time when that heartbeat was started.
	right, renewed time.Time
	// acked is the progress of the elected replica's samples that this process has acknowledged in the current epoch.
	acked progress

	// held contains the rows that this process owns. Rows that it wrote are in the order of their sequence numbers.
	// bytes is the total size of held.
	held  []heldRow
	bytes int64
	seq   int64

	// The fields below are guarded by passing.
	swept    time.Time
	sweptEra int64
	seen     map[string]bool // rows of other processes that the last sweep found
}

func newCluster(r *Tracker, at ClusterName) *cluster {
	return &cluster{
		r: r, at: at, change: make(chan struct{}, 1), acked: noProgress,
		heard: newHeardReplicas(), seen: map[string]bool{},
	}
}

func (c *cluster) hasRequestSince(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.election != nil && c.election.HeardMS > since.UnixMilli() || c.heard.anyAfter(since)
}

// cacheElection caches the election of a row whose read or write started at begun. It doesn't retain row.
func (c *cluster) cacheElection(row []byte, begun time.Time) {
	if c.cacheSame(row, begun) {
		return
	}
	row = bytes.Clone(row)
	next, err := parseElection(row)
	now := c.r.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.row, c.election, c.right = row, nil, time.Time{} // The next change overwrites the row.
		c.r.env.Corrupt(engine.Chosen, fmt.Errorf(
			"the record of the elected replica of cluster %q, tenant %q, is unreadable: %w", c.at.Cluster, c.at.Tenant,
			err,
		))
		return
	}
	before := c.election
	if before != nil && next.Version < before.Version {
		return // A newer row was already adopted.
	}
	if before == nil || next.Epoch != before.Epoch {
		c.right, c.acked = time.Time{}, noProgress
	}
	if !next.isSettled() {
		c.right = time.Time{}
	}
	if before == nil || next.Beat != before.Beat || next.Leaving != before.Leaving {
		c.beatAt = now
	}
	if c.known.Before(begun) {
		c.known = begun
	}
	c.row, c.election = row, &next
}

// cacheSame implements cacheElection for a row that is equal to the cached one. It returns false if the row has
// changed.
func (c *cluster) cacheSame(row []byte, begun time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election == nil || !bytes.Equal(row, c.row) {
		return false
	}
	if c.known.Before(begun) {
		c.known = begun
	}
	return true
}

// current returns the cached election, and whether it is fresh enough to decide about samples.
func (c *cluster) current() (*election, bool) {
	now := c.r.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.election, c.election != nil && membership.Elapsed(c.known, now) <= c.r.maxElectionAge()
}

// refreshElection reads the election's row. It returns false if the row doesn't exist.
func (c *cluster) refreshElection(ctx context.Context) (bool, error) {
	begun := c.r.now()
	key := choiceKey(c.at)
	for row, err := range c.r.env.Engine.Scan(ctx, engine.Range{
		Table: engine.Chosen, Partition: choicePartition(c.at), From: key, To: key, Limit: 1,
	}) {
		if err != nil {
			return false, fmt.Errorf("ha: reading the elected replica: %w", err)
		}
		c.cacheElection(row.Value, begun)
		return true, nil
	}
	return false, nil
}

var errContended = fmt.Errorf("%w: too many processes are electing a replica at once", engine.ErrUnavailable)

// updateElection replaces the election's row by compare-and-set with the result of change. change gets nil if the row
// doesn't exist. If change returns nil, the row isn't written. begun is the time when the successful attempt was
// started.
func (c *cluster) updateElection(
	ctx context.Context, change func(now *election) *election,
) (begun time.Time, done bool, err error) {
	select {
	case c.change <- struct{}{}:
		defer func() { <-c.change }()
	case <-ctx.Done():
		return begun, false, ctx.Err()
	}
	for range 5 {
		c.mu.Lock()
		before, row := c.election, c.row
		c.mu.Unlock()
		next := change(before)
		if next == nil {
			return begun, false, nil
		}
		written := *next
		if before != nil {
			written.Version = before.Version + 1
		}
		value, err := json.Marshal(written)
		if err != nil {
			return begun, false, err
		}
		begun = c.r.now()
		ok, found, err := c.r.env.Engine.CompareAndSet(
			ctx, engine.Chosen, choicePartition(c.at), choiceKey(c.at), row, value,
		)
		if err != nil {
			// The row may have been written although CompareAndSet failed. The election is unknown until it is read
			// again.
			c.mu.Lock()
			c.known = time.Time{}
			c.mu.Unlock()
			return begun, false, fmt.Errorf("ha: changing the elected replica: %w", err)
		}
		if ok {
			c.cacheElection(value, begun)
			return begun, true, nil
		}
		if found == nil {
			return begun, false, errors.New("ha: the record of the elected replica is missing")
		}
		c.cacheElection(found, begun)
	}
	return begun, false, errContended
}

// electionFor returns a fresh election that decides about the samples of a replica between minT and maxT. If some of
// them are to be stored as samples of the elected replica, this process has the right to store them.
func (c *cluster) electionFor(ctx context.Context, replica string, minT, maxT int64) (*election, error) {
	for range 5 {
		ch, fresh := c.current()
		if !fresh {
			found, err := c.refreshElection(ctx)
			if err != nil {
				return nil, err
			}
			if ch, fresh = c.current(); !found || ch == nil {
				if err := c.createElection(ctx, replica, minT); err != nil {
					return nil, err
				}
				continue
			}
			if !fresh {
				continue
			}
		}
		if ch.Retired {
			if err := c.clearRetired(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if ch.electedReplica() != replica || !ch.isSettled() || maxT <= ch.lastTerm().FromMS {
			return ch, nil
		}
		if c.isAfterGap(ch, minT) {
			err := c.setLeaving(ctx, ch, "it was stopped, and another one may have the samples in between")
			if err != nil {
				return nil, err
			}
			continue
		}
		ok, err := c.mayStore(ctx, ch.Epoch)
		if err != nil {
			return nil, err
		}
		if ok {
			return ch, nil
		}
	}
	return nil, errContended
}

// createElection elects the first replica of a new cluster.
func (c *cluster) createElection(ctx context.Context, replica string, oldest int64) error {
	begun, done, err := c.updateElection(ctx, func(now *election) *election {
		if now != nil {
			return nil
		}
		first := firstElection(replica, oldest, c.r.margin(), c.r.now())
		return &first
	})
	if done {
		c.grantRight(begun, 1)
		c.r.env.Logger.Info("first samples of a replica cluster",
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "replica", replica)
	}
	return err
}

// grantRight records that this process may store the elected replica's samples, because of a heartbeat that was started
// at begun.
func (c *cluster) grantRight(begun time.Time, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election != nil && c.election.Epoch == epoch && c.election.isSettled() {
		c.right, c.renewed = begun.Add(c.r.maxElectionAge()), begun
	}
}

// mayStore reports whether this process may store the elected replica's samples. It sends a heartbeat if the previous
// one is too old. It returns false if another replica was elected, or if the elected replica is leaving.
func (c *cluster) mayStore(ctx context.Context, epoch int64) (bool, error) {
	if c.hasRight(epoch) {
		return true, nil
	}
	begun, done, err := c.updateElection(ctx, func(now *election) *election {
		if now == nil || now.Epoch != epoch || !now.isSettled() || c.hasRight(epoch) {
			return nil
		}
		return c.withHeartbeat(now)
	})
	if err != nil {
		return false, err
	}
	if done {
		c.grantRight(begun, epoch)
	}
	return c.hasRight(epoch), nil
}

// withHeartbeat returns the election with one more heartbeat, and with the progress of the samples that this process
// has acknowledged.
func (c *cluster) withHeartbeat(now *election) *election {
	c.mu.Lock()
	acked := c.acked
	c.mu.Unlock()
	next := now.withHeartbeat(acked, c.r.margin(), c.r.now())
	return &next
}

// hasRight reports whether this process may store the elected replica's samples without another heartbeat. Setting the
// clock back doesn't extend the right.
func (c *cluster) hasRight(epoch int64) bool {
	now := c.r.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.election != nil && c.election.Epoch == epoch && now.Before(c.right) &&
		membership.Elapsed(c.renewed, now) < c.r.maxElectionAge()
}

// recordDurable records the progress of samples of the elected replica that have become durable. It returns an error if
// another replica may have been elected in the meantime.
func (c *cluster) recordDurable(ctx context.Context, epoch int64, of progress) error {
	ok, err := c.mayStore(ctx, epoch)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok || c.election == nil || c.election.Epoch != epoch {
		return errReelected
	}
	c.acked = c.acked.join(of)
	return nil
}

// recordStored records the progress of held samples of the elected replica that were stored. The watermark must include
// them: if the replica sends no more samples, the next term starts there.
func (c *cluster) recordStored(epoch int64, of progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election != nil && c.election.Epoch == epoch {
		c.acked = c.acked.join(of)
	}
}
