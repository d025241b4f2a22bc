package storage

import "time"

// HeadSettled returns how many bytes the head holds of a partition's slots that ended at least settleMS ago, and that nothing was
// written to for rest: a backfill fills such slots one after the other, in any number, before a round of sealing is due.
func (s *Store) HeadSettled(partition int, settleMS int64, rest time.Duration) (bytes int64) {
	now := s.opts.Now()
	return s.head.RestingBytes(partition, func(slot int64, touched time.Time) bool {
		return s.Settled(slot, settleMS) && now.Sub(touched) >= rest
	})
}

// Rests reports whether nothing was written for rest to what the head holds of a slot and partition.
func (s *Store) Rests(w Work, rest time.Duration) bool {
	return s.opts.Now().Sub(s.head.Touched(w.at())) >= rest
}
