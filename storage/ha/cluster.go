package ha

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
)

// cluster is a process' state of the replicas of a cluster.
type cluster struct {
	r  *Tracker
	at ClusterName
	// change is held by whoever changes the row: one at a time in a process.
	change chan struct{}
	// looking is held by a look.
	looking sync.Mutex

	mu sync.Mutex
	// row is the election as it was last read, nil before; election is its contents, nil if they aren't known.
	row      []byte
	election *election
	// known is when the reading began that gave it; beatAt when the beat was first seen to be what it is.
	known, beatAt time.Time
	// right is until when the elected replica's samples may be stored: half of the failover timeout since the last
	// beat of this process, long before another can be elected. renewed is when that beat began.
	right, renewed time.Time
	// acked and oldest are the reach and the least timestamp of what this process has acknowledged of the elected
	// replica in the epoch, milliseconds.
	acked, oldest int64
	// heard is when a replica was last heard by this process.
	heard map[string]time.Time

	// held are the rows that this process looks after, those that it wrote in their order; bytes is what they weigh.
	held  []heldRow
	bytes int64
	seq   int64

	// What follows belongs to the look.
	swept    time.Time
	sweptEra int64
	seen     map[string]bool // rows of others that the last sweep found
}

func newCluster(r *Tracker, at ClusterName) *cluster {
	return &cluster{
		r: r, at: at, change: make(chan struct{}, 1), heard: map[string]time.Time{},
		acked: math.MinInt64, oldest: math.MaxInt64, seen: map[string]bool{},
	}
}

// hear notes that a replica was heard. It returns false where there are too many.
func (c *cluster) hear(replica string) bool {
	now := c.r.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.heard[replica]; !ok && len(c.heard) >= maxReplicas {
		for name, at := range c.heard {
			if membership.Elapsed(at, now) > forgetReplica {
				delete(c.heard, name)
			}
		}
		if len(c.heard) >= maxReplicas {
			return false
		}
	}
	c.heard[string([]byte(replica))] = now
	return true
}

func (c *cluster) heardSince(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election != nil && c.election.HeardMS > since.UnixMilli() {
		return true
	}
	for _, at := range c.heard {
		if at.After(since) {
			return true
		}
	}
	return false
}

