package memory

import (
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

// NewExpiring returns an empty engine on which rows go by themselves, by the clock now, as they do on Cassandra:
//
//   - Drop does nothing.
//   - It doesn't take Clear.
//   - A row that is past its time vanishes. Its timestamp counts on: a write with the same timestamp is void.
//   - Of two puts with one timestamp the one that expires wins over the one that doesn't, and the later one over the
//     earlier one; the value decides last.
func NewExpiring(now func() time.Time) *Engine {
	e := New()
	e.now = now
	return e
}

// ExpiresRows reports whether rows vanish by themselves.
func (e *Engine) ExpiresRows() bool { return e.now != nil }

// expired reports whether a row is past its time.
func (e *Engine) expired(r row) bool {
	return e.now != nil && r.expires != 0 && r.expires <= e.now().Unix()
}

// outlives reports whether a row wins over another of the same timestamp because of when they expire; same reports that it is
// at one time, or that nothing ever does.
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

// All returns the rows that are there, a batch for each partition and expiry, in order of tables and keys.
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
				b.Mutations = append(b.Mutations, engine.Mutation{Clustering: r.key, Timestamp: r.timestamp, Value: r.value})
			}
		}
	}
	return batches
}
