package storage

// Labels, names and metadata explain other rows of their window, and must not go before these. They are written again by
// every process, and whenever the retention was changed; so of all that are written the one that lives longest must win.
// Where Cassandra decides between two rows it looks at their timestamps first. Those of rows that explain grow with the time
// to live, just before the end of the window, so that files of its time hold them:
//
//	timestamp   ◄──────── window ────────►
//	                     │ lives short … long, for ever │ end
//	                     └── explainSpan, 18 minutes ───┘
//
// Earlier releases wrote them with the end of a slot, which is less, but for the window's last slot.

// explainSpan is by how much timestamps of rows that explain differ, microseconds: one a second of life.
const explainSpan = 1 << 30

// explains returns the write timestamp of a row that explains others of a window; expires is when it may vanish, seconds since
// 1970; 0: never.
func (s *Store) explains(window, expires int64) int64 {
	return s.period.WindowEnd(window)*1000 - explainSpan + int64(s.lifeOf(window, expires))
}

// lifeOf tells how long a row lives that explains others of a window. Who remembers that it was written remembers this, too: how long
// rows are kept may become longer while a process runs, as soon as it hears of another that keeps them so.
func (s *Store) lifeOf(window, expires int64) uint32 {
	if expires == 0 {
		return explainSpan - 1
	}
	return uint32(min(max(expires-s.period.WindowEnd(window)/1000, 0), explainSpan-2))
}