// adopt takes over a row that was read, or written, since begun. The row stays the caller's.
func (c *cluster) adopt(row []byte, begun time.Time) {
	if c.adoptSame(row, begun) {
		return
	}
	row = bytes.Clone(row)
	next, err := parseElection(row)
	now := c.r.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.row, c.election, c.right = row, nil, time.Time{} // Whoever changes it writes it anew.
		c.r.env.Corrupt(engine.Chosen, fmt.Errorf("the elected replica of cluster %q of tenant %q: %w", c.at.Cluster, c.at.Tenant, err))
		return
	}
	before := c.election
	if before != nil && next.Version < before.Version {
		return // It was read before.
	}
	if before == nil || next.Epoch != before.Epoch {
		c.right, c.acked, c.oldest = time.Time{}, math.MinInt64, math.MaxInt64
	}
	if !next.settled() {
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

// adoptSame is adopt where the row is as it was.
func (c *cluster) adoptSame(row []byte, begun time.Time) bool {
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

// current returns the election, if it is known and was read of late.
func (c *cluster) current() (*election, bool) {
	now := c.r.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.election, c.election != nil && membership.Elapsed(c.known, now) <= c.r.fresh()
}

// refresh reads the row. It returns false if there is none.
func (c *cluster) refresh(ctx context.Context) (bool, error) {
	begun := c.r.now()
	key := choiceKey(c.at)
	for row, err := range c.r.env.Engine.Scan(ctx, engine.Range{Table: engine.Chosen, Partition: choicePartition(c.at), From: key, To: key, Limit: 1}) {
		if err != nil {
			return false, fmt.Errorf("ha: reading the elected replica: %w", err)
		}
		c.adopt(row.Value, begun)
		return true, nil
	}
	return false, nil
}

var errContended = fmt.Errorf("%w: too many processes are electing a replica at once", engine.ErrUnavailable)

// update changes the row to what change makes of it, nil where there is none; where that returns nil, it stays. It
// returns the time at which the change that succeeded began.
func (c *cluster) update(ctx context.Context, change func(now *election) *election) (begun time.Time, done bool, err error) {
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
		ok, found, err := c.r.env.Engine.CompareAndSet(ctx, engine.Chosen, choicePartition(c.at), choiceKey(c.at), row, value)
		if err != nil {
			// It may have been written. Nothing is taken by the election known before.
			c.mu.Lock()
			c.known = time.Time{}
			c.mu.Unlock()
			return begun, false, fmt.Errorf("ha: changing the elected replica: %w", err)
		}
		if ok {
			c.adopt(value, begun)
			return begun, true, nil
		}
		if found == nil {
			return begun, false, errors.New("ha: the record of the elected replica is missing")
		}
		c.adopt(found, begun)
	}
	return begun, false, errContended
}

// route returns a election by which samples of a replica, from minT to maxT, may be taken now: it is fresh, and if it
// has them stored, this process has the right to.
func (c *cluster) route(ctx context.Context, replica string, minT, maxT int64) (*election, error) {
	for range 5 {
		ch, fresh := c.current()
		if !fresh {
			found, err := c.refresh(ctx)
			if err != nil {
				return nil, err
			}
			if ch, fresh = c.current(); !found || ch == nil {
				if err := c.create(ctx, replica, minT); err != nil {
					return nil, err
				}
				continue
			}
			if !fresh {
				continue
			}
		}
		if ch.Retired {
			if err := c.revive(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if ch.elected() != replica || !ch.settled() || maxT <= ch.last().FromMS {
			return ch, nil
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

// create elects the replica that is the first to be heard.
func (c *cluster) create(ctx context.Context, replica string, oldest int64) error {
	begun, done, err := c.update(ctx, func(now *election) *election {
		if now != nil {
			return nil
		}
		first := firstElection(replica, oldest, c.r.margin(), c.r.now())
		return &first
	})
	if done {
		c.grant(begun, 1)
		c.r.env.Logger.Info("first samples of a replica cluster",
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "replica", replica)
	}
	return err
}

// grant gives this process the right to store the elected replica's samples, by a beat that began then.
func (c *cluster) grant(begun time.Time, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.election != nil && c.election.Epoch == epoch && c.election.settled() {
		c.right, c.renewed = begun.Add(c.r.fresh()), begun
	}
}

// mayStore reports whether this process may store the elected replica's samples: by its last beat or by a new one. It
// returns false where the election has changed.
func (c *cluster) mayStore(ctx context.Context, epoch int64) (bool, error) {
	if c.hasRight(epoch) {
		return true, nil
	}
	begun, done, err := c.update(ctx, func(now *election) *election {
		if now == nil || now.Epoch != epoch || !now.settled() || c.hasRight(epoch) {
			return nil
		}
		return c.beat(now)
	})
	if err != nil {
		return false, err
	}
	if done {
		c.grant(begun, epoch)
	}
	return c.hasRight(epoch), nil
}

// beat is the election with the next beat and with what this process has acknowledged.
func (c *cluster) beat(now *election) *election {
	c.mu.Lock()
	acked, oldest := c.acked, c.oldest
	c.mu.Unlock()
	next := now.renewed(acked, oldest, c.r.margin(), c.r.now())
	return &next
}

// hasRight reports whether the right holds. Where the clock was set it doesn't.
func (c *cluster) hasRight(epoch int64) bool {
	now := c.r.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.election != nil && c.election.Epoch == epoch && now.Before(c.right) && membership.Elapsed(c.renewed, now) < c.r.fresh()
}

// acknowledged notes which samples of the elected replica became durable, from minT on and with which reach, unless
// another one may have been elected meanwhile.
func (c *cluster) acknowledged(ctx context.Context, epoch, minT, reach int64) error {
	ok, err := c.mayStore(ctx, epoch)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok || c.election == nil || c.election.Epoch != epoch {
		return errChosenAnew
	}
	c.acked, c.oldest = max(c.acked, reach), min(c.oldest, minT)
	return nil
}
