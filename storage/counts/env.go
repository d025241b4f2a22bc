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

// Env connects Statistics to its store.
type Env struct {
	Period *format.Periods
	// Head holds the unsealed series. Cache holds the results of reads of sealed windows.
	Head  *head.Head
	Cache *cache.Cache
	// Memory caches facts about ended windows.
	Memory *ended.Memory
	Now    func() time.Time
	// Shared is true if other processes may count the same windows. Expiring is true if the engine expires rows.
	Shared, Expiring bool
	// Kept is the time after the end of a window during which its labels don't expire, if the engine expires rows.
	Kept time.Duration
	// QueryBytes is the maximum number of bytes that one query may read. CountingBytes is the maximum size of the label
	// values that are counted together.
	QueryBytes, CountingBytes int64
	// Tenants lists all tenants. Windows lists a tenant's visible raw windows up to last, in order.
	Tenants func(context.Context) ([]string, error)
	Windows func(ctx context.Context, tenant string, last int64) ([]int64, error)
	// Version returns the version of a window's commit records, or 0 if there are none.
	Version func(ctx context.Context, tenant string, window int64) (uint64, error)
	// Classes returns the classes whose series are counted in a window. A class isn't counted if some of its rows may
	// be missing, because they are or will soon be dropped. others has a bit for each class that isn't counted.
	Classes func(ctx context.Context, tenant string, window int64) (counted []int64, others uint64, err error)
	// IsRolled reports whether a window's rollups include all its sealed samples.
	IsRolled func(ctx context.Context, tenant string, window int64) (bool, error)
	// Metrics lists the names of a window's metrics, sorted. It returns an error for unreadable rows.
	Metrics func(ctx context.Context, tenant string, window int64) ([]string, error)
	// Scan reads rows of series. ScanCounts reads rows of counts. A row is valid only during the call of row. Both
	// return an error for unreadable rows, unless rows.Damaged is set.
	Scan, ScanCounts func(ctx context.Context, rows engine.Range, row func(engine.Row) error) error
	// MayCount returns an error if this process must not write counts now.
	MayCount func() error
	// Lock prevents windows from being dropped while counts are written, until unlock is called.
	Lock func() (unlock func())
	// Replace deletes a window's stored counts with the keys in others, and writes new rows. The new rows expire at a
	// time in seconds since 1970; 0 means never.
	Replace func(ctx context.Context, u *ended.OverWindow, others []string, rows []engine.Mutation, expires int64) error
	// Note logs and counts an unreadable row, unless it was noted before.
	Note func(*engine.Table, error)
	// NewReader returns a reader of a tenant's sealed windows for one query. If warn isn't nil, it is called for
	// unreadable rows.
	NewReader func(ctx context.Context, tenant string, warn func(error)) (WindowReader, error)
}

// WindowReader reads the sealed windows of a tenant. It skips unreadable rows and reports them as warnings.
type WindowReader interface {
	// Windows lists the visible raw windows with commit records, in order.
	Windows(ctx context.Context) ([]WindowVersion, error)
	// Window returns one of these windows. Its Version is 0 if no part of the window is visible.
	Window(ctx context.Context, window int64) (WindowVersion, error)
	// Metrics returns the metrics of a window, sorted by name.
	Metrics(ctx context.Context, w WindowVersion) ([]MetricShards, error)
	// Scan calls row for each row of a range. The row is valid only during the call.
	Scan(ctx context.Context, rows engine.Range, row func(engine.Row) error) error
	// CorruptLabels counts an unreadable labels row, and reports it as a warning.
	CorruptLabels(window int64, metric, series string, err error)
}

// WindowVersion is a window with the version of its commit records. The version changes whenever the window's rows
// change.
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

// New returns a Statistics for a store.
func New(env Env) *Statistics { return &Statistics{env} }
