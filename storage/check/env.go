package check

import (
	"context"
	"iter"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Missed is called for unreadable rows.
type Missed func(*damage.DamagedRowsError)

// Env connects a check to the store.
type Env struct {
	Engine engine.Engine
	// Rows reads the rows of series.
	Rows   *paged.Rows
	Period *format.Periods
	Counts *counts.Statistics
	// Shared is true if other processes may use the engine at the same time.
	Shared bool
	// Classes returns the number of classes.
	Classes func() int64
	// ClassesIn returns the lists of classes for the days of a window.
	ClassesIn func(ctx context.Context, tenant string, window int64) (WindowClasses, error)
	// GapOf describes the unreadable rows of a scan.
	GapOf func(*engine.Range, engine.Damage) *damage.DamagedRowsError
	// Tenants returns all tenants. Windows returns the windows in which a tenant may have rows. Unlisted returns the
	// windows that have rows although they aren't listed.
	Tenants  func(context.Context, Missed) ([]string, error)
	Windows  func(ctx context.Context, tenant string, missed Missed) ([]int64, error)
	Unlisted func(ctx context.Context, tenant string) ([]int64, error)
	// Deletes returns the deletes of a tenant that are in force.
	Deletes func(ctx context.Context, tenant string) (format.Tombstones, error)
	// Metrics lists the names of a window's metrics.
	Metrics func(ctx context.Context, tenant string, window int64) ([]string, error)
	// Shards returns the number of shards of a metric. ShardsRow returns the row with this number, or nil if there is
	// none. Both also read the expiry of the window's rows, which Places needs.
	Shards    func(ctx context.Context, window int64, tenant, metric string, missed Missed) (int64, error)
	ShardsRow func(ctx context.Context, window int64, tenant, metric string, missed Missed) ([]byte, error)
	// Places yields the classes and shards of a metric whose rows haven't expired.
	Places func(tenant string, window, shards int64) iter.Seq[format.ClassShard]
	// IsGone reports whether rows of a class may have expired or been deleted, in the window of a resolution that
	// contains a slot.
	IsGone func(ctx context.Context, res rollup.Resolution, slot int64, tenant string, class int64) bool
	// Unrolled returns the slots of a raw window for which the window's rollups don't include all seals.
	Unrolled func(ctx context.Context, tenant string, window int64) ([]int64, error)
	// Rollups reads the rollup chunks of a series whose start is between from and to, in order. unread is true if there
	// may be more chunks that are unreadable.
	Rollups func(ctx context.Context, res rollup.Resolution, window int64, series *head.Series, shards, from,
		to int64) (found []StoredRollup, unread bool, err error)
	// EncodeRollup encodes buckets in the form in which rollups are stored. b may have no buckets.
	EncodeRollup func(b *rollup.Buckets, res rollup.Resolution, version uint64) []byte
	// Waiting returns the slots of a partition with samples that aren't sealed.
	Waiting func(ctx context.Context, partition int) ([]int64, error)
	// IsEmpty reports whether a partition of a table has no rows.
	IsEmpty func(context.Context, *engine.Table, engine.Key) (bool, error)
	// CheckLabels and CheckExemplar return an error for labels that the store doesn't accept.
	CheckLabels, CheckExemplar func(labels.Labels) error
	Days                       DayRollups
}

// WindowClasses contains the lists of classes for the days of a window.
type WindowClasses struct {
	// Lists is the number of different lists.
	Lists int
	// Of returns the class of a series according to each list, one byte per list.
	Of func(labels.Labels) string
	// ListAt returns the index of the list for the day of a time, in milliseconds.
	ListAt func(startMS int64) int
}

// StoredRollup is a stored rollup chunk.
type StoredRollup struct {
	Version uint64
	Data    []byte
}

// DayRollups recomputes the rollups of a day, and detects days whose rollups are being changed. first and last are the
// first and last slot of the day.
type DayRollups interface {
	// HourRollup computes the 1h chunk of a series in a class from its 5m chunks, for the day that starts at startMS.
	// window and shards are the window of the 5m chunks and its number of shards. unread is true if a chunk is
	// unreadable.
	HourRollup(ctx context.Context, startMS, window int64, series *head.Series, class, shards int64) (chunk []byte,
		unread bool, err error)
	// CutShort reports whether a day's slots have commit records at 5m that are missing at 1h, because an import of
	// rollups failed after writing the 5m records. The import wasn't acknowledged. The next write to the day recomputes
	// its 1h chunks.
	CutShort(ctx context.Context, tenant string, first, last int64) (bool, error)
	// TrimmedInPart reports whether some deletes haven't been applied yet to a metric's rollups, in slots of a day
	// whose raw rows no longer exist.
	TrimmedInPart(ctx context.Context, tenant, metric string, first, last int64) (bool, error)
}
