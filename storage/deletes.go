package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/rollup"
)

// deletes are the rows of table delete that this process has read.
type deletes struct {
	mu sync.Mutex
	// known are the deletes of the tenants that have any, as they were read last.
	known map[string]format.Tombstones
	// unread are warnings of deletes that can't be decoded and have no effect, by tenant.
	unread map[string]error
	// exact is true if known has all deletes that may be in force; only of a store that is alone.
	exact bool
	// toRemove are deletes that failed and whose removal failed; only of a store that is alone.
	toRemove []tenantDelete
	// applied are those whose samples the head has let go of. It is of a shared store.
	applied map[string]bool
	// learning is held by whoever applies new ones.
	learning sync.Mutex
	// cleaning is held by CleanTombstones.
	cleaning sync.Mutex
	// taking is held for writing from when a delete looks at held samples of replicas until it is in force, and for
	// reading by whoever stores those, from when it reads the deletes until the samples are durable.
	taking sync.RWMutex
	// seen is when this process first read deletes that are announced, by id.
	seen map[string]time.Time
}

type tenantDelete struct {
	tenant string
	*format.Tombstone
}

// maxDeletions bounds the deletes of a tenant that aren't cleaned.
const maxDeletions = 1000

// maxDeleteSteps bounds bounds.Steps of a delete's regular expressions, which are matched with the series of later
// reads and seals.
const maxDeleteSteps = 2000

var (
	// ErrTooManyDeletes means that a tenant has as many deletes as there may be, which must be cleaned first.
	ErrTooManyDeletes = fmt.Errorf(
		"storage: %d deletes are waiting to be cleaned, which is the maximum; clean tombstones first", maxDeletions,
	)
	// ErrBadDelete means that a delete can't be carried out as it was asked for.
	ErrBadDelete = errors.New("storage: invalid delete")
)

// deletersList is the list of table tenants that has all who ever deleted anything.
const deletersList = 1

func deletePartition(tenant string) engine.Key { return engine.Key{engine.Text(tenant)} }

// Delete deletes all that is stored of the series that match, from start to end, both included, milliseconds. When it
// returns nil that is durable, and no query that begins afterwards shows any of it, in this process or in another.
// Samples written afterwards are new, whatever their times; those being written meanwhile may be deleted or not. After
// an error the delete may take effect, at any time, or not; never on samples acknowledged from then on. Once it has
// begun to be written, it goes on though ctx ends.
//
// It seals what the stage holds of these series first, and notes the held samples of replicas. Buckets that it touches
// are made anew in the background, and are answered from samples until then. The space is freed by CleanTombstones.
func (s *Store) Delete(ctx context.Context, tenant string, start, end int64, matchers ...*labels.Matcher) error {
	ctx = engine.WithMakingRoom(ctx)
	if err := s.clock.MayRemove(); err != nil {
		return fmt.Errorf("storage: nothing was deleted: %w", err)
	}
	if err := s.Ready(); err != nil {
		return err
	}
	d, err := s.newDeletion(ctx, tenant, start, end, matchers)
	if err != nil || d == nil {
		return explainError(notDeleted, err)
	}
	have, err := s.deletesToName(ctx, tenant)
	if err != nil {
		return explainError(notDeleted, err)
	}
	if len(have) >= maxDeletions {
		return ErrTooManyDeletes
	}
	if err := s.carryOut(ctx, tenant, d); err != nil {
		return err
	}
	s.opts.Logger.Info("deleted series", "tenant", tenant, "matchers", fmt.Sprint(d.Matchers),
		"from", format.FormatTime(d.Start), "to", format.FormatTime(d.End))
	s.metrics.deletes.Inc()
	err = explainError(
		"storage: the delete was applied, but 1-hour buckets at the ends of its range may still include deleted samples",
		s.trimEnds(ctx, tenant, d),
	)
	if s.opts.seams.still {
		return err
	}
	s.running.Go(func() {
		err := panics.Call("creating rollups", func() error { return s.WorkOffDeletes(s.background, tenant) })
		if err != nil && s.background.Err() == nil {
			s.opts.Logger.Warn(
				"recomputing rollups after a delete failed; until it succeeds, queries of that time read raw samples",
				"tenant", tenant, "err", err,
			)
		}
	})
	return err
}

