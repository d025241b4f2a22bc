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
	// ErrNotReady means that the head isn't rebuilt yet. Queries must be retried later. Writes are already accepted.
	ErrNotReady = errors.New("storage: the head is still being rebuilt from the staging log")
	// ErrOverloaded means that too many bytes are waiting to be written. Nothing was accepted; the sender should retry
	// later.
	ErrOverloaded = errors.New("storage: too many writes are waiting")
	// ErrHeadFull means that unsealed samples exceed the limit above which even samples of known series are rejected.
	// Nothing was accepted; the sender should retry later, because sealing frees memory.
	ErrHeadFull = fmt.Errorf("%w: unsealed samples exceed --storage.head-bytes; retry later", ErrOverloaded)
	// ErrHeadShare means that unsealed samples take too much memory and that this tenant exceeds its fair share.
	// Samples of known series are still accepted from other tenants. Nothing was accepted from this tenant; the sender
	// should retry later, because sealing frees memory.
	ErrHeadShare = errors.New(
		"storage: the head is over --storage.head-bytes and this tenant is over its fair share; retry later",
	)
	// ErrTooManySeries means that the head has reached its memory limit. New series are rejected, except from tenants
	// that hold less than their fair share. Samples of known series are accepted up to a quarter above the limit.
	ErrTooManySeries = errors.New("storage: the head has reached its memory limit; new series are rejected")
	// ErrTooOld means that a sample is older than the retention.
	ErrTooOld = errors.New("storage: the sample is older than the retention")
	// ErrTooFarAhead means that a sample is more than MaxAhead ahead of this machine's clock, and that this clock is
	// certainly not slow.
	ErrTooFarAhead = errors.New("storage: the sample is more than 10 minutes ahead of this machine's clock")
	// ErrDroppedAhead means that a sample is within the retention, but the raw rows of its time were deleted because a
	// clock was fast, and can't be written again. Nothing was stored; the sender should retry.
	ErrDroppedAhead = errors.New("storage: raw samples of this time were deleted because a clock was fast")
	// ErrMaybeAhead means that a sample is more than MaxAhead ahead of this machine's clock, and that this clock may be
	// slow, because no second clock has confirmed it yet. Nothing was accepted; the sender should retry later.
	ErrMaybeAhead = errors.New(
		"storage: the sample is more than 10 minutes ahead of this machine's clock, which may be slow",
	)
)

// MaxAhead is the maximum time by which a sample's timestamp may be ahead of the clock.
const MaxAhead = 10 * time.Minute

// LabelError describes labels that can't name a series.
type LabelError struct {
	// Reason is the value of the reason label of counters: duplicate_label, empty_label_name, missing_metric_name,
	// invalid_utf8, too_many_labels, label_name_too_long, label_value_too_long or series_too_long.
	Reason string
	// Detail names the label, and the limit if one was exceeded.
	Detail string
	// Series is the series as a string, truncated.
	Series string
}

func (e *LabelError) Error() string {
	return fmt.Sprintf("%s: %s in series %s", e.Reason, e.Detail, e.Series)
}

// InvalidHistogramError wraps the reason why a native histogram can't be stored.
type InvalidHistogramError struct{ Err error }

func (e *InvalidHistogramError) Error() string { return "invalid native histogram: " + e.Err.Error() }
func (e *InvalidHistogramError) Unwrap() error { return e.Err }

