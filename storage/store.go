package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/starts"
	"github.com/cassia-db/cassia/storage/tenant"
)

var (
	// ErrNotReady means that the head isn't rebuilt yet. Queries must wait; writes don't have to.
	ErrNotReady = errors.New("storage: the head is still being rebuilt from the staging log")
	// ErrOverloaded means that too many bytes are waiting to be written. Nothing was accepted; retry later.
	ErrOverloaded = errors.New("storage: too many writes are waiting")
	// ErrHeadFull means that the memory of unsealed samples is above the limit at which samples of known series are
	// also rejected. Nothing was accepted; retry later, because sealing frees memory.
	ErrHeadFull = fmt.Errorf("%w: unsealed samples exceed --storage.head-bytes; retry later", ErrOverloaded)
	// ErrHeadShare means that unsealed samples take too much memory and this tenant's exceed its fair share, so that
	// samples of known series are accepted from other tenants only. Nothing was accepted; retry later, because sealing
	// frees memory.
	ErrHeadShare = errors.New(
		"storage: the head is over --storage.head-bytes and this tenant is over its fair share; retry later",
	)
	// ErrTooManySeries means that the head has reached its memory limit. New series are rejected, except series of
	// tenants that hold less than their fair share. Samples of known series are accepted up to a quarter above the
	// limit.
	ErrTooManySeries = errors.New("storage: the head has reached its memory limit; new series are rejected")
	// ErrTooOld means that a sample is older than the retention.
	ErrTooOld = errors.New("storage: the sample is older than the retention")
	// ErrTooFarAhead means that a sample is more than MaxAhead ahead of this machine's clock and of a second clock.
	ErrTooFarAhead = errors.New("storage: the sample is more than 10 minutes ahead of this machine's clock")
	// ErrDroppedAhead means that a sample is within the retention, but the raw rows of its time were deleted because of
	// a fast clock and can't be written again. Nothing was stored; the sender should retry.
	ErrDroppedAhead = errors.New("storage: raw samples of this time were deleted because a clock was fast")
	// ErrMaybeAhead means that a sample is more than MaxAhead ahead of this machine's clock, which nothing has
	// confirmed yet. Nothing was accepted; retry later.
	ErrMaybeAhead = errors.New(
		"storage: the sample is more than 10 minutes ahead of this machine's clock, which may be slow",
	)
)

// MaxAhead is the maximum distance of a sample's timestamp from now into the future.
const MaxAhead = 10 * time.Minute

// LabelError describes labels that can't name a series.
type LabelError struct {
	// Reason is a short constant for counters: duplicate_label, empty_label_name, missing_metric_name,
	// invalid_utf8, too_many_labels, label_name_too_long, label_value_too_long, series_too_long.
	Reason string
	// Detail names the label, and the limit if one was exceeded.
	Detail string
	// Series is the series as text, shortened.
	Series string
}

func (e *LabelError) Error() string {
	return fmt.Sprintf("%s: %s in series %s", e.Reason, e.Detail, e.Series)
}

// InvalidHistogramError wraps the reason why a native histogram can't be stored.
type InvalidHistogramError struct{ Err error }

func (e *InvalidHistogramError) Error() string { return "invalid native histogram: " + e.Err.Error() }
func (e *InvalidHistogramError) Unwrap() error { return e.Err }

