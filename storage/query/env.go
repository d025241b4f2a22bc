// Package query answers queries of a store. It finds series by their labels, and reads their samples, buckets,
// exemplars and metadata from the head and from sealed rows.
//
// Package storage creates one Querier per store with New and exposes its methods. Env connects the Querier to the
// store: the engine, the head, caches, retention, deletes and other processes. A caller may assume that the methods are
// safe for concurrent use, that each acknowledged sample in the range is found, and that samples hidden by retention or
// by a delete are not. Unreadable rows are skipped and reported as warnings.
//
//	Querier ─► request ─► 1. head ─► 2. commit records ─► 3. labels ────► 4. chunks
//	                                 windowFinder         seriesFinder    selection
//
// The order of these steps matters (invariant I4 of package storage). Samples that are sealed during a query are found
// twice and returned once. If rows were read before the head, such samples could be missed.
//
// select.go, windows.go, match.go, series.go, filter_query.go, chunk_spans.go, fetch.go, buckets.go
package query

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Env connects a Querier to its store.
type Env struct {
	Period *format.Periods
	// Head holds the unsealed samples. Rows reads the rows of series, which may be in pages. Engine reads all other
	// rows.
	Head   *head.Head
	Rows   *paged.Rows
	Engine engine.Engine
	// Versions returns the engine's versions of partitions. It is nil if the engine has no versions.
	Versions engine.Versioned
	Cache    *cache.Cache
	// Memory caches information about ended windows.
	Memory *ended.Memory
	Damage *damage.Log
	// Retention manages the classes, and determines which of their rows are hidden.
	Retention *retention.Keeper
	// Limiter enforces the limits of tenants; nil means no limits. QueryBytes is the maximum number of encoded bytes
	// that one query may read.
	Limiter    *tenant.Limiter
	QueryBytes int64
	Now        func() time.Time
	// MaxAhead is the maximum time by which an accepted sample may be in the future.
	MaxAhead time.Duration
	// SeekRows is the number of rows that the engine can read past in the time needed to start a scan. GroupRows is the
	// approximate number of a query's chunks that are read together from a remote engine. For a local engine, GroupRows
	// is 0.
	SeekRows, GroupRows int
	// SpannedSeries is the minimum number of matching series of a metric in a window for which spans are used. If it is
	// 0, spannedSeries applies.
	SpannedSeries int

	// Ready returns nil once queries can be answered.
	Ready func() error
	// CatchUp waits until all samples that other processes have acknowledged are visible.
	CatchUp func(context.Context) error
	// Deletes returns the deletes that a query of a tenant must apply. Before it returns, it loads the samples that
	// other processes have acknowledged into the head, and removes samples from the head that these deletes cover.
	Deletes func(ctx context.Context, tenant string) (format.Tombstones, error)
	// UnreadDelete returns a warning if a delete of the tenant can't be decoded, so that Deletes doesn't return it.
	// Otherwise it returns nil.
	UnreadDelete func(tenant string) error
	// Windows lists the windows between first and last in which a tenant may have rows, in order. It calls missed for
	// unreadable rows.
	Windows func(
		ctx context.Context, tenant string, first, last int64, missed func(*damage.DamagedRowsError),
	) ([]int64, error)
	// Shards reads the row with a metric's number of shards. It returns nil if there is no such row. If the row is
	// unreadable, it calls missed and returns the maximum number of shards.
	Shards func(
		ctx context.Context, window int64, tenant, metric string, missed func(*damage.DamagedRowsError),
	) ([]byte, error)
	// StartsFrom returns the time, in milliseconds, after which queries with WithRecordedStarts return the start
	// timestamps of a tenant's samples.
	StartsFrom func(tenant string) int64
	// Unrolled lists the commit records of a raw window whose changes aren't included in its rollups: records of seals,
	// and of the given deletes.
	Unrolled func(
		ctx context.Context, tenant string, window int64, deletes format.Tombstones,
	) ([]format.CommitKey, error)
}

// Querier answers queries of a store.
type Querier struct {
	env         Env
	chunkMemory *chunkMemory
}

// New returns a Querier.
func New(env Env) *Querier { return &Querier{env: env, chunkMemory: newChunkMemory(chunkMemoryBytes)} }