// newDeletion returns nil where nothing can be in the range.
func (s *Store) newDeletion(
	ctx context.Context, tenant string, start, end int64, matchers []*labels.Matcher,
) (*format.Tombstone, error) {
	switch {
	case len(matchers) == 0:
		return nil, fmt.Errorf("%w: a selector must have a matcher", ErrBadDelete)
	case s.follower.mode == followsNothing:
		return nil, fmt.Errorf(
			"%w: this process doesn't read the writes of other processes; send the request to a process with --target=all or --target=read",
			ErrBadDelete,
		)
	}
	for _, m := range matchers {
		if n := bounds.Steps(m.GetRegexString()); n > maxDeleteSteps {
			return nil, fmt.Errorf(
				"%w: a match of its regular expression would take %d steps for each character of a value; the maximum is %d. Use fewer wildcards and repetitions (.*, +, ?), or several requests",
				ErrBadDelete, n, maxDeleteSteps,
			)
		}
	}
	now := s.opts.Now()
	newest, err := s.newestStored(ctx, tenant, now.Add(MaxAhead).UnixMilli()+format.DayMS)
	if err != nil {
		return nil, err
	}
	d := &format.Tombstone{
		ID: newID(), When: now.UnixMilli(), Start: max(start, -format.MaxTime), End: min(end, newest, format.MaxTime),
		Matchers: matchers,
	}
	switch {
	case len(format.AppendTombstone(nil, d)) > format.MaxTombstoneBytes:
		return nil, fmt.Errorf("%w: its matchers have more than %d bytes", ErrBadDelete, format.MaxTombstoneBytes)
	case d.Start > d.End:
		return nil, nil
	}
	return d, nil
}

// newestStored returns up to when a tenant may have samples that were acknowledged, milliseconds: at least newest,
// which is MaxAhead after the clock and a day more, as clocks differ by less; later where the clock was far ahead once,
// or is behind and believed.
func (s *Store) newestStored(ctx context.Context, tenant string, newest int64) (int64, error) {
	if err := s.catchUp(ctx); err != nil {
		return 0, err
	}
	// Before windows are listed: samples that are sealed meanwhile, and released from the head, are of a window that is
	// listed.
	if _, last, ok := s.head.SlotBounds(); ok {
		newest = max(newest, s.period.SlotEnd(last))
	}
	windows, err := s.readableWindows(ctx, tenant, s.period.WindowAt(rollup.Raw, newest), format.LastWindow(rollup.Raw))
	if err != nil {
		return 0, err
	}
	for _, w := range windows {
		newest = max(newest, s.period.WindowEnd(w))
	}
	for _, res := range rollup.Resolutions { // Samples may be gone, and buckets of them stand.
		if newest, err = s.newestRolled(ctx, tenant, res, newest); err != nil {
			return 0, err
		}
	}
	return newest, nil
}

// newestRolled returns the end of the last slot with marks of rollups, or newest, milliseconds, where that is later.
func (s *Store) newestRolled(ctx context.Context, tenant string, res rollup.Resolution, newest int64) (int64, error) {
	windows, err := s.readableWindows(ctx, tenant, s.period.WindowAt(res, newest), format.LastWindow(res))
	if err != nil {
		return 0, err
	}
	for _, w := range windows {
		for row, err := range s.eng.Scan(ctx, engine.Range{
			Table: engine.Sealed, Partition: format.SealedPartition(w, tenant),
			From: engine.Key{engine.Int(s.period.SlotOf(newest))}, KeysOnly: true,
		}) {
			if err != nil {
				return 0, fmt.Errorf("storage: reading the seal records of window %d of tenant %q: %w", w, tenant, err)
			}
			newest = max(newest, s.period.SlotEnd(row.Clustering[0].Int))
		}
	}
	return newest, nil
}

// sealOf seals the slots that have, or after a failed commit may have, staged samples to which a delete applies.
func (s *Store) sealOf(ctx context.Context, tenant string, d *format.Tombstone) error {
	found, err := s.head.SlotPartitionsOf(ctx, tenant, d)
	if err != nil {
		return err
	}
	for _, at := range found {
		if _, err := s.Seal(ctx, Work{Slot: at.Slot, Partition: at.Partition}); err != nil {
			return err
		}
	}
	return nil
}

// deletesOf reads the deletes of a tenant that are in force.
func (s *Store) deletesOf(ctx context.Context, tenant string) (format.Tombstones, error) {
	all, err := s.deletesToName(ctx, tenant)
	return all.InForce(), err
}

