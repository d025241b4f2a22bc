package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// errDeleting means that held samples wait for a delete that may be about them.
var errDeleting = fmt.Errorf("%w: series are being deleted; try again", engine.ErrUnavailable)

// errTaking means that another process may be storing held samples of a replica, which a delete could miss.
var errTaking = fmt.Errorf("%w: held samples of a replica are being stored; try again", engine.ErrUnavailable)

// notDeleted begins the errors of deletes before their first write.
const notDeleted = "storage: nothing was deleted"

// carryOut seals what a delete is about, and writes its row. Held samples of replicas are stored before, and sealed
// here, or whoever stores them finds the delete.
func (s *Store) carryOut(ctx context.Context, tenant string, d *format.Tombstone) (err error) {
	s.deletes.taking.Lock()
	defer s.deletes.taking.Unlock()
	if d.Held, err = s.heldRows().Cuts(ctx, tenant); err != nil {
		return explainError(notDeleted, err)
	}
	if len(format.AppendTombstone(nil, d)) > format.MaxTombstoneBytes+format.MaxHeldCutBytes {
		return fmt.Errorf("%w: samples are held for too many HA replicas of this tenant; try again later", ErrBadDelete)
	}
	// After that: what isn't held any more is stored.
	if err := s.catchUp(ctx); err != nil {
		return explainError(notDeleted, err)
	}
	if err := s.sealOf(ctx, tenant, d); err != nil {
		return explainError(notDeleted, fmt.Errorf("storage: sealing the samples to delete: %w", err))
	}
	if err := s.clock.MayRemove(); err != nil { // Sealing may have taken long.
		return fmt.Errorf("storage: nothing was deleted: %w", err)
	}
	return s.writeDelete(ctx, tenant, d)
}

// writeDelete writes the row of a delete, when all that it is about is sealed. It announces it first:
//
//	sealed ─► announced: chunks sealed from now on name it ─► in force
//
// So whatever becomes of the second write, and whenever, the delete never hides samples acknowledged after it has
// failed. From the first write on it doesn't matter whether who asked for it is still there.
func (s *Store) writeDelete(ctx context.Context, tenant string, d *format.Tombstone) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), membership.CommitTimeout)
	defer cancel()
	begun := s.opts.Now()
	// Whoever finds the delete's tenant listed looks for it; so this comes first.
	err := s.eng.Write(ctx, []engine.Batch{{Table: engine.Tenants, Partition: engine.Key{engine.Int(deletersList)}, Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(tenant)}, Timestamp: 1, Value: []byte{1},
	}}}})
	if err != nil {
		return explainError("storage: writing the delete", err)
	}
	announced := *d
	announced.Announced = true
	err = s.putDelete(ctx, tenant, &announced)
	if err == nil {
		err = s.peers.mayComeInForce(ctx, tenant, begun)
	}
	if err != nil {
		return s.cancelDelete(tenant, d, explainError("storage: announcing the delete", err))
	}
	if err = s.putDelete(ctx, tenant, d); err == nil {
		err = s.peers.inTime(begun)
	}
	switch {
	case err == nil:
		s.deletes.mu.Lock()
		defer s.deletes.mu.Unlock()
		s.deletes.apply(d)
		return nil
	case !s.peers.mayCancel():
		s.opts.Logger.Error("a delete may or may not be applied later; it never affects samples written after the request. Retry it", "tenant", tenant,
			"matchers", fmt.Sprint(d.Matchers), "from", format.FormatTime(d.Start),
			"to", format.FormatTime(d.End), "err", err)
		return explainError("storage: writing the delete", err)
	}
	return s.cancelDelete(tenant, d, explainError("storage: writing the delete", err))
}

// mayCome reports whether a delete that was announced when it was read may have come in force since, or still may. read
// is a time before it was read.
func (m *deletes) mayCome(d *format.Tombstone, read time.Time) bool {
	if !d.Announced {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	since, ok := m.seen[d.ID]
	if !ok {
		maps.DeleteFunc(m.seen, func(_ string, since time.Time) bool { return read.Sub(since).Abs() > deleteRests })
		if m.seen == nil {
			m.seen = map[string]time.Time{}
		}
		m.seen[d.ID], since = read, read
	}
	return !read.After(since) || membership.Elapsed(since, read) <= 2*membership.CommitTimeout
}

// putDelete writes the row of a delete, announced or in force.
func (s *Store) putDelete(ctx context.Context, tenant string, d *format.Tombstone) error {
	timestamp := int64(format.TombstoneTimestamp)
	if d.Announced {
		timestamp = format.AnnouncedTimestamp
	}
	err := s.eng.Write(ctx, []engine.Batch{{Table: engine.Deletes, Partition: deletePartition(tenant), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(d.ID)}, Timestamp: timestamp, Value: format.AppendTombstone(nil, d),
	}}}})
	if err != nil {
		return err
	}
	m := &s.deletes
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exact {
		all := append(m.known[tenant].Filter(func(x *format.Tombstone) bool { return x.ID != d.ID }), d)
		all.Sort()
		m.known[tenant] = all
	}
	return nil
}

// cancelDelete removes a delete that no reader has seen in force. If that fails, a single process continues to treat
// the delete as announced, and removes it later: see settle. Its row may be in force until then. A process that read
// that row would compute rollups without the samples, and these would supersede later ones.
func (s *Store) cancelDelete(tenant string, d *format.Tombstone, because error) error {
	ctx, cancel := context.WithTimeout(context.Background(), membership.CommitTimeout)
	defer cancel()
	err := s.removeDelete(ctx, tenant, d)
	if err == nil {
		return because
	}
	s.opts.Logger.Error("a delete may or may not be applied later, because it could neither be written nor undone; it never affects samples "+
		"written after the request. Retry it", "tenant", tenant,
		"matchers", fmt.Sprint(d.Matchers), "from", format.FormatTime(d.Start),
		"to", format.FormatTime(d.End), "err", err)
	s.deletes.mu.Lock()
	defer s.deletes.mu.Unlock()
	if s.deletes.exact {
		s.deletes.toRemove = append(s.deletes.toRemove, tenantDelete{tenant, d})
	}
	return because
}

// removeDelete removes a delete.
func (s *Store) removeDelete(ctx context.Context, tenant string, d *format.Tombstone) error {
	if err := s.deleteTombstone(ctx, tenant, d.ID); err != nil {
		return err
	}
	m := &s.deletes
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.applied, d.ID)
	m.toRemove = slices.DeleteFunc(m.toRemove, func(x tenantDelete) bool { return x.ID == d.ID })
	if left := m.known[tenant].Filter(func(x *format.Tombstone) bool { return x.ID != d.ID }); len(left) > 0 {
		m.known[tenant] = left
	} else {
		delete(m.known, tenant)
	}
	return nil
}

// apply needs the lock.
func (m *deletes) apply(d *format.Tombstone) {
	if m.applied == nil {
		m.applied = map[string]bool{}
	}
	m.applied[d.ID] = true
}
