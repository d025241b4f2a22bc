package counts

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// Env is what counting needs of its store.
type Env struct {
	Period *format.Periods
	// Head has the unsealed series, and Cache what queries have read of sealed windows.
	Head  *head.Head
	Cache *cache.Cache
	// Memory caches facts about windows that are over.
	Memory *ended.Memory
	Now    func() time.Time
	// Shared is true if other processes may count the same windows, and Expiring if rows expire by themselves.
	Shared, Expiring bool
	// Kept is for how long after the end of a window all of its labels are there, where rows expire by themselves.
	Kept time.Duration
	// QueryBytes bounds what one question may read, and CountingBytes the values of labels that are counted at once.
	QueryBytes, CountingBytes int64
	// Tenants lists all tenants, and Windows the windows of raw rows of one that are shown, up to last, in order.
	Tenants func(context.Context) ([]string, error)
	Windows func(ctx context.Context, tenant string, last int64) ([]int64, error)
	// Version returns the version of a window's commit records; 0: there are none.
	Version func(ctx context.Context, tenant string, window int64) (uint64, error)
	// Classes returns the classes whose series are counted in a window: those of which rows may be missing, as they are dropped or about to be,
	// are left out whole. others are these, a bit each.
	Classes func(ctx context.Context, tenant string, window int64) (counted []int64, others uint64, err error)
	// IsRolled reports whether all that is sealed in a window is in its rollups.
	IsRolled func(ctx context.Context, tenant string, window int64) (bool, error)
	// Metrics lists the names of a window's metrics, sorted. Where rows can't be read, that is an error.
	Metrics func(ctx context.Context, tenant string, window int64) ([]string, error)
	// Scan yields rows of series, and ScanCounts those of counts. Rows are valid during the call; where some can't be read, that is
	// an error, unless the range has Damaged.
	Scan, ScanCounts func(ctx context.Context, rows engine.Range, row func(engine.Row) error) error
	// MayCount returns an error if this process may not write counts now.
	MayCount func() error
	// Lock keeps windows from being dropped while counts are written, until unlock is called.
	Lock func() (unlock func())
	// Replace deletes rows of counts of a window and writes others, which expire at a time, seconds since 1970; 0: never.
	Replace func(ctx context.Context, u *ended.OverWindow, others []string, rows []engine.Mutation, expires int64) error
	// Note logs and counts rows that can't be read, each once.
	Note func(*engine.Table, error)
	// NewReader returns what reads sealed windows of a tenant for one question; warn, if it isn't nil, is called for rows that can't be read.
	NewReader func(ctx context.Context, tenant string, warn func(error)) (WindowReader, error)
}

// WindowReader reads the sealed windows of a tenant, of which rows that can't be read are warned of and left out.
type WindowReader interface {
	// Windows lists the windows of raw rows that are shown and have commit records, in order.
	Windows(ctx context.Context) ([]WindowVersion, error)
	// Window returns one of them; its Version is 0 if there is nothing to be seen.
	Window(ctx context.Context, window int64) (WindowVersion, error)
	// Metrics returns the metrics of a window, sorted by name.
	Metrics(ctx context.Context, w WindowVersion) ([]MetricShards, error)
	// Scan yields rows, which are valid during the call.
	Scan(ctx context.Context, rows engine.Range, row func(engine.Row) error) error
	// CorruptLabels counts and warns of a row of labels that can't be read.
	CorruptLabels(window int64, metric, series string, err error)
}

// WindowVersion is a window with the version of its commit records: while that is the same, so are the window's rows.
type WindowVersion struct {
	Window  int64
	Version uint64
}

// MetricShards is a metric of a window, with the number of its shards.
type MetricShards struct {
	Name   string
	Shards int64
}

// Statistics counts the series of a store.
type Statistics struct{ env Env }

// New returns the statistics of a store.
func New(env Env) *Statistics { return &Statistics{env} }
