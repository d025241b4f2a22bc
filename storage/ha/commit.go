package ha

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// ReplicaBatch contains the samples of one request of a replica. The replica label was removed from their series.
type ReplicaBatch interface {
	// Extent returns the batch's size and range of timestamps. Extent.Newest ignores samples later than limit.
	Extent(limit int64) Extent
	// Split keeps the samples that are to be stored in the batch, moves those that are to be held to held, and returns
	// the number of dropped samples. It calls of with the timestamp of each sample and exemplar.
	Split(of func(t int64) Disposition, held *HeldBuilder) (dropped int)
	// Commit returns nil once every sample is durable and visible to queries. It always releases the batch.
	Commit(ctx context.Context) error
	// Release discards the batch.
	Release()
}

// Extent is the size of a batch and the range of its timestamps, in milliseconds.
type Extent struct {
	Samples, Exemplars int
	// MinT and MaxT are the min and max timestamps of samples and exemplars. If there are none, MinT is math.MaxInt64
	// and MaxT is math.MinInt64.
	MinT, MaxT int64
	// Newest is the max timestamp that isn't later than the limit, or math.MinInt64 if there is none. Ahead is true if
	// the batch contains later samples.
	Newest int64
	Ahead  bool
	// Median is the approximate median of the samples' timestamps, or math.MinInt64 if there are no samples.
	Median int64
}

// MedianTime returns the median of the timestamps of up to 63 of n samples, or math.MinInt64 if n is 0.
func MedianTime(n int, at func(i int) int64) int64 {
	var times [63]int64
	some := min(len(times), n)
	if some == 0 {
		return math.MinInt64
	}
	for i := range some {
		times[i] = at(i * n / some)
	}
	slices.Sort(times[:some])
	return times[(some-1)/2]
}

// Commit commits a batch of a replica's samples that CheckReplica has accepted. It returns nil once each sample is
// stored, held or covered: samples of the elected replica are stored, and other samples are held unless samples of the
// elected replica cover them. Only stored samples are visible to queries. Commit returns the batch's errors,
// ErrHeldFull, or engine.ErrUnavailable if another replica is elected concurrently. It always releases the batch.
func (r *Tracker) Commit(ctx context.Context, b ReplicaBatch, at ClusterName, replica string) error {
	has := b.Extent(math.MaxInt64)
	if has.Samples+has.Exemplars == 0 {
		b.Release()
		return nil
	}
	c := r.findCluster(at)
	if c == nil {
		b.Release()
		return fmt.Errorf("%w: replica cluster %q was just removed; retry", engine.ErrUnavailable, at.Cluster)
	}
	front := int64(math.MinInt64)
	if has.Samples > 0 {
		front = b.Extent(addMargin(has.Median, r.margin())).Newest
	}
	if err := r.commitTo(ctx, c, b, replica, has, front); err != nil {
		return err
	}
	c.heard.setFront(replica, front, r.now(), r.margin()/2)
	return nil
}

// commitTo commits a batch with the given extent and front.
func (r *Tracker) commitTo(
	ctx context.Context, c *cluster, b ReplicaBatch, replica string, has Extent, front int64,
) error {
	ch, err := c.electionFor(ctx, replica, has.MinT, has.MaxT)
	if err != nil {
		b.Release()
		return err
	}
	stored := has.Samples
	if ch.electedReplica() != replica || !ch.isSettled() || has.MinT <= ch.lastTerm().FromMS {
		stored, err = c.writeHeld(ctx, b, ch, replica)
		if err != nil || stored == 0 {
			b.Release()
			return err
		}
	}
	reach := r.reach()
	has = b.Extent(reach.limit)
	reach.t, reach.ahead = has.Newest, has.Ahead
	if err := b.Commit(ctx); err != nil {
		return err
	}
	r.metrics.samples.WithLabelValues("stored").Add(float64(stored))
	if ch.electedReplica() != replica || has.MaxT <= ch.lastTerm().FromMS {
		return nil
	}
	return c.recordDurable(ctx, ch.Epoch, progress{reach.ms(), front, has.MinT})
}