// Options configure a Store.
type Options struct {
	// Slot is the width of a slot, the unit of staging and sealing: a multiple of 1h that divides 24h. Default 2h. 0
	// opens an existing store with the slot it was created with, and ignores Partitions.
	Slot time.Duration
	// Partitions divide the work of sealing. Default 0: the number of the existing store. A new store then gets 16 if
	// it is Shared, because each partition has one owner among the processes and bounds the size of an engine partition
	// of the staging log, and 4 if it isn't, because each partition adds a row to every commit.
	Partitions int
	// ReadOnly opens a store for reading: nothing is written, other processes don't see this one, and operations that
	// write return engine.ErrReadOnly. The settings of the store are used. Default false.
	ReadOnly bool
	// AnySettings accepts an existing store with any settings; Slot and Partitions then apply only to a new store.
	AnySettings bool
	// Retention is the retention of raw samples; 0: forever. Default 30 days.
	Retention time.Duration
	// Retention5m and Retention1h are the retention of rollups, not shorter than the next finer resolution's; 0:
	// forever, the default.
	Retention5m, Retention1h time.Duration
	// TenantRetention overrides the retention per tenant. Classes take precedence.
	TenantRetention map[string]retention.Keep
	// Classes are retention classes for series of all tenants: a series is in the first class that matches it,
	// otherwise in the default class. At most retention.MaxClasses.
	Classes []retention.Class
	// AddClasses makes Classes the classes of the store, replacing the existing ones. They take effect at once for days
	// without rows if the store isn't Shared; otherwise with the first day that begins at least 25 hours later. Each
	// class name is assigned a number permanently. If AddClasses is false, the store's classes apply.
	AddClasses bool
	// HeadBytes bounds the memory of unsealed data. Above it new series are rejected; a quarter above it, samples of
	// known series are also rejected. Tenants that hold less than their fair share may exceed it by half. Default 4
	// GiB.
	HeadBytes int64
	// QueueBytes bounds the batches that wait to become durable. Default 64 MiB.
	QueueBytes int64
	// CacheBytes bounds the cache of series indexes of sealed windows. The cache of page ids takes an eighth of it in
	// addition. Default 256 MiB.
	CacheBytes int64
	// QueryBytes bounds the encoded bytes that one query may read. Default 1 GiB.
	QueryBytes int64
	// MaxLabels, MaxLabelName and MaxLabelValue bound the labels of a series: their number, and the bytes of a name and
	// of a value. Defaults 64, 1024, 4096.
	MaxLabels, MaxLabelName, MaxLabelValue int
	// Shared is true if other processes may use the engine at the same time. Default false.
	Shared bool
	// RetryRebuild makes the rebuild of the head retry while the engine is unavailable, as a Shared store always does.
	// Otherwise the rebuild ends with the first error. Default false.
	RetryRebuild bool
	// Follow makes a shared store keep the samples staged by other processes in its head, for queries. Default true.
	Follow bool
	// Self describes this process to operators of other processes.
	Self membership.Process
	// Limiter enforces the tenants' limits; nil: no limits.
	Limiter *tenant.Limiter
	// Now is the clock.
	Now func() time.Time
	// Elapsed returns the time that has passed since some fixed moment, regardless of changes to the clock. A clock
	// that includes the time in which the machine sleeps is best. nil: elapsed time is derived from Now, by its
	// monotonic part where it has one.
	Elapsed func() time.Duration
	// Today is the date given by an operator: a clock of the same date is trusted (see design/clocks.md). Zero: no
	// date.
	Today time.Time
	// AheadPatience applies where this machine's clock is the only one: samples too far ahead of it are first rejected
	// with ErrMaybeAhead for this long, because NTP may have to set the clock, and then with ErrTooFarAhead. 0: with
	// ErrTooFarAhead at once. Default 15 minutes.
	AheadPatience time.Duration
	// seams is set by tests.
	seams seams
	// Logger receives log lines for operators.
	Logger *slog.Logger
	// Registerer registers the store's metrics; nil: they are not registered.
	Registerer prometheus.Registerer
}

// seams replace, in tests, behavior that otherwise depends on time and chance.
type seams struct {
	// trustsClocks makes every clock trusted, for histories that set the clock at will.
	trustsClocks bool
	// still stops a shared store's background work: heartbeats are sent on request only, and streams are followed for
	// queries only, one after the other.
	still bool
	// writer is the process' name in the staging log; "": a new one.
	writer string
	// blobBytes is the size at which a blob is full; 0: format.BlobFull.
	blobBytes int
	// releaseSeries replaces the constant of this name; 0: that constant.
	releaseSeries int
	// pageSeries is the minimum number of new series in a partition that are written as pages; 0: paged's default.
	pageSeries int
	// countingBytes bounds the label values that are counted at once; 0: countingBytes.
	countingBytes int
	// spannedSeries is the number of matching series of a metric and window from which their spans are used; 0:
	// spannedSeries.
	spannedSeries int
}

func (s *seams) workers(n int) int {
	if s.still {
		return 1
	}
	return n
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Slot: 2 * time.Hour, Retention: 30 * 24 * time.Hour,
		HeadBytes: 4 << 30, QueueBytes: 64 << 20, CacheBytes: 256 << 20, QueryBytes: 1 << 30,
		MaxLabels: 64, MaxLabelName: 1024, MaxLabelValue: 4096, Follow: true,
		Now: time.Now, AheadPatience: 15 * time.Minute, Logger: slog.New(slog.DiscardHandler), seams: defaultSeams,
	}
}

// defaultSeams are the seams of DefaultOptions. Tests of this package change them before they start.
var defaultSeams seams

// maxLimit bounds limits in bytes, so that sums of shares of them don't overflow.
const maxLimit = 1 << 50

