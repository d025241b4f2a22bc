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
	// ErrNotReady means that the head isn't rebuilt yet: queries must wait, writes need not.
	ErrNotReady = errors.New("storage: the head is still being rebuilt from the staging log")
	// ErrOverloaded means that too many bytes wait to be written. Nothing was taken; try again later.
	ErrOverloaded = errors.New("storage: too many writes are waiting")
	// ErrHeadFull means that what isn't sealed takes so much memory that not even samples of known series are taken. Nothing
	// was taken; try again later, for sealing makes room.
	ErrHeadFull = fmt.Errorf("%w: unsealed samples exceed --storage.head-bytes; retry later", ErrOverloaded)
	// ErrHeadShare means that what isn't sealed takes so much memory, and this tenant's more than its fair share of that, so
	// that samples of known series are taken of others only. Nothing was taken; try again later, for sealing makes room.
	ErrHeadShare = errors.New("storage: the head is over --storage.head-bytes and this tenant is over its fair share; retry later")
	// ErrTooManySeries means that the head has reached its memory limit; samples of known series are still
	// taken, until it has a quarter more, and new series of those who hold less than their fair share of it.
	ErrTooManySeries = errors.New("storage: the head has reached its memory limit; new series are rejected")
	// ErrTooOld means that a sample is older than the retention.
	ErrTooOld = errors.New("storage: the sample is older than the retention")
	// ErrTooFarAhead means that a sample is more than MaxAhead ahead of this machine's clock, and of the second clock that it was
	// compared with.
	ErrTooFarAhead = errors.New("storage: the sample is more than 10 minutes ahead of this machine's clock")
	// ErrDroppedAhead means that a sample is within the retention, but raw rows of its time were dropped by a clock that was ahead, and can't be written
	// again. Nothing was stored, and the sender is asked to send it again.
	ErrDroppedAhead = errors.New("storage: raw samples of this time were deleted because a clock was fast")
	// ErrMaybeAhead means that a sample is more than MaxAhead ahead of this machine's clock, which nothing has confirmed yet. Nothing was
	// accepted; try again later.
	ErrMaybeAhead = errors.New("storage: the sample is more than 10 minutes ahead of this machine's clock, which may be slow")
)

// MaxAhead is how far in the future a sample may lie.
const MaxAhead = 10 * time.Minute

// LabelError is why labels can't name a series.
type LabelError struct {
	// Reason is a short constant for counters: duplicate_label, empty_label_name, missing_metric_name,
	// invalid_utf8, too_many_labels, label_name_too_long, label_value_too_long, series_too_long.
	Reason string
	// Detail names the label, and the limit where one was broken.
	Detail string
	// Series is the series as text, shortened.
	Series string
}

func (e *LabelError) Error() string {
	return fmt.Sprintf("%s: %s in series %s", e.Reason, e.Detail, e.Series)
}

// InvalidHistogramError is why a native histogram can't be stored.
type InvalidHistogramError struct{ Err error }

func (e *InvalidHistogramError) Error() string { return "invalid native histogram: " + e.Err.Error() }
func (e *InvalidHistogramError) Unwrap() error { return e.Err }

