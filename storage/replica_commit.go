package storage

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// CommitOf is Commit for samples that a replica of a cluster sent, which Check has let in, of series without the
// label of the replica. It returns nil once every sample is durable: stored, if the replica is the elected one; held,
// if it isn't; or covered by the samples of another that are stored. Only what is stored is visible to queries.
// Besides Commit's errors there is ErrHeldFull.
func (b *Batch) CommitOf(ctx context.Context, r *Replicas, clusterLabel, replica string) error {
	if len(b.entries)+len(b.exemplars) == 0 {
		b.Release()
		return nil
	}
	c := r.known(clusterName{b.tenant.Name(), clusterLabel})
	if c == nil {
		b.Release()
		return fmt.Errorf("storage: cluster %q wasn't checked", clusterLabel)
	}
	minT, maxT := b.times()
	ch, err := c.route(ctx, replica, minT, maxT)
	if err != nil {
		b.Release()
		return err
	}
	stored := len(b.entries)
	if ch.elected() != replica || !ch.settled() || minT <= ch.last().FromMS {
		held, dropped := b.divide(ch, replica, r.margin(), r.reach())
		if err := c.hold(ctx, ch, replica, held); err != nil {
			b.Release()
			return err
		}
		stored = len(b.entries) + len(b.exemplars)
		r.metrics.samples.WithLabelValues("held").Add(float64(held.samples()))
		r.metrics.samples.WithLabelValues("covered").Add(float64(dropped))
		if stored == 0 {
			b.Release()
			return nil
		}
	}
	minT, maxT = b.times()
	reach := b.reach(r)
	if err := b.Commit(ctx); err != nil {
		return err
	}
	r.metrics.samples.WithLabelValues("stored").Add(float64(stored))
	if ch.elected() != replica || maxT <= ch.last().FromMS {
		return nil
	}
	return c.acknowledged(ctx, ch.Epoch, minT, reach)
}

// times returns the least and the greatest timestamp, of samples and exemplars, of a batch that isn't empty.
func (b *Batch) times() (minT, maxT int64) {
	minT, maxT = math.MaxInt64, math.MinInt64
	for i := range b.entries {
		minT, maxT = min(minT, b.entries[i].T), max(maxT, b.entries[i].T)
	}
	for i := range b.exemplars {
		minT, maxT = min(minT, b.exemplars[i].T), max(maxT, b.exemplars[i].T)
	}
	return minT, maxT
}

// divide leaves in the batch what is to be stored, and returns what is to be held.
func (b *Batch) divide(ch *election, replica string, margin time.Duration, fresh reach) (held *heldBuilder, dropped int) {
	held = &heldBuilder{fresh: fresh}
	keep := b.entries[:0]
	for i := range b.entries {
		e := b.entries[i]
		way := ch.disposition(replica, e.T, margin)
		if way == dispositionStore {
			keep = append(keep, e)
			continue
		}
		if way == dispositionHold {
			held.add(&e)
		} else {
			dropped++
		}
		b.bytes -= queuedBytes + int64(len(e.Hist))
		if e.Hist != nil {
			b.histograms--
		}
	}
	clear(b.entries[len(keep):])
	b.entries = keep
	keepExemplars := b.exemplars[:0]
	for i := range b.exemplars {
		e := b.exemplars[i]
		switch ch.disposition(replica, e.T, margin) {
		case dispositionStore:
			keepExemplars = append(keepExemplars, e)
			continue
		case dispositionHold:
			held.addExemplar(&e)
		case dispositionDrop:
		}
		b.bytes -= queuedBytes + int64(len(e.Data))
	}
	clear(b.exemplars[len(keepExemplars):])
	b.exemplars = keepExemplars
	held.cut()
	return held, dropped
}

// samples returns how many samples the values hold.
func (b *heldBuilder) samples() (n int) {
	for i := range b.about {
		n += b.about[i].Samples
	}
	return n
}

// hold makes what a replica sent durable, apart from what is stored.
func (c *cluster) hold(ctx context.Context, ch *election, replica string, b *heldBuilder) error {
	if len(b.values) == 0 {
		return nil
	}
	size := int64(0)
	for _, v := range b.values {
		size += int64(len(v))
	}
	rows, ok := c.claim(ch, replica, b, size)
	if !ok {
		return ErrHeldFull
	}
	batches := make([]engine.Batch, len(rows))
	for i := range rows {
		batches[i] = engine.Batch{Table: engine.Held, Partition: format.HeldPartition(c.at.tenant, c.at.cluster, rows[i].epoch), Mutations: []engine.Mutation{{
			Clustering: rows[i].key(), Timestamp: format.StageTimestamp, Value: b.values[i],
		}}}
	}
	started := c.r.now()
	if err := c.r.s.mayWrite(); err != nil {
		c.forget(size)
		return err
	}
	if err := c.r.s.eng.Write(ctx, batches); err != nil {
		c.forget(size) // A sweep finds them if they are there.
		return fmt.Errorf("storage: holding samples of a replica: %w", err)
	}
	c.mu.Lock()
	c.held = append(c.held, rows...)
	c.mu.Unlock()
	if late := Elapsed(started, c.r.now()); late > commitTimeout {
		return fmt.Errorf("%w: holding samples took %v", engine.ErrUnavailable, late)
	}
	return nil
}

// claim takes room and numbers for rows to be held.
func (c *cluster) claim(ch *election, replica string, b *heldBuilder, size int64) ([]heldRow, bool) {
	if !c.r.claim(size) {
		return nil, false
	}
	c.mu.Lock()
	if c.bytes+size > c.r.opts.ClusterBytes {
		c.mu.Unlock()
		c.r.give(size)
		return nil, false
	}
	defer c.mu.Unlock()
	c.bytes += size
	rows := make([]heldRow, len(b.values))
	replica = strings.Clone(replica)
	for i, about := range b.about {
		c.seq++
		rows[i] = heldRow{
			epoch: ch.heldEpoch(), replica: replica, writer: c.r.s.writer, seq: c.seq,
			minT: about.MinT, maxT: about.MaxT, reach: about.Reach, samples: about.Samples, bytes: int64(len(b.values[i])),
		}
	}
	return rows, true
}

// forget gives back the room of rows.
func (c *cluster) forget(size int64) {
	c.mu.Lock()
	c.bytes -= size
	c.mu.Unlock()
	c.r.give(size)
}
