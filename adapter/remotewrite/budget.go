package remotewrite

import "sync/atomic"

// budget bounds the bytes that all requests hold together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take claims n bytes, or nothing when they aren't left.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// give returns n bytes.
func (b *budget) give(n int64) { b.used.Add(-n) }