// deletesToName reads the deletes of a tenant, those that are announced included: chunks that are sealed now name all.
func (s *Store) deletesToName(ctx context.Context, tenant string) (format.Tombstones, error) {
	return s.peers.named(ctx, tenant)
}

// allDeletes reads the deletes of all tenants that have any, those that are announced included.
func (s *Store) allDeletes(ctx context.Context) (map[string]format.Tombstones, error) {
	m := &s.deletes
	m.mu.Lock()
	if m.exact {
		defer m.mu.Unlock()
		return maps.Clone(m.known), nil
	}
	m.mu.Unlock()
	tenants, err := s.deleters(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]format.Tombstones{}
	for _, tenant := range tenants {
		found, err := s.readDeletes(ctx, tenant)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			all[tenant] = found
		}
	}
	return all, nil
}

// deleters lists the tenants that may have deletes.
func (s *Store) deleters(ctx context.Context) (names []string, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Tenants, Partition: engine.Key{engine.Int(deletersList)}, KeysOnly: true,
	}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing the processes that deleted series: %w", err)
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, nil
}

// readDeletes reads the deletes of a tenant that stand.
func (s *Store) readDeletes(ctx context.Context, tenant string) (format.Tombstones, error) {
	found, _, err := s.scanDeletes(ctx, tenant)
	if err == nil {
		s.peers.found(tenant, found)
	}
	return found, err
}

// scanDeletes reads the rows of a tenant: the deletes that stand, and those that were removed and came back. One that
// can't be decoded has no effect, and queries of the tenant have a warning.
func (s *Store) scanDeletes(ctx context.Context, tenant string) (found, back format.Tombstones, err error) {
	s.deletes.mu.Lock()
	known := s.deletes.known[tenant]
	s.deletes.mu.Unlock()
	var cleared format.Clearance
	var unread error
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Deletes, Partition: deletePartition(tenant)}) {
		if err != nil {
			return nil, nil, fmt.Errorf("storage: reading the deletes of tenant %q: %w", tenant, err)
		}
		id := row.Clustering[0].Text
		if id == format.ClearanceID { // It comes first.
			if cleared, err = format.ParseClearance(row.Value); err != nil {
				s.damage.RecordCorruptRow(engine.Deletes,
					fmt.Errorf("storage: can't read which deletes of tenant %q were cleaned: %w", tenant, err))
			}
			continue
		}
		var d *format.Tombstone
		if i := slices.IndexFunc(
			known, func(d *format.Tombstone) bool { return d.ID == id && d.Announced == format.IsAnnounced(row.Value) },
		); i >= 0 {
			d = known[i] // Its matchers are compiled.
		} else if d, err = format.ParseTombstone(strings.Clone(id), row.Value); err != nil {
			unread = fmt.Errorf(
				"storage: a delete of tenant %q can't be read and has no effect, so deleted samples may be in results (delete %x): %w",
				tenant, id, err,
			)
			s.damage.RecordCorruptRow(engine.Deletes, unread)
			continue
		}
		if cleared.Clears(d) {
			back = append(back, d)
		} else {
			found = append(found, d)
		}
	}
	s.noteUnreadDelete(tenant, unread)
	return found, back, nil
}

// noteUnreadDelete sets the warning of a tenant's deletes that can't be decoded; nil: all can.
func (s *Store) noteUnreadDelete(tenant string, unread error) {
	m := &s.deletes
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case unread == nil:
		delete(m.unread, tenant)
	case m.unread == nil:
		m.unread = map[string]error{tenant: unread}
	default:
		m.unread[tenant] = unread
	}
}

// unreadDelete returns the warning of a tenant's deletes that can't be decoded, or nil.
func (s *Store) unreadDelete(tenant string) error {
	s.deletes.mu.Lock()
	defer s.deletes.mu.Unlock()
	return s.deletes.unread[tenant]
}

func (s *Store) rememberDeletes(tenant string, found format.Tombstones) {
	m := &s.deletes
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]format.Tombstones{}
	}
	for _, d := range m.known[tenant] {
		if !found.Has(d.ID) {
			delete(m.applied, d.ID)
		}
	}
	if len(found) == 0 {
		delete(m.known, tenant)
		return
	}
	m.known[tenant] = found
}
