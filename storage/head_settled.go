package storage

import "time"

// HeadSettled returns how many bytes the head holds of a partition's slots that ended at least settleMS ago, and that nothing was
// written to for rest: a backfill fills such slots one after the other, in any number, before a round of sealing is due.
func (s *Store) HeadSettled(partition int, settleMS int64, rest time.Duration) (bytes int64) {
	now := s.opts.Now()
	p := s.head.part(partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	for at, c := range p.slots {
		if at.partition == partition && s.Settled(at.slot, settleMS) && now.Sub(c.touched()) >= rest {
			bytes += c.bytes()
		}
	}
	return bytes
}

// Rests says whether nothing was written for rest to what the head holds of a slot and partition.
func (s *Store) Rests(w Work, rest time.Duration) bool {
	p := s.head.part(w.Partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := p.slots[w.at()]
	return c == nil || s.opts.Now().Sub(c.touched()) >= rest
}

// each calls f for all generations. The caller holds the partition's lock, as for what follows.
func (c *slotPartition) each(f func(*generation)) {
	for _, g := range c.closed {
		f(g)
	}
	if c.open != nil {
		f(c.open)
	}
	if c.followed != nil {
		f(c.followed)
	}
}

func (c *slotPartition) bytes() (n int64) {
	c.each(func(g *generation) { n += g.bytes.Load() })
	return n
}

// touched returns when anything was last written to it; zero: nothing was.
func (c *slotPartition) touched() (last time.Time) {
	c.each(func(g *generation) {
		if g.touched.After(last) {
			last = g.touched
		}
	})
	return last
}
