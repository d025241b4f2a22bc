// Package query answers queries of a store: it finds series, and reads their samples or buckets, by the head and sealed rows.
//
//	Querier ─► request ─► 1. head ─► 2. marks ─────► 3. labels ────► 4. chunks   samples sealed meanwhile are met twice, never missed
//	                                 windowFinder    seriesFinder    selection
//
// select.go, windows.go, match.go, series.go, sought.go, chunk_spans.go, fetch.go, buckets.go
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

// Env is what queries need of their store.
type Env struct {
	Period *format.Periods
	// Head has the unsealed samples. Rows reads the rows of series, in pages or not, and Engine all others.
	Head   *head.Head
	Rows   *paged.Rows
	Engine engine.Engine
	// Versions are the engine's versions of partitions; nil: it has none.
	Versions engine.Versioned
	Cache    *cache.Cache
	// Memory caches facts about windows that are over.
	Memory *ended.Memory
	Damage *damage.Log
	// Retention has the classes, and which of their rows are shown.
	Retention *retention.Keeper
	// Limiter holds tenants to their limits; nil: they have none. QueryBytes bounds the encoded bytes that one query may read.
	Limiter    *tenant.Limiter
	QueryBytes int64
	Now        func() time.Time
	// MaxAhead is how far in the future an accepted sample may lie.
	MaxAhead time.Duration
	// SeekRows is how many rows the engine passes over in the time that it takes to begin a scan. GroupRows is about how many chunks of an answer are
	// read together where the engine is far away; 0: it is near.
	SeekRows, GroupRows int
	// SpannedSeries is how many series of a window's metric match at least for their spans to be used; 0: spannedSeries.
	SpannedSeries int

	// Ready returns nil once queries can be answered.
	Ready func() error
	// CatchUp makes visible what other processes have acknowledged.
	CatchUp func(context.Context) error
	// Deletes returns the deletes that a query of a tenant must apply, once the head has all that other processes had acknowledged and
	// no samples that these deletes remove.
	Deletes func(ctx context.Context, tenant string) (format.Tombstones, error)
	// Windows lists the windows from first to last in which a tenant may have rows, in order. It calls missed for rows that can't be read.
	Windows func(ctx context.Context, tenant string, first, last int64, missed func(*damage.DamagedRowsError)) ([]int64, error)
	// Shards reads the row of a metric's shards; nil: there is none. It calls missed if the row can't be read, and returns the largest number.
	Shards func(ctx context.Context, window int64, tenant, metric string, missed func(*damage.DamagedRowsError)) ([]byte, error)
	// StartsFrom returns the time after which samples of a tenant have start timestamps in a context of WithRecordedStarts, milliseconds.
	StartsFrom func(tenant string) int64
	// Unrolled lists the commit records of a window of raw rows, and of deletes, that its rollups lack.
	Unrolled func(ctx context.Context, tenant string, window int64, deletes format.Tombstones) ([]format.CommitKey, error)
}

// Querier answers queries of a store.
type Querier struct {
	env         Env
	chunkMemory *chunkMemory
}

// New returns a querier.
func New(env Env) *Querier { return &Querier{env: env, chunkMemory: newChunkMemory(chunkMemoryBytes)} }
