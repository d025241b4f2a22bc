package memory

import (
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// NewExpiring returns an empty engine in which rows expire by the clock now, as on Cassandra:
//
//   - Drop does nothing.
//   - Clear isn't supported.
//   - An expired row is not returned. Its timestamp still counts: a write with the same timestamp has no effect.
//   - Of two puts with the same timestamp, one that expires wins over one that doesn't, and the later expiry over the
//     earlier one. If the expiries are equal, the value decides.
func NewExpiring(now func() time.Time) *Engine {
	e := New()
	e.now = now
	return e
}

// ExpiresRows reports whether rows expire.
func (e *Engine) ExpiresRows() bool { return e.now != nil }

// expired reports whether a row has expired.
func (e *Engine) expired(r row) bool {
	return e.now != nil && r.expires != 0 && r.expires <= e.now().Unix()
}

// outlives reports whether a row wins over another row with the same timestamp because of its expiry. same is true if
// their expiries are equal.
func (r row) outlives(other row) (wins, same bool) {
	switch {
	case r.expires == other.expires:
		return false, true
	case r.expires == 0 || other.expires == 0:
		return r.expires != 0, false
	default:
		return r.expires > other.expires, false
	}
}

// All returns all existing rows in the order of tables and keys, as one batch per partition and expiry.
func (e *Engine) All() (batches []engine.Batch) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, t := range engine.Tables {
		for _, p := range e.tables[t.ID] {
			first := len(batches)
			for _, r := range p.rows {
				if r.deleted || e.expired(r) {
					continue
				}
				i := slices.IndexFunc(batches[first:], func(b engine.Batch) bool { return b.Expires == r.expires })
				if i < 0 {
					i = len(batches) - first
					batches = append(batches, engine.Batch{Table: t, Partition: p.key, Expires: r.expires})
				}
				b := &batches[first+i]
				b.Mutations = append(b.Mutations,
					engine.Mutation{Clustering: r.key, Timestamp: r.timestamp, Value: r.value})
			}
		}
	}
	return batches
}