// Options configures a Store. DefaultOptions returns the defaults.
type Options struct {
	// Slot is the width of a slot, the unit of staging and sealing: a multiple of 1h that divides 24h. Default 2h. If
	// Slot is 0, an existing store is opened with the width it was created with, and Partitions is ignored.
	Slot time.Duration
	// Partitions is the number of partitions into which sealing is divided. Default 0: an existing store keeps its
	// number. A new store gets 16 partitions if it is Shared, because each partition is sealed by one process and
	// bounds the size of an engine partition of the staging log. Otherwise it gets 4, because each partition adds a row
	// to every commit.
	Partitions int
	// ReadOnly opens an existing store for reading, with the settings it was created with. Nothing is written, other
	// processes don't see this process, and operations that write return engine.ErrReadOnly. Default false.
	ReadOnly bool
	// AnySettings accepts an existing store with any settings. Slot and Partitions then apply to a new store only.
	AnySettings bool
	// Retention is the retention of raw samples; 0 means forever. Default 30 days.
	Retention time.Duration
	// Retention5m and Retention1h are the retention of rollups; 0 means forever, the default. Neither may be shorter
	// than the retention of the next finer resolution.
	Retention5m, Retention1h time.Duration
	// TenantRetention overrides the retention per tenant. Classes take precedence.
	TenantRetention map[string]retention.Durations
	// Classes are the retention classes for series of all tenants. A series is in the first class that matches it, or
	// in the default class. There are at most retention.MaxClasses.
	Classes []retention.Class
	// AddClasses replaces the classes of the store with Classes. If the store isn't Shared, the new classes take effect
	// immediately, for days without rows. Otherwise they take effect with the first day that begins at least 25 hours
	// later. Each class name is permanently assigned a number. If AddClasses is false, the store keeps its classes.
	AddClasses bool
	// HeadBytes bounds the memory of unsealed data. Above this limit, new series are rejected. If the limit is exceeded
	// by a quarter, samples of known series are also rejected. For tenants that hold less than their fair share, both
	// limits are higher by half of HeadBytes. Default 4 GiB.
	HeadBytes int64
	// QueueBytes bounds the batches that wait to become durable. Default 64 MiB.
	QueueBytes int64
	// CacheBytes bounds the cache of series indexes of sealed windows. The cache of page ids takes another eighth of
	// CacheBytes. Default 256 MiB.
	CacheBytes int64
	// QueryBytes bounds the encoded bytes that one query may read. Default 1 GiB.
	QueryBytes int64
	// MaxLabels, MaxLabelName and MaxLabelValue bound the labels of a series: their number, and the bytes of a name and
	// of a value. Defaults 64, 1024 and 4096.
	MaxLabels, MaxLabelName, MaxLabelValue int
	// Shared is true if other processes may use the engine at the same time. Default false.
	Shared bool
	// RetryRebuild makes the rebuild of the head retry while the engine is unavailable. A Shared store always retries.
	// Otherwise the rebuild ends with the first error. Default false.
	RetryRebuild bool
	// Follow makes a shared store add the samples staged by other processes to its head, for queries. Default true.
	Follow bool
	// Self describes this process to the operators of other processes.
	Self membership.Process
	// Limiter enforces the tenants' limits; nil means no limits.
	Limiter *tenant.Limiter
	// Now returns the current time.
	Now func() time.Time
	// Elapsed returns the time since some fixed moment, independent of changes to the clock. It should include the time
	// during which the machine sleeps. If Elapsed is nil, elapsed time is derived from Now, using its monotonic clock
	// reading if there is one.
	Elapsed func() time.Duration
	// Today is the current date as given by an operator, or zero. A clock that shows this date is trusted (see
	// design/clocks.md).
	Today time.Time
	// AheadPatience applies if this machine's clock is the only clock. During this time, samples too far ahead of the
	// clock are rejected with ErrMaybeAhead, because NTP may still correct the clock. After this time they are rejected
	// with ErrTooFarAhead. If AheadPatience is 0, they are rejected with ErrTooFarAhead immediately. Default 15
	// minutes.
	AheadPatience time.Duration
	// seams replaces behavior in tests.
	seams seams
	// Logger receives log lines for operators.
	Logger *slog.Logger
	// Registerer registers the store's metrics; nil means that they aren't registered.
	Registerer prometheus.Registerer
}

// seams replaces behavior that depends on time and chance, in tests.
type seams struct {
	// trustsClocks makes every clock trusted, for tests that set the clock arbitrarily.
	trustsClocks bool
	// still stops a shared store's background work: heartbeats are sent only on request, and streams are read only for
	// queries, one at a time.
	still bool
	// writer is the process's name in the staging log; "" means a new name.
	writer string
	// blobBytes is the size at which a blob is full; 0 means format.BlobFull.
	blobBytes int
	// releaseSeries replaces the constant minReleasedSeries; 0 means the constant.
	releaseSeries int
	// pageSeries is the minimum number of new series in a partition that are written as pages; 0 means the default of
	// package paged.
	pageSeries int
	// countingBytes bounds the bytes of label values that are counted at once; 0 means the constant with the same name
	// in package counts.
	countingBytes int
	// spannedSeries is the number of matching series of a metric and window above which queries read the spans of their
	// chunks; 0 means the constant with the same name in package query.
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

// defaultSeams are the seams in DefaultOptions. Tests of this package change them before they open stores.
var defaultSeams seams

// maxLimit bounds limits in bytes, so that sums of fractions of them don't overflow.
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
	kept := o.configuredRetention()
	return kept.Check(o.Slot)
}

// partitionsShared and partitionsAlone are the numbers of partitions of a new store if Options.Partitions is 0.
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