// Options configure a Store.
type Options struct {
	// Slot is the width of the unit of staging and sealing: a multiple of 1h that divides 24h. Default 2h.
	// 0: what the store was created with, which must exist; then Partitions is not looked at either.
	Slot time.Duration
	// Partitions spread the work of sealing. Default 0: as the store has it; a new one gets 16 if it is Shared, for each has one
	// owner among the processes and bounds the size of a partition of the stage, and 4 if not, for each costs every commit a
	// row.
	Partitions int
	// ReadOnly opens a store to look at it: nothing is written, nobody hears of it, and whatever would write returns
	// engine.ErrReadOnly. What the store was created with is taken as it is. Default false.
	ReadOnly bool
	// AnySettings takes a store as it was created, and uses Slot and Partitions only to create one.
	AnySettings bool
	// Retention is how long raw samples are kept; 0: for ever. Default 30 days.
	Retention time.Duration
	// Retention5m and Retention1h are how long rollups are kept: not shorter than finer rows; 0: for ever, the
	// default.
	Retention5m, Retention1h time.Duration
	// TenantRetention has tenants whose series, but for those in classes, are kept otherwise.
	TenantRetention map[string]retention.Keep
	// Classes take series of all tenants, the first that matches; at most retention.MaxClasses. Series that none takes are in the default class.
	Classes []retention.Class
	// AddClasses makes Classes those of the store, in place of others: at once if it isn't Shared and of days without rows, otherwise from the first day on
	// that begins at least 25 hours later. Each name gets a number for ever. A store whose AddClasses is false goes by the store's classes.
	AddClasses bool
	// HeadBytes bounds the memory of unsealed data: above it, new series are refused, and at a quarter more samples of
	// known ones, too. Tenants that hold less than their fair share of it may fill half as much again. Default 4 GiB.
	HeadBytes int64
	// QueueBytes bounds what waits to become durable. Default 64 MiB.
	QueueBytes int64
	// CacheBytes bounds the cache of series indexes of sealed windows. The cache of ids of pages takes an eighth of it in addition.
	// Default 256 MiB.
	CacheBytes int64
	// QueryBytes bounds the encoded bytes that one query may read. Default 1 GiB.
	QueryBytes int64
	// MaxLabels, MaxLabelName and MaxLabelValue bound a series' labels: their count, and bytes. Defaults 64, 1024, 4096.
	MaxLabels, MaxLabelName, MaxLabelValue int
	// Shared is true if other processes may use the engine at the same time. Default false.
	Shared bool
	// RetryRebuild makes the rebuild of the head wait while the engine is unavailable, as it does where the store is Shared. Otherwise the first error
	// ends the rebuild. Default false.
	RetryRebuild bool
	// Follow makes a shared store keep what others stage in its head, for queries. Default true.
	Follow bool
	// Self describes this process to the others; for people only.
	Self membership.Process
	// Limiter holds tenants to their limits; nil: they have none.
	Limiter *tenant.Limiter
	// Now is the clock.
	Now func() time.Time
	// Elapsed is how much time has passed since some moment, however the clock was set: best one that counts the time in
	// which the machine sleeps. nil: it follows from the times that Now returns, by their monotonic part where they have one.
	Elapsed func() time.Duration
	// Today is the date that an operator gave: a clock of the same date is believed (see design/clocks.md). Zero: none
	// was given.
	Today time.Time
	// AheadPatience is how long samples that are too far ahead of the only machine's clock return ErrMaybeAhead, before they return
	// ErrTooFarAhead: NTP may have to set that clock first. 0: they return ErrTooFarAhead at once. Default 15 minutes.
	AheadPatience time.Duration
	// seams are for tests.
	seams seams
	// Logger gets events for operators.
	Logger *slog.Logger
	// Registerer gets the store's metrics; nil: none are kept anywhere.
	Registerer prometheus.Registerer
}

// seams let tests decide what otherwise depends on time and chance.
type seams struct {
	// believing has any clock be believed, for histories that set it as they like.
	believing bool
	// still keeps a shared store from doing anything by itself: it beats when asked to, and follows for queries
	// only, one stream after the other.
	still bool
	// writer is the process' name in the stage; "": a new one.
	writer string
	// blobBytes is the size from which a blob takes no further sample; 0: format.BlobFull.
	blobBytes int
	// letGoSeries is of how many series a pass lets go at once; 0: letGoSeries.
	letGoSeries int
	// pageSeries is how many new series of a partition make pages; 0: paged's default.
	pageSeries int
	// countingBytes bounds the values of labels that are counted at once; 0: countingBytes.
	countingBytes int
	// spannedSeries is how many series of a window's metric match at least for their spans to be used; 0: spannedSeries.
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

// defaultSeams are those of DefaultOptions: this package's tests change them before they begin.
var defaultSeams seams

// maxLimit bounds the limits of bytes, so that sums of shares of them can be computed.
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
	case o.MaxLabels <= 0 || o.MaxLabelName <= 0 || o.MaxLabelValue <= 0 || o.MaxLabelName > engine.MaxKeyText || o.MaxLabelValue > engine.MaxKeyText:
		return fmt.Errorf("storage: label limits must be 1 to %d", engine.MaxKeyText)
	case o.Now == nil || o.Logger == nil:
		return errors.New("storage: Options without a clock or a logger; start from DefaultOptions")
	}
	kept := o.kept()
	return kept.Check(o.Slot)
}

// The partitions of a new store where none are asked for.
const (
	partitionsShared = 16
	partitionsAlone  = 4
)

// newPartitions returns how many partitions a new store gets.
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

// kept is what this process is configured to keep.
func (o *Options) kept() retention.Configured {
	return retention.Configured{All: retention.Keep{Raw: o.Retention, FiveMinutes: o.Retention5m, OneHour: o.Retention1h}, Tenants: o.TenantRetention, Classes: o.Classes}
}

