package ha

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// adoptUnownedRows adopts held rows that no process owns: rows of stopped processes, and rows whose write returned an
// error but was applied. An owner never keeps a row for longer than the interval between two sweeps, so a row that two
// consecutive sweeps find has no owner. In a store that isn't shared there are no other owners: the first sweep adopts
// every row of another writer.
func (c *cluster) adoptUnownedRows(ctx context.Context, ch *election) error {
	now := c.r.now()
	first := c.swept.IsZero()
	every := max(sweepInterval, 10*c.r.opts.Failover)
	if len(c.seen) == 0 && !c.hasRequestSince(c.r.earliestTime().Add(-sweepSilentInterval)) {
		every = max(every, sweepSilentInterval) // No replica sends, so there are no samples to hold.
	}
	if !first && membership.Elapsed(c.swept, now) < every {
		return nil
	}
	c.mu.Lock()
	mine := make(map[HeldID]bool, len(c.held))
	for i := range c.held {
		mine[c.held[i].HeldID] = true
	}
	c.mu.Unlock()
	seen, low := map[string]bool{}, ch.heldEpoch()
	var orphans []HeldID
	for era := ch.heldEpoch(); era >= ch.Low; era-- {
		for row, err := range c.r.env.Engine.Scan(ctx, engine.Range{
			Table: engine.Held, Partition: format.HeldPartition(c.at.Tenant, c.at.Cluster, era), KeysOnly: true,
		}) {
			if err != nil {
				return fmt.Errorf("ha: looking for held samples: %w", err)
			}
			h := HeldID{
				Epoch: era, Replica: strings.Clone(row.Clustering[0].Text),
				Writer: strings.Clone(row.Clustering[1].Text), Seq: row.Clustering[2].Int,
			}
			low = era
			name := fmt.Sprint(h)
			switch {
			case mine[h]:
			case c.seen[name], first && c.r.env.Member.IsAlone() && h.Writer != c.r.env.Writer:
				orphans = append(orphans, h)
			default:
				seen[name] = true
			}
		}
	}
	if err := c.adoptRows(ctx, orphans); err != nil {
		return err
	}
	// Held epochs that are older than the previous sweep's current epoch receive no more rows.
	if low = min(low, c.sweptEra); low > ch.Low {
		if _, _, err := c.updateElection(ctx, func(now *election) *election {
			if now == nil || now.Low >= low {
				return nil
			}
			next := *now
			next.Low = low
			return &next
		}); err != nil {
			return err
		}
	}
	c.seen, c.swept, c.sweptEra = seen, now, ch.heldEpoch()
	return nil
}

// adoptRows makes this process the owner of rows, except rows that were deleted or are corrupt.
func (c *cluster) adoptRows(ctx context.Context, rows []HeldID) error {
	slices.SortFunc(rows, func(a, b HeldID) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq))
	})
	for i := range rows {
		h := heldRow{HeldID: rows[i]}
		value, ok, err := c.r.readHeld(ctx, c.at, &h.HeldID)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		about, err := format.ParseHeld(value)
		if err != nil {
			c.corruptHeld(&h.HeldID, err)
			continue // A corrupt row is kept until its held epoch is abandoned.
		}
		h.minT, h.maxT, h.reach = about.MinT, about.MaxT, about.Reach
		h.samples, h.bytes = about.Samples, int64(len(value))
		c.r.mu.Lock()
		c.r.bytes += h.bytes // The row exists already, so no limit applies.
		c.r.mu.Unlock()
		c.mu.Lock()
		c.bytes += h.bytes
		c.held = append(c.held, h)
		c.mu.Unlock()
	}
	if len(rows) > 0 {
		c.r.env.Logger.Info("took over the held samples of a process that stopped",
			"tenant", c.at.Tenant, "cluster", c.at.Cluster, "rows", len(rows))
	}
	return nil
}

// corruptHeld reports an unreadable held row.
func (c *cluster) corruptHeld(h *HeldID, err error) {
	c.r.env.Corrupt(engine.Held,
		fmt.Errorf("a row of held samples of cluster %q of tenant %q: era %d, replica %q, writer %x, seq %d: %w",
			c.at.Cluster, c.at.Tenant, h.Epoch, h.Replica, h.Writer, h.Seq, err))
}
