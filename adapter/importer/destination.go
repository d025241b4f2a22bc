package importer

import (
	"context"
	"math"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
)

// Destination is the target of an import: a store opened by this process, or the store of a server. Its methods aren't
// called concurrently. An error doesn't undo finished calls. Import and ImportBuckets may be called again with the same
// series.
type Destination interface {
	// Identity returns the identity of the store, see storage.Store.Identity.
	Identity(ctx context.Context, tenant string) (string, error)
	// Import stores the series of a tenant and takes ownership of list. All samples are durable once it returns without
	// an error. Samples that are already stored remain unchanged.
	Import(ctx context.Context, tenant string, list []storage.ImportedSeries) (storage.ImportStats, error)
	// ImportBuckets stores series with aggregates instead of samples, under the same contract as Import.
	ImportBuckets(ctx context.Context, tenant string, list []storage.ImportedBuckets) (storage.ImportStats, error)
	// Compare compares series with the samples stored for the tenant at the same timestamps, by series and day, and
	// takes ownership of list. within is the range of time in which list has all samples of the source. A rollup bucket
	// that extends beyond within isn't compared, because it may contain samples that aren't in list. Compare may report
	// only some of the differences; the stats count all of them.
	Compare(
		ctx context.Context, tenant string, list []storage.ImportedSeries, within query.Span, report func(Difference),
	) (VerifyStats, error)
}

// AllTimes is the range of all timestamps.
func AllTimes() query.Span { return query.Span{MinT: math.MinInt64, MaxT: math.MaxInt64} }

// NewLocal returns a Destination for an open store. now is the store's clock.
func NewLocal(s *storage.Store, now func() time.Time) Destination { return &local{s, now} }

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
func (l *local) ImportBuckets(
	ctx context.Context, tenant string, list []storage.ImportedBuckets,
) (storage.ImportStats, error) {
	return l.store.ImportBuckets(ctx, tenant, list)
}

// Compare implements Destination.
func (l *local) Compare(
	ctx context.Context, tenant string, list []storage.ImportedSeries, within query.Span, report func(Difference),
) (VerifyStats, error) {
	v := &verifier{ctx: ctx, local: l, tenant: tenant, within: within, report: report}
	err := v.verifyBatch(list)
	return v.stats, err
}
