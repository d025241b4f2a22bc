package storage

import (
	"context"
	"log/slog"
	"time"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
)

// View reads the state of a store except its samples: settings, tenants, windows, processes and unsealed slots. It is
// read-only. Package inspect is built on it.
type View struct{ s *Store }

// View returns the view of an open store.
func (s *Store) View() View { return View{s} }

// OpenView returns a view of a store without opening the store: nothing is written, other processes don't see this
// process, and no head is built. Of opts, only the retentions, the classes and the clock are used. Like Open, it
// returns ErrNoStore, errOlderFormat and errNewerFormat.
func OpenView(ctx context.Context, eng engine.Engine, opts Options) (View, error) {
	eng = engine.ReadOnly(eng)
	have, _, err := readSettings(ctx, eng)
	if err != nil {
		return View{}, err
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	_, opts.Shared = engine.As[engine.Clock](eng)
	s := &Store{
		opts: opts, period: format.NewPeriods(have.Periods...), eng: eng, created: time.UnixMilli(have.CreatedMS),
		restoredFrom: have.RestoredFrom,
		head:         head.New(have.Periods[0].Partitions, nil), cache: cache.New(0),
	}
	s.openRows(&have)
	s.listed = newStagedList(s)
	s.metrics = newMetrics(s, nil)
	s.damage = damage.NewLog(s.period, s.metrics.corrupt, opts.Logger)
	s.newMember(&have)
	s.openQuerier()
	return View{s}, nil
}

// Engine returns the engine. It is read-only if the view was opened by OpenView.
func (v View) Engine() engine.Engine { return v.s.eng }

// Created returns when the store was created.
func (v View) Created() time.Time { return v.s.created }

// RestoredFrom returns the name of the backup from which the store was restored, or "" if it is the original.
func (v View) RestoredFrom() string { return v.s.restoredFrom }

// Period returns the most recently read periods.
func (v View) Period() *format.Periods { return v.s.period }

// Tenants lists the tenants that have or had sealed rows or metadata.
func (v View) Tenants(ctx context.Context) ([]string, error) { return v.s.Tenants(ctx) }

// Windows lists the windows in which a tenant may have rows, in order.
func (v View) Windows(ctx context.Context, tenant string) ([]int64, error) {
	return v.s.windowsOf(ctx, tenant, -allWindows, allWindows)
}

// WindowInfos lists the windows of a tenant by resolution and time.
func (v View) WindowInfos(ctx context.Context, tenant string) ([]WindowInfo, error) {
	return v.s.windowInfosOf(ctx, tenant)
}

// HasRows reports whether a window of a tenant has commit records or metric names.
func (v View) HasRows(ctx context.Context, tenant string, window int64) (bool, error) {
	return v.s.hasRows(ctx, tenant, window)
}

// Deletes returns a tenant's deletes.
func (v View) Deletes(ctx context.Context, tenant string) (format.Tombstones, error) {
	return v.s.deletesOf(ctx, tenant)
}

// Retention returns the Keeper, which manages the store's classes, retentions and retention boundaries.
func (v View) Retention() *retention.Keeper { return v.s.retention }

// WaitingWork lists the slots of a partition that may have unsealed samples: see Store.WaitingWork.
func (v View) WaitingWork(ctx context.Context, partition int) ([]Work, error) {
	return v.s.WaitingWork(ctx, partition)
}

// Processes returns the processes that sent a heartbeat within membership.ProcessTTL.
func (v View) Processes(ctx context.Context) ([]membership.Process, error) {
	return v.s.member.Processes(ctx)
}

// Leases returns the leases of all partitions.
func (v View) Leases(ctx context.Context) ([]membership.Lease, error) {
	return v.s.member.Leases(ctx, v.s.period.Partitions())
}

// Clock returns the clock time at which the observed uptime was last written, or zero if it was never written. Later
// checks of the clock are based on this time. doubted is true if the clock was untrusted then or is untrusted now. On a
// cluster, Clock returns zero values.
func (v View) Clock(ctx context.Context) (seen time.Time, doubted bool, err error) {
	last, doubted, err := v.s.clock.ReadUptime(ctx)
	if _, ok := engine.As[engine.Clock](v.s.eng); ok || err != nil || last.IsZero() {
		return seen, false, err
	}
	return last, doubted, nil
}