func (o *Options) validate() error {
	switch {
	case o.Slot != 0 && (o.Slot < time.Hour || o.Slot%time.Hour != 0 || rawWindow%o.Slot != 0):
		return fmt.Errorf("storage: a slot of %v is not a multiple of 1h that divides 24h", o.Slot)
	case o.Partitions < 0 || o.Partitions > format.MaxPartitions:
		return fmt.Errorf("storage: %d partitions; must be 1 to %d", o.Partitions, format.MaxPartitions)
	case o.QueueBytes <= 0 || o.CacheBytes < 0 || o.QueryBytes <= 0 || o.HeadBytes < 0:
		return errors.New("storage: a limit in bytes must be greater than 0")
	case max(o.QueueBytes, o.CacheBytes, o.QueryBytes, o.HeadBytes) > maxLimit:
		return fmt.Errorf("storage: a limit in bytes must be at most %d", int64(maxLimit))
	case o.MaxLabels <= 0 || o.MaxLabelName <= 0 || o.MaxLabelValue <= 0 || o.MaxLabelName > engine.MaxKeyText ||
		o.MaxLabelValue > engine.MaxKeyText:
		return fmt.Errorf("storage: label limits must be 1 to %d", engine.MaxKeyText)
	case o.Now == nil || o.Logger == nil:
		return errors.New("storage: Options without a clock or a logger; start from DefaultOptions")
	}
	kept := o.kept()
	return kept.Check(o.Slot)
}

// Partitions of a new store if Options.Partitions is 0.
const (
	partitionsShared = 16
	partitionsAlone  = 4
)

// newPartitions returns the number of partitions of a new store.
func (o *Options) newPartitions() int {
	switch {
	case o.Partitions > 0:
		return o.Partitions
	case o.Shared:
		return partitionsShared
	default:
		return partitionsAlone
	}
}

// kept returns the retention that this process is configured with.
func (o *Options) kept() retention.Configured {
	return retention.Configured{
		All:     retention.Keep{Raw: o.Retention, FiveMinutes: o.Retention5m, OneHour: o.Retention1h},
		Tenants: o.TenantRetention, Classes: o.Classes,
	}
}

// Store stores samples in an engine. Its methods may be called concurrently.
//
//	NewBatch ─► Commit ─► committer ─► staging log ─► head ─► acknowledged
//	Select   ◄─ head ◄─ sealed windows                  │
//	Seal     ◄────────── staging log ◄─────────────────┘ ─► raw rows, catalog, commit records
type Store struct {
	*query.Querier // answers queries

	opts   Options
	period *format.Periods
	// retention holds the retention classes and the tenants' retention.
	retention *retention.Keeper
	// starts holds the tenants that send deltas.
	starts *starts.DeltaTenants
	eng    engine.Engine
	// rows reads and writes the rows of series, both plain rows and entries of pages.
	rows *paged.Rows
	// versions returns the engine's versions of partitions, which invalidate cached reads; nil: the engine has none.
	versions engine.Versioned
	caching  engine.Caching // nil: the engine has no cache
	prober   engine.Prober  // nil: partitions are probed one by one
	// writer is this process' name in the staging log, new at every start.
	writer  string
	created time.Time
	// restoredFrom is the backup from which the directory was restored; "": it is the original.
	restoredFrom string
	identity     string
	// isNew is true if Open created the store.
	isNew bool
	// truncations are the labels whose truncated values were logged.
	truncations truncations

	head      *head.Head
	commitMu  sync.Mutex // held during a commit and while generations are closed
	committer *committer
	batches   sync.Pool
	sealMu    []sync.Mutex // by partition: a process seals a partition once at a time
	imports   imports
	catalog   catalogMemory
	// shards caches the number of shards that this process has written per metric. Evicted entries are written again
	// when they are needed.
	shards   bounds.Map[shardedMetric, int64]
	metadata *metadataKeeper
	windows  windowList
	gone     dropMemory
	rolled   rolledMemory
	// toldDropped is true once ErrDroppedAhead was logged.
	toldDropped atomic.Bool
	deletes     deletes
	peers       deletePeers
	listed      *stagedList
	follower    *follower
	// member is this process' membership; clock is the member's clock.
	member *membership.Member
	clock  *membership.CheckedClock
	// damage records the unreadable rows.
	damage *damage.Log
	// unexplained holds the staged rows that sealing skips for some time.
	unexplained unexplained
	cache       *cache.Cache
	metrics     *metrics
	compacting  compacting
	known       ended.Memory

	rebuilt    chan struct{} // closed when the rebuild of the head has ended, successfully or not
	rebuildErr error
	// rebuildWaits is the error after which the rebuild waits to retry; nil: it isn't waiting.
	rebuildWaits atomic.Pointer[error]
	cancel       context.CancelFunc
	background   context.Context // canceled by Close
	running      sync.WaitGroup
}