// writeHeld writes the samples that are to be held to table held. It returns the number of samples and exemplars that
// remain in the batch to be stored.
func (c *cluster) writeHeld(ctx context.Context, b ReplicaBatch, ch *election, replica string) (stored int, err error) {
	held := &HeldBuilder{tenant: c.at.Tenant, fresh: c.r.reach()}
	margin := c.r.margin()
	dropped := b.Split(func(t int64) Disposition { return ch.disposition(replica, t, margin) }, held)
	held.finishValue()
	if err := c.holdSamples(ctx, ch, replica, held); err != nil {
		return 0, err
	}
	c.r.metrics.samples.WithLabelValues("held").Add(float64(held.sampleCount()))
	c.r.metrics.samples.WithLabelValues("covered").Add(float64(dropped))
	has := b.Extent(math.MaxInt64)
	return has.Samples + has.Exemplars, nil
}

// holdSamples writes a replica's samples to table held.
func (c *cluster) holdSamples(ctx context.Context, ch *election, replica string, b *HeldBuilder) error {
	if len(b.values) == 0 {
		return nil
	}
	size := int64(0)
	for _, v := range b.values {
		size += int64(len(v))
	}
	rows, ok := c.reserveRows(ch, replica, b, size)
	if !ok {
		return ErrHeldFull
	}
	batches := make([]engine.Batch, len(rows))
	for i := range rows {
		batches[i] = engine.Batch{
			Table: engine.Held, Partition: format.HeldPartition(c.at.Tenant, c.at.Cluster, rows[i].Epoch),
			Mutations: []engine.Mutation{{
				Clustering: rows[i].Key(), Timestamp: HeldTimestamp, Value: b.values[i],
			}},
		}
	}
	started := c.r.now()
	if err := c.r.env.Member.MayWrite(); err != nil {
		c.releaseBytes(size)
		return err
	}
	if err := c.r.env.Engine.Write(ctx, batches); err != nil {
		c.releaseBytes(size) // A sweep finds the rows if they were written.
		return fmt.Errorf("ha: holding samples of a replica: %w", err)
	}
	c.mu.Lock()
	c.held = append(c.held, rows...)
	c.mu.Unlock()
	if late := membership.Elapsed(started, c.r.now()); late > membership.CommitTimeout {
		return fmt.Errorf("%w: storing held samples took too long, %v; try again", engine.ErrUnavailable, late)
	}
	return nil
}

// reserveRows reserves bytes and sequence numbers for held rows. It returns false if a limit would be exceeded.
func (c *cluster) reserveRows(ch *election, replica string, b *HeldBuilder, size int64) ([]heldRow, bool) {
	if !c.r.reserveBytes(size) {
		return nil, false
	}
	c.mu.Lock()
	if c.bytes+size > c.r.opts.ClusterBytes {
		c.mu.Unlock()
		c.r.releaseBytes(size)
		return nil, false
	}
	defer c.mu.Unlock()
	c.bytes += size
	rows := make([]heldRow, len(b.values))
	replica = strings.Clone(replica)
	for i, about := range b.about {
		c.seq++
		rows[i] = heldRow{
			HeldID: HeldID{Epoch: ch.heldEpoch(), Replica: replica, Writer: c.r.env.Writer, Seq: c.seq},
			minT:   about.MinT, maxT: about.MaxT, reach: about.Reach, samples: about.Samples,
			bytes: int64(len(b.values[i])),
		}
	}
	return rows, true
}

// releaseBytes frees bytes that reserveRows has reserved.
func (c *cluster) releaseBytes(size int64) {
	c.mu.Lock()
	c.bytes -= size
	c.mu.Unlock()
	c.r.releaseBytes(size)
}