// Store keeps samples over an engine.
//
//	NewBatch ─► Commit ─► committer ─► stage rows ─► head ─► acknowledged
//	Select   ◄─ head ◄─ sealed windows                │
//	Seal     ◄────────── stage rows ◄────────────────┘ ─► raw rows, catalog, marks
type Store struct {
	*query.Querier // answers queries

	opts   Options
	period *format.Periods
	// retention has the retention classes, with the tenants' retentions.
	retention *retention.Keeper
	// starts has the tenants that send deltas.
	starts *starts.DeltaTenants
	eng    engine.Engine
	// rows reads and writes the rows of series, wherever they stand: the engine, or pages over it.
	rows *paged.Rows
	// versions are the engine's versions of partitions, by which cached reads hold; nil: it has none.
	versions engine.Versioned
	caching  engine.Caching // nil: the engine has no cache
	prober   engine.Prober  // nil: partitions are asked about one by one
	// writer is this process' name in the stage, new at every start.
	writer  string
	created time.Time
	// restoredFrom is the backup of which the directory is a copy; "": it is the original.
	restoredFrom string
	// identity is the store's own, see Identity.
	identity string
	// isNew is true if opening it has created it.
	isNew bool
	// truncations are the labels whose truncated values were logged.
	truncations truncations

	head      *head.Head
	commitMu  sync.Mutex // held by a commit, and by whoever closes generations
	committer *committer
	batches   sync.Pool
	sealMu    []sync.Mutex // one a partition: a process seals a partition once at a time
	imports   imports
	catalog   catalogMemory
	// shards caches how many shards this process has written; forgotten ones are written again when they are needed.
	shards   bounds.Map[shardedMetric, int64]
	metadata *metadataKeeper
	windows  windowList
	gone     dropMemory
	rolled   rolledMemory
	// toldDropped is true once the log has that samples are refused with ErrDroppedAhead.
	toldDropped atomic.Bool
	deletes     deletes
	peers       deletePeers
	listed      *stagedList
	follower    *follower
	// member is this process among those that use the engine; clock is the member's.
	member *membership.Member
	clock  *membership.CheckedClock
	// damage has the rows that can't be read.
	damage *damage.Log
	// unexplained are the stage rows that sealing leaves for a while.
	unexplained unexplained
	cache       *cache.Cache
	metrics     *metrics
	compacting  compacting
	known       ended.Memory

	rebuilt    chan struct{} // closed when the head is rebuilt, or failed to be
	rebuildErr error
	// rebuildWaits is the error because of which the rebuild waits to try again; nil: it reads.
	rebuildWaits atomic.Pointer[error]
	cancel       context.CancelFunc
	background   context.Context // ends with the store
	running      sync.WaitGroup
}

// openRows opens what reads and writes rows of series, those in pages and long chunks included.
func (s *Store) openRows(have *settings) {
	s.rows = paged.New(s.eng, paged.Options{
		Shared: s.sharesRows(), Least: s.opts.seams.pageSeries, IDsBytes: max(leastIDsBytes, s.opts.CacheBytes/idsShare),
	})
	s.rows.ListLong(have.Long)
}

// The cache of ids has this share of Options.CacheBytes, besides it. A series takes 17 bytes there. A sorted answer goes through all pages of
// a metric once per group: if their ids don't fit, they are computed for each group again.
const idsShare, leastIDsBytes = 8, 4 << 20

// sharesRows reports whether other processes may write rows, too, or rows vanish by themselves.
func (s *Store) sharesRows() bool { return s.opts.Shared || expiresRows(s.eng) }

// Open reads or creates the store's settings and begins to rebuild the head in the background; writes are
// taken at once. It refuses an engine that was created with other settings. The engine is the caller's to
// close, after the store.
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
		opts: opts, period: format.NewPeriods(have.Periods...), eng: eng, created: time.UnixMilli(have.CreatedMS), restoredFrom: have.RestoredFrom,
		identity: have.identity(), isNew: isNew, writer: newID(), sealMu: make([]sync.Mutex, format.MaxPartitions),
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
	registry := prometheus.NewRegistry() // Reads below count already; a store that fails to open registers nothing.
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

// Ready returns nil once queries can be answered, ErrNotReady before, and the reason if rebuilding failed.
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

// Close waits for commits under way and stops.
func (s *Store) Close() error {
	s.cancel()
	s.committer.close()
	<-s.metadata.done
	s.running.Wait()
	s.member.Close()
	return nil
}

// HeadStats counts what the head holds, of all tenants.
func (s *Store) HeadStats() head.Stats { return s.head.Stats() }

// Damaged returns how many times rows were met that can't be read, each counted once.
func (s *Store) Damaged() int { return s.damage.Count() }

// Partitions returns into how many partitions the work of sealing is divided.
func (s *Store) Partitions() int { return s.period.Partitions() }

// newID returns 16 random bytes: a name that nobody else has.
func newID() string {
	id := make([]byte, engine.IDLen)
	_, _ = rand.Read(id) // It never fails, or ends the process.
	return string(id)
}
