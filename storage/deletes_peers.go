package storage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// deletePeers is what other processes that use the engine mean for deletes: deletesAlone where there are none,
// deletesAmongOthers where there may be some.
type deletePeers interface {
	// load reads all deletes before anything asks for them, where that holds for as long as the store is open. named
	// returns those of a tenant, and found takes note of those that were read.
	load(ctx context.Context) error
	named(ctx context.Context, tenant string) (format.Tombstones, error)
	found(tenant string, all format.Tombstones)

	// mayComeInForce returns why a delete that was announced after begun mustn't come in force, and checkDeletesFresh
	// why one that did is not known to have. mayCancel reports whether it can be taken back if it may have come in
	// force.
	mayComeInForce(ctx context.Context, tenant string, begun time.Time) error
	inTime(begun time.Time) error
	mayCancel() bool
	// settle removes the deletes of a tenant that failed and whose removal failed.
	settle(ctx context.Context, tenant string) error

	// toMark returns the staged slots that must be marked for cleaned deletes. resting returns those of deletes that
	// may be removed, unless anything of the slots that are returned too is about them. is, of abandoned, reports
	// whether nobody brings a delete in force any more, until release is called. removing is called before deletes are
	// removed; rows are all that stand.
	toMark(ctx context.Context, all format.Tombstones) (staged []Work, err error)
	resting(ctx context.Context, all format.Tombstones) (some format.Tombstones, staged []Work, err error)
	abandoned() (is func(*format.Tombstone) bool, release func())
	removing(ctx context.Context, tenant string, gone, rows format.Tombstones) error
}

func (s *Store) newDeletePeers() deletePeers {
	if s.opts.Shared {
		return deletesAmongOthers{s}
	}
	return deletesAlone{s}
}

// deletesAlone are those of a store's only process: what it remembers is all that there is, and who asks for a delete
// is here.
type deletesAlone struct{ s *Store }

func (p deletesAlone) load(ctx context.Context) error {
	all, err := p.s.allDeletes(ctx)
	if err != nil {
		return err
	}
	m := &p.s.deletes
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.exact = all, true
	return nil
}

func (p deletesAlone) named(ctx context.Context, tenant string) (format.Tombstones, error) {
	all, err := p.s.allDeletes(ctx)
	return all[tenant], err
}

func (deletesAlone) found(string, format.Tombstones) {}

func (deletesAlone) mayComeInForce(context.Context, string, time.Time) error { return nil }
func (deletesAlone) inTime(time.Time) error                                  { return nil }
func (deletesAlone) mayCancel() bool                                         { return true }

// settle runs before windows are hidden and before deletes are cleaned. Otherwise the row of such a delete could be in
// force after a restart, when no samples are left to recompute rollups from.
func (p deletesAlone) settle(ctx context.Context, tenant string) error {
	m := &p.s.deletes
	m.mu.Lock()
	failed := slices.Clone(m.toRemove)
	m.mu.Unlock()
	for _, d := range failed {
		if d.tenant != tenant {
			continue
		}
		if err := p.s.removeDelete(ctx, tenant, d.Tombstone); err != nil {
			return err
		}
	}
	return nil
}

func (p deletesAlone) toMark(ctx context.Context, all format.Tombstones) ([]Work, error) {
	return p.s.stagedIn(ctx, all)
}

func (deletesAlone) resting(_ context.Context, all format.Tombstones) (format.Tombstones, []Work, error) {
	return all, nil, nil
}

// abandoned are all that are announced, where no delete is under way.
func (p deletesAlone) abandoned() (is func(*format.Tombstone) bool, release func()) {
	if !p.s.deletes.taking.TryLock() {
		return func(*format.Tombstone) bool { return false }, func() {}
	}
	return func(d *format.Tombstone) bool { return d.Announced }, p.s.deletes.taking.Unlock
}

func (deletesAlone) removing(context.Context, string, format.Tombstones, format.Tombstones) error {
	return nil
}

// deletesAmongOthers are those of a process of several. Deletes are read each time, and one stays until no other
// process can have what it deletes.
type deletesAmongOthers struct{ s *Store }

func (deletesAmongOthers) load(context.Context) error { return nil }

func (p deletesAmongOthers) named(ctx context.Context, tenant string) (format.Tombstones, error) {
	return p.s.readDeletes(ctx, tenant)
}

func (p deletesAmongOthers) found(tenant string, all format.Tombstones) {
	p.s.rememberDeletes(tenant, all)
}

// mayComeInForce returns an error where another process, which may not have seen the delete, stores held samples of a
// replica. Whoever begins that later finds it announced, and waits.
func (p deletesAmongOthers) mayComeInForce(ctx context.Context, tenant string, begun time.Time) error {
	takers, err := p.s.heldRows().Takers(ctx, tenant)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(takers, func(writer string) bool { return writer != p.s.member.Writer() }) {
		return errTaking
	}
	return p.inTime(begun)
}

// checkDeletesFresh returns an error where a delete wasn't written within the time that others wait for one that is
// announced.
func (p deletesAmongOthers) inTime(begun time.Time) error {
	if took := membership.Elapsed(begun, p.s.opts.Now()); took > membership.CommitTimeout {
		return fmt.Errorf("%w: the delete took too long, %v; try again", engine.ErrUnavailable, took.Round(time.Second))
	}
	return nil
}

// mayCancel: others may have seen it, and made rollups of the samples that are left: they would miss those that come
// back.
func (deletesAmongOthers) mayCancel() bool { return false }

// settle does nothing: deletes that failed stay announced or in force.
func (deletesAmongOthers) settle(context.Context, string) error { return nil }

// toMark returns nothing: the deletes stay as long as anything is staged, see resting.
func (deletesAmongOthers) toMark(context.Context, format.Tombstones) ([]Work, error) { return nil, nil }

func (p deletesAmongOthers) resting(ctx context.Context, all format.Tombstones) (some format.Tombstones, staged []Work, err error) {
	some = all.Filter(p.rested)
	staged, err = p.s.stagedIn(ctx, some)
	return some, staged, err
}

// abandoned are those that are announced and rested: whoever asked for them has failed, or ended.
func (p deletesAmongOthers) abandoned() (is func(*format.Tombstone) bool, release func()) {
	return func(d *format.Tombstone) bool { return d.Announced && p.rested(d) }, func() {}
}

func (p deletesAmongOthers) removing(ctx context.Context, tenant string, gone, rows format.Tombstones) error {
	if len(gone) == 0 {
		return nil
	}
	// All of them are older than that, and younger ones stand.
	before := p.s.opts.Now().UnixMilli() - deleteRests.Milliseconds() + 1
	return p.s.clear(ctx, tenant, before, rows.Filter(func(d *format.Tombstone) bool { return !gone.Has(d.ID) }))
}

// rested reports whether a delete was asked for so long ago that no seal is under way that was begun before it.
func (p deletesAmongOthers) rested(d *format.Tombstone) bool {
	return p.s.opts.Now().UnixMilli()-d.When >= deleteRests.Milliseconds()
}
