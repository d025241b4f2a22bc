package storage

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// expireGrace is how long after its retention a window may still stand.
const expireGrace = 7 * 24 * time.Hour

// allWindows are the bounds of windowsOf that leave none out.
const allWindows = int64(math.MaxInt64)

// Tenants lists the tenants that have, or had, sealed rows or metadata.
func (s *Store) Tenants(ctx context.Context) (names []string, err error) {
	return s.tenantsAround(ctx, s.noteGap)
}

// everyTenant is Tenants for whoever removes rows: where some can't be read, that is an error.
func (s *Store) everyTenant(ctx context.Context) (names []string, err error) {
	return s.tenantsAround(ctx, nil)
}

// tenantsAround is Tenants; missed, if set, is called for rows that can't be read.
func (s *Store) tenantsAround(ctx context.Context, missed func(*DamagedRowsError)) (names []string, err error) {
	rows := engine.Range{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, KeysOnly: true}
	if missed != nil {
		rows.Damaged = func(d engine.Damage) { missed(s.gapOf(&rows, d)) }
	}
	for row, err := range s.eng.Scan(ctx, rows) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing tenants: %w", err)
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, nil
}

// TenantsOf lists the tenants of an engine's store, up to a number; more is true if there are more.
func TenantsOf(ctx context.Context, eng engine.Engine, most int) (names []string, more bool, err error) {
	for row, err := range eng.Scan(ctx, engine.Range{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, KeysOnly: true}) {
		if err != nil {
			return names, false, fmt.Errorf("storage: listing tenants: %w", err)
		}
		if len(names) == most {
			return names, true, nil
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, false, nil
}

// expiresAfter returns when rows of a window that are kept so long may vanish, seconds since 1970; 0: never.
func (s *Store) expiresAfter(window int64, keep Keep) int64 {
	kept := keep.Of(format.ResolutionOf(window))
	if kept == 0 {
		return 0
	}
	return (s.period.WindowEnd(window) + kept.Milliseconds() + expireGrace.Milliseconds()) / 1000
}

// expires is expiresAfter for what a tenant's classes share: names, marks, shards.
func (s *Store) expires(window int64, tenant string) int64 {
	return s.expiresAfter(window, s.livesLongest(s.horizonMemory.get(tenant), s.classes.others.Load(), tenant))
}

// lives returns how long rows of a class live that are written now: as long as they are kept, and where rows vanish by themselves, not less
// than was in force within the last week. A retention that was lowered can be taken back for a week, also for rows written meanwhile.
func (s *Store) lives(t *tenantHorizons, others *[]statedKeep, tenant string, class int64) Keep {
	if !s.expiring || t == nil { // As it is for most stores: keep below is allocated, once for each row.
		return s.classes.keepBy(others, tenant, class)
	}
	keep := s.classes.keepBy(others, tenant, class)
	for res, kept := range map[rollup.Resolution]*time.Duration{rollup.Raw: &keep.Raw, rollup.FiveMinutes: &keep.FiveMinutes, rollup.OneHour: &keep.OneHour} {
		if h := t.of(class, res); h != nil {
			*kept = time.Duration(h.living(kept.Milliseconds(), s.clock.SeenKept)) * time.Millisecond
		}
	}
	return keep
}

// livesLongest is lives for what a tenant's classes share.
func (s *Store) livesLongest(t *tenantHorizons, others *[]statedKeep, tenant string) Keep {
	keep := s.lives(t, others, tenant, classDefault)
	for class := int64(1); class < s.classes.count(); class++ {
		keep = keep.longest(s.lives(t, others, tenant, class))
	}
	return keep
}

// isOutlived reports whether the flags ask for a window of a resolution, that which holds a slot, no more: its end, the
// retention and the grace have passed. Rows that aren't made yet needn't be made then; existing ones go by horizons alone.
func (s *Store) isOutlived(res rollup.Resolution, slot int64, keep Keep) bool {
	now, _ := s.clock.Times()
	return outlived(s.period, s.period.WindowOfSlot(res, slot), keep, now)
}

func outlived(p *format.Periods, window int64, keep Keep, now time.Time) bool {
	kept := keep.Of(format.ResolutionOf(window))
	return kept != 0 && p.WindowEnd(window) <= wantedAt(now, kept+expireGrace)
}

// periodsOfNewStore are those of a store that was created with the default options.
var periodsOfNewStore = format.NewPeriods(format.Period{SlotMS: format.HourMS, RawWindowMS: rawWindow.Milliseconds(), Partitions: 1})

// Imports reports whether Import stores a sample of a series that is kept so long as a raw sample, and whether it adds the sample to rollups: of a sample
// that is past both, it stores nothing. t is the timestamp, milliseconds. Rows that a store already removed aren't taken into account.
func (k Keep) Imports(t int64, now time.Time) (raw, rollups bool) {
	raw = !outlived(periodsOfNewStore, periodsOfNewStore.WindowAt(rollup.Raw, t), k, now)
	return raw, raw || !outlived(periodsOfNewStore, periodsOfNewStore.WindowAt(rollup.FiveMinutes, t), k, now)
}

// KnownTenants lists the tenants that have rows, or samples in this process' head, sorted.
func (s *Store) KnownTenants(ctx context.Context) ([]string, error) {
	names, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	names = append(names, s.head.Tenants()...)
	slices.Sort(names)
	return slices.Compact(names), nil
}
