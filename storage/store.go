package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/engine"
)

var (
	// ErrNotReady says that the head isn't rebuilt yet: queries must wait, writes need not.
	ErrNotReady = errors.New("storage: the head is still being rebuilt from the stage")
	// ErrOverloaded says that too many bytes wait to be written. Nothing was taken; try again later.
	ErrOverloaded = errors.New("storage: too many writes are waiting")
	// ErrTooManySeries says that the head has reached its memory limit; samples of known series are still taken.
	ErrTooManySeries = errors.New("storage: the head has reached its memory limit, no new series are taken")
	// ErrTooOld says that a sample is older than what is kept.
	ErrTooOld = errors.New("storage: sample is older than the retention")
	// ErrTooFarAhead says that a sample lies more than MaxAhead in the future.
	ErrTooFarAhead = errors.New("storage: sample is more than 10 minutes ahead of this machine's clock")
	// ErrQueryTooLarge says that a query needs more than Options allow.
	ErrQueryTooLarge = errors.New("storage: the query needs too much")
)

// MaxAhead is how far in the future a sample may lie.
const MaxAhead = 10 * time.Minute

// LabelError says why labels can't name a series.
type LabelError struct {
	// Reason is a short constant for counters: duplicate_label, empty_label_name, missing_metric_name,
	// invalid_utf8, too_many_labels, label_name_too_long, label_value_too_long.
	Reason string
	// Detail names the label, and the limit where one was broken.
	Detail string
	// Series is the series as text, shortened.
	Series string
}

func (e *LabelError) Error() string {
	return fmt.Sprintf("%s: %s in series %s", e.Reason, e.Detail, e.Series)
}

// InvalidHistogramError says why a native histogram can't be stored.
type InvalidHistogramError struct{ Err error }

func (e *InvalidHistogramError) Error() string { return "invalid native histogram: " + e.Err.Error() }
func (e *InvalidHistogramError) Unwrap() error { return e.Err }

// Options configure a Store.
type Options struct {
	// Slot is the width of the unit of staging and sealing: a multiple of 1h that divides 24h. Default 2h.
	Slot time.Duration
	// Partitions spread the work of sealing. Default 16.
	Partitions int
	// Retention is how long raw samples are kept; 0: for ever. Default 30 days.
	Retention time.Duration
	// HeadBytes bounds the memory of unsealed data: above it, new series are refused. Default 4 GiB.
	HeadBytes int64
	// QueueBytes bounds what waits to become durable. Default 64 MiB.
	QueueBytes int64
	// CacheBytes bounds the cache of series indexes of sealed windows. Default 256 MiB.
	CacheBytes int64
	// QueryBytes bounds the encoded bytes that one query may read. Default 1 GiB.
	QueryBytes int64
	// MaxLabels, MaxLabelName and MaxLabelValue bound a series' labels: their count, and bytes. Defaults 64, 1024, 4096.
	MaxLabels, MaxLabelName, MaxLabelValue int
	// Now is the clock.
	Now func() time.Time
	// Logger gets what an operator should know.
	Logger *slog.Logger
	// Registerer gets the store's metrics; nil: none are kept anywhere.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Slot: 2 * time.Hour, Partitions: 16, Retention: 30 * 24 * time.Hour,
		HeadBytes: 4 << 30, QueueBytes: 64 << 20, CacheBytes: 256 << 20, QueryBytes: 1 << 30,
		MaxLabels: 64, MaxLabelName: 1024, MaxLabelValue: 4096,
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

// Store keeps samples over an engine.
type Store struct {
	opts   Options
	period Period
	eng    engine.Engine
}

// Open reads or creates the store's settings and begins to rebuild the head in the background; writes are
// taken at once. It refuses an engine that was created with other settings. The engine is the caller's to
// close, after the store.
func Open(ctx context.Context, eng engine.Engine, opts Options) (*Store, error) {
	panic("not built yet")
}

// Ready returns nil once queries can be answered, ErrNotReady before, and the reason if rebuilding failed.
func (s *Store) Ready() error { panic("not built yet") }

// Close waits for commits under way and stops.
func (s *Store) Close() error { panic("not built yet") }
