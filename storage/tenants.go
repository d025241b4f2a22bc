package storage

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
)

// allWindows is a bound of windowsOf: the range from -allWindows to allWindows contains all windows.
const allWindows = int64(math.MaxInt64)

// Tenants lists the tenants that have or had sealed rows or metadata.
func (s *Store) Tenants(ctx context.Context) (names []string, err error) {
	return s.tenantsSkipping(ctx, s.damage.Record)
}

// tenantsSkipping is like Tenants, with a function that is called for unreadable rows. If missed is nil, as in code
// that removes rows, unreadable rows are an error.
func (s *Store) tenantsSkipping(
	ctx context.Context, missed func(*damage.DamagedRowsError),
) (names []string, err error) {
	rows := engine.Range{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, KeysOnly: true}
	if missed != nil {
		rows.Damaged = func(d engine.Damage) { missed(s.damage.GapOf(&rows, d)) }
	}
	for row, err := range s.eng.Scan(ctx, rows) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing tenants: %w", err)
		}
		names = append(names, strings.Clone(row.Clustering[0].Text))
	}
	return names, nil
}

// TenantsOf lists tenants of the store in an engine, at most the number given by most. more is true if there are
// others.
func TenantsOf(ctx context.Context, eng engine.Engine, most int) (names []string, more bool, err error) {
	for row, err := range eng.Scan(
		ctx, engine.Range{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, KeysOnly: true},
	) {
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

// KnownTenants returns the tenants that have rows, or samples in this process's head, sorted.
func (s *Store) KnownTenants(ctx context.Context) ([]string, error) {
	names, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	names = append(names, s.head.Tenants()...)
	slices.Sort(names)
	return slices.Compact(names), nil
}