// openRows opens the reader and writer of series rows, pages and long chunks included.
func (s *Store) openRows(have *settings) {
	s.rows = paged.New(s.eng, paged.Options{
		Shared: s.sharesRows(), Least: s.opts.seams.pageSeries, IDsBytes: max(minIDsBytes, s.opts.CacheBytes/idsShare),
	})
	s.rows.ListLong(have.Long)
}

// The cache of page ids gets this share of Options.CacheBytes, in addition to it; 17 bytes per series. A sorted answer
// reads all pages of a metric once per group: if their ids don't fit, they are computed again for each group.
const idsShare, minIDsBytes = 8, 4 << 20

// sharesRows reports whether other processes may also write rows, or rows may expire in the engine.
func (s *Store) sharesRows() bool { return s.opts.Shared || expiresRows(s.eng) }

// Open reads or creates the store's settings and starts to rebuild the head in the background; writes are accepted at
// once. It returns an error for an engine that was created with other settings. The caller must close the engine after
// the store.
func Open(ctx context.Context, eng engine.Engine, opts Options) (*Store, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.ReadOnly {
		eng = engine.ReadOnly(eng)
	}
	have, isNew, err := openSettings(ctx, eng, opts)
	if err != nil {
		return nil, err
	}
	s := &Store{
		opts: opts, period: format.NewPeriods(have.Periods...), eng: eng, created: time.UnixMilli(have.CreatedMS),
		restoredFrom: have.RestoredFrom,
		identity:     have.identity(), isNew: isNew, writer: newID(), sealMu: make([]sync.Mutex, format.MaxPartitions),
		cache: cache.New(opts.CacheBytes), rebuilt: make(chan struct{}),
	}
	s.head = head.New(have.Periods[0].Partitions, s.period)
	s.versions, _ = engine.As[engine.Versioned](eng)
	s.caching, _ = engine.As[engine.Caching](eng)
	s.prober, _ = engine.As[engine.Prober](eng)
	s.openRows(&have)
	s.listed = newStagedList(s)
	if opts.seams.writer != "" {
		s.writer = opts.seams.writer
	}
	registry := prometheus.NewRegistry() // Reads below count already. If Open fails, nothing is registered.
	s.metrics = newMetrics(s, registry)
	s.damage = damage.NewLog(s.period, s.metrics.corrupt, opts.Logger)
	s.join(&have)
	s.openQuerier()
	if err := s.member.Open(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(s.retention.Open(ctx), s.starts.Open(ctx)); err != nil {
		s.member.Close()
		return nil, err
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(registry)
	}
	s.batches.New = func() any { return &Batch{s: s, done: make(chan error, 1)} }
	s.committer = newCommitter(s.commitEnv())
	go s.committer.run()
	s.background, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.metadata = newMetadataKeeper(s)
	go s.metadata.run(s.background)
	s.running.Go(func() {
		defer close(s.rebuilt)
		s.rebuildErr = panics.Do("rebuilding the head", func() error { return s.rebuild(s.background) })
	})
	return s, nil
}

// Ready returns nil once queries can be answered, ErrNotReady before, and the error if the rebuild failed.
func (s *Store) Ready() error {
	select {
	case <-s.rebuilt:
		return s.rebuildErr
	default:
	}
	if cause := s.rebuildWaits.Load(); cause != nil {
		return fmt.Errorf("%w; reading it failed and is retried: %w", ErrNotReady, *cause)
	}
	return ErrNotReady
}

// WaitReady waits until the head is rebuilt.
func (s *Store) WaitReady(ctx context.Context) error {
	select {
	case <-s.rebuilt:
		return s.rebuildErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits for running commits and background work, and stops.
func (s *Store) Close() error {
	s.cancel()
	s.committer.close()
	<-s.metadata.done
	s.running.Wait()
	s.member.Close()
	return nil
}

// HeadStats returns statistics of the head over all tenants.
func (s *Store) HeadStats() head.Stats { return s.head.Stats() }

// Damaged returns the number of unreadable rows that were found, each counted once.
func (s *Store) Damaged() int { return s.damage.Count() }

// Partitions returns the number of partitions among which sealing is divided.
func (s *Store) Partitions() int { return s.period.Partitions() }

// newID returns 16 random bytes as a unique name.
func newID() string {
	id := make([]byte, engine.IDLen)
	_, _ = rand.Read(id) // It never returns an error; it ends the process instead.
	return string(id)
}
