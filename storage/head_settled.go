package storage

import "time"

// SettledHeadBytes returns the size of a partition's samples in the head. It counts only the slots that ended at least
// settleMS milliseconds ago and to which nothing was written for at least rest. A backfill fills many such slots in
// succession, before the next round of sealing.
func (s *Store) SettledHeadBytes(partition int, settleMS int64, rest time.Duration) (bytes int64) {
	now := s.opts.Now()
	return s.head.RestingBytes(partition, func(slot int64, touched time.Time) bool {
		return s.IsSettled(slot, settleMS) && now.Sub(touched) >= rest
	})
}

// IsIdle reports whether the head has received no samples for a slot and partition for at least rest.
func (s *Store) IsIdle(w Work, rest time.Duration) bool {
	return s.opts.Now().Sub(s.head.LastTouched(w.slotPartition())) >= rest
}
