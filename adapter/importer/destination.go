package importer

import (
	"context"
	"math"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
)

// Destination is where history goes: a store that is opened here, or one that a server has. Its methods are called one
// after the other; an error doesn't undo finished calls, and either may be called again with the same series.
type Destination interface {
	// Identity identifies the store, see storage.Store.Identity.
	Identity(ctx context.Context, tenant string) (string, error)
	// Import stores a tenant's series, which are its own from then on. All of it is durable once it returns without an
	// error; samples that are there already stay as they are.
	Import(ctx context.Context, tenant string, list []storage.ImportedSeries) (storage.ImportStats, error)
	// ImportBuckets does so for series of which the source has aggregates.
	ImportBuckets(ctx context.Context, tenant string, list []storage.ImportedBuckets) (storage.ImportStats, error)
	// Compare compares series, which are its own from then on, with the samples stored for the tenant at the same timestamps,
	// by series and day. within is the range of time from which the series have all samples of the source: a rollup bucket that extends beyond it may
	// contain others, and isn't compared. It reports differences, not necessarily all: the stats count them.
	Compare(ctx context.Context, tenant string, list []storage.ImportedSeries, within query.Span, report func(Difference)) (VerifyStats, error)
}

// AllTimes is the range of all timestamps.
func AllTimes() query.Span { return query.Span{MinT: math.MinInt64, MaxT: math.MaxInt64} }

// Local is a store that is opened here. now is its clock.
func Local(s *storage.Store, now func() time.Time) Destination { return &local{s, now} }

type local struct {
	store *storage.Store
	now   func() time.Time
}

// Identity implements Destination.
func (l *local) Identity(context.Context, string) (string, error) { return l.store.Identity(), nil }

// Import implements Destination.
func (l *local) Import(ctx context.Context, tenant string, list []storage.ImportedSeries) (storage.ImportStats, error) {
	return l.store.Import(ctx, tenant, list)
}

// ImportBuckets implements Destination.
func (l *local) ImportBuckets(ctx context.Context, tenant string, list []storage.ImportedBuckets) (storage.ImportStats, error) {
	return l.store.ImportBuckets(ctx, tenant, list)
}

// Compare implements Destination.
func (l *local) Compare(ctx context.Context, tenant string, list []storage.ImportedSeries, within query.Span, report func(Difference)) (VerifyStats, error) {
	v := &verifier{ctx: ctx, local: l, tenant: tenant, within: within, report: report}
	err := v.batch(list)
	return v.stats, err
}