// configuredRetention returns the retention configured for this process.
func (o *Options) configuredRetention() retention.Configured {
	return retention.Configured{
		All:     retention.Durations{Raw: o.Retention, FiveMinutes: o.Retention5m, OneHour: o.Retention1h},
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
	// retention manages the retention classes and the tenants' retention.
	retention *retention.Keeper
	// starts holds the tenants that send deltas.
	starts *starts.DeltaTenants
	eng    engine.Engine
	// rows reads and writes the rows of series, both plain rows and entries of pages.
	rows *paged.Rows
	// versions returns the versions of the engine's partitions, by which cached reads are invalidated. It is nil if the
	// engine has no versions.
	versions engine.Versioned
	caching  engine.Caching // nil if the engine has no cache
	prober   engine.Prober  // nil if partitions must be probed one by one
	// writer is this process's name in the staging log. It is new at every start.
	writer  string
	created time.Time
	// restoredFrom is the name of the backup from which the directory was restored, or "" if it is the original.
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
	sealMu    []sync.Mutex // by partition; held while a partition is sealed
	imports   imports
	catalog   catalogMemory
	// shards caches the number of shards that this process has written for each metric. If an entry was evicted, the
	// number is written again when it is next needed.
	shards   bounds.Map[shardedMetric, int64]
	metadata *metadataKeeper
	windows  windowList
	gone     dropMemory
	rolled   rolledWindows
	// toldDropped is true if ErrDroppedAhead has been logged.
	toldDropped atomic.Bool
	deletes     deletes
	peers       deletePeers
	listed      *stagedList
	follower    *follower
	// member is this process's membership. clock is the clock of the membership.
	member *membership.Member
	clock  *membership.CheckedClock
	// damage records unreadable rows.
	damage *damage.Log
	// unexplained records the staged rows that sealing skips because they depend on missing rows. Sealing skips them
	// until the missing rows appear, or certainly never will.
	unexplained missingDependencies
	cache       *cache.Cache
	metrics     *metrics
	compacting  compacting
	known       ended.Memory

	rebuilt    chan struct{} // closed when the rebuild of the head has ended, successfully or not
	rebuildErr error
	// rebuildWaits is the error because of which the rebuild waits before a retry. It is nil if the rebuild isn't
	// waiting.
	rebuildWaits atomic.Pointer[error]
	cancel       context.CancelFunc
	background   context.Context // canceled by Close
	running      sync.WaitGroup
}

// openRows opens the reader and writer of series rows, including pages and long chunks.
func (s *Store) openRows(have *settings) {
	s.rows = paged.New(s.eng, paged.Options{
		Shared: s.sharesRows(), Least: s.opts.seams.pageSeries, IDsBytes: max(minIDsBytes, s.opts.CacheBytes/idsShare),
	})
	s.rows.ListLong(have.Long)
}

// The cache of page ids gets 1/idsShare of Options.CacheBytes, in addition to CacheBytes, and at least minIDsBytes. An
// id takes 17 bytes per series. A query whose result is sorted reads all pages of a metric once per group of series. If
// the ids of these pages don't fit in the cache, they are computed again for each group.
const idsShare, minIDsBytes = 8, 4 << 20

// sharesRows reports whether rows may change without a write by this process. This is the case if other processes write
// them or the engine expires them.
func (s *Store) sharesRows() bool { return s.opts.Shared || expiresRows(s.eng) }

// Open reads or creates the store's settings, and starts to rebuild the head in the background. Writes are accepted
// immediately. Open returns an error if the engine's store was created with other settings. The caller must close the
// engine after the store.
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
	registry := prometheus.NewRegistry() // Used by the reads below, and registered only if Open succeeds.
	s.metrics = newMetrics(s, registry)
	s.damage = damage.NewLog(s.period, s.metrics.corrupt, opts.Logger)
	s.newMember(&have)
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
		s.rebuildErr = panics.Call("rebuilding the head", func() error { return s.rebuild(s.background) })
	})
	return s, nil
}

// Ready returns nil once the store can answer queries. Until then it returns ErrNotReady, or the error if the rebuild
// has failed.
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

// Close stops background work, waits for running commits, and releases the store.
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

// Damaged returns the number of unreadable rows found so far, each counted once.
func (s *Store) Damaged() int { return s.damage.Count() }

// Partitions returns the number of partitions into which sealing is divided.
func (s *Store) Partitions() int { return s.period.Partitions() }

// newID returns a unique name of 16 random bytes.
func newID() string {
	id := make([]byte, engine.IDLen)
	_, _ = rand.Read(id) // Read never returns an error; it ends the process instead.
	return string(id)
}
