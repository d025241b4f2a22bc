package storage

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

// sweep finds held rows that no process looks after: of processes that have ended, or of writes that failed and were
// done all the same. What one sweep finds and the next one finds again is such a row, for nobody holds one so long.
// In a store that isn't shared everything is, that this process doesn't know. This process looks after them from now
// on, as if it had written them.
func (c *cluster) sweep(ctx context.Context, ch *election) error {
	now := c.r.now()
	first := c.swept.IsZero()
	every := max(sweepEvery, 10*c.r.opts.Failover)
	if len(c.seen) == 0 && !c.heardSince(c.r.believed().Add(-sweepSilentEvery)) {
		every = max(every, sweepSilentEvery) // Nobody is there to be held of.
	}
	if !first && membership.Elapsed(c.swept, now) < every {
		return nil
	}
	c.mu.Lock()
	mine := make(map[heldAt]bool, len(c.held))
	for i := range c.held {
		mine[c.held[i].where()] = true
	}
	c.mu.Unlock()
	seen, low := map[string]bool{}, ch.heldEpoch()
	var orphans []heldRow
	for era := ch.heldEpoch(); era >= ch.Low; era-- {
		for row, err := range c.r.s.eng.Scan(ctx, engine.Range{Table: engine.Held, Partition: format.HeldPartition(c.at.tenant, c.at.cluster, era), KeysOnly: true}) {
			if err != nil {
				return fmt.Errorf("storage: looking for held rows: %w", err)
			}
			h := heldRow{epoch: era, replica: strings.Clone(row.Clustering[0].Text), writer: strings.Clone(row.Clustering[1].Text), seq: row.Clustering[2].Int}
			low = era
			name := fmt.Sprint(h.where())
			switch {
			case mine[h.where()]:
			case c.seen[name], first && !c.r.s.opts.Shared && h.writer != c.r.s.writer:
				orphans = append(orphans, h)
			default:
				seen[name] = true
			}
		}
	}
	if err := c.adoptRows(ctx, orphans); err != nil {
		return err
	}
	// Eras before that of the last sweep are over: nobody writes there any more.
	if low = min(low, c.sweptEra); low > ch.Low {
		if _, _, err := c.update(ctx, func(now *election) *election {
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

// adoptRows has this process look after rows.
func (c *cluster) adoptRows(ctx context.Context, rows []heldRow) error {
	slices.SortFunc(rows, func(a, b heldRow) int { return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.seq, b.seq)) })
	for i := range rows {
		h := &rows[i]
		value, ok, err := c.r.s.readHeld(ctx, c.at, h)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		about, err := format.ParseHeld(value)
		if err != nil {
			c.r.s.corrupt(engine.Held, fmt.Errorf("a held row of cluster %q of tenant %q: era %d, replica %q, writer %x, seq %d: %w",
				c.at.cluster, c.at.tenant, h.epoch, h.replica, h.writer, h.seq, err))
			continue // It stays, for a person to look at, until its era is left behind.
		}
		h.minT, h.maxT, h.reach, h.samples, h.bytes = about.MinT, about.MaxT, about.Reach, about.Samples, int64(len(value))
		c.r.mu.Lock()
		c.r.bytes += h.bytes // It is there already: no limit helps.
		c.r.mu.Unlock()
		c.mu.Lock()
		c.bytes += h.bytes
		c.held = append(c.held, *h)
		c.mu.Unlock()
	}
	if len(rows) > 0 {
		c.r.s.opts.Logger.Info("held samples of a process that ended are looked after", "tenant", c.at.tenant, "cluster", c.at.cluster, "rows", len(rows))
	}
	return nil
}
