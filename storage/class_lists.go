package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// listFor returns the id of the list that a window of raw rows takes if its first row is written now: of a day to come, that of the day.
func (s *Store) listFor(window int64) string {
	return s.retention.InForce(max(s.startOf(window), s.clock.EngineTime().UnixMilli()))
}

// classesOn returns the list of classes of a window of raw rows. fixed is false if no row of it was written: then it is the list that it would take now.
func (s *Store) classesOn(ctx context.Context, tenant string, window int64) (l *retention.ClassList, fixed bool, err error) {
	row, fixed, err := s.fixedExpiry(ctx, expiryAt{tenant, sharedClass, window})
	if err != nil {
		return nil, false, err
	}
	if !fixed {
		row.Classes = s.listFor(window)
	}
	l, err = s.retention.List(ctx, row.Classes)
	return l, fixed, err
}

// fixClasses is classesOn the day of a slot, and fixes the list if it isn't.
func (s *Store) fixClasses(ctx context.Context, tenant string, slot int64) (*retention.ClassList, error) {
	row, err := s.fixExpiry(ctx, expiryAt{tenant, sharedClass, s.period.WindowOfSlot(rollup.Raw, slot)})
	if err != nil {
		return nil, err
	}
	return s.retention.List(ctx, row.Classes)
}

// dayLists are the lists of classes of some days of a tenant.
type dayLists struct {
	s      *Store
	tenant string
	of     map[int64]*retention.ClassList // by the window of raw rows
}

// at returns the list of the day of a timestamp.
func (d *dayLists) at(ctx context.Context, t int64) (*retention.ClassList, error) {
	if d.s.retention.Classes() == 1 {
		return retention.NoClasses, nil
	}
	window := d.s.period.RawWindowAt(t)
	if l := d.of[window]; l != nil {
		return l, nil
	}
	l, _, err := d.s.classesOn(ctx, d.tenant, window)
	if err != nil {
		return nil, err
	}
	if d.of == nil {
		d.of = map[int64]*retention.ClassList{}
	}
	d.of[window] = l
	return l, nil
}

// openRetention makes what has the classes and retentions of the store.
func (s *Store) openRetention(have *settings) {
	o := &s.opts
	s.retention = retention.New(retention.Env{
		Engine: s.eng, Configured: o.kept(), AddsClasses: o.AddClasses && !o.ReadOnly, Now: o.Now, Logger: o.Logger, Refresh: s.refreshPeriods, Corrupt: s.damage.Corrupt,
		Advertised: func(ctx context.Context, f func(string, []byte)) error { return s.member.EachStatement(ctx, f) },
	}, have.ClassHistory)
}

// isOutlived reports whether the flags ask for a window of a resolution, that which holds a slot, no more: its end, the
// retention and the grace have passed. Rows that aren't made yet needn't be made then; existing ones go by horizons alone.
func (s *Store) isOutlived(res rollup.Resolution, slot int64, keep retention.Keep) bool {
	now, _ := s.clock.Times()
	return keep.Outlived(s.period, s.period.WindowOfSlot(res, slot), now)
}

// RetentionOf is how long a tenant's series are kept: those in no class, and those in one that is kept the longest.
func (s *Store) RetentionOf(tenant string) (usual, longest retention.Keep) {
	return s.retention.Keep(tenant, retention.DefaultClass), s.retention.Longest(tenant)
}

// Retention returns what has the classes and retentions of the store.
func (s *Store) Retention() *retention.Keeper { return s.retention }
