package query

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/rollup"
)

// sealedWindow is a window with sealed slots.
type sealedWindow struct {
	window int64
	// version is a hash of the window's commit records. It changes whenever the window's rows change.
	version uint64
	// slots are the sealed slots in the request's range, in order. The window may contain other sealed slots.
	slots []int64
	// sums are hashes of the slots' commit records.
	sums []uint64
	// left are the slots of a rollup window whose buckets are computed from samples, as long as the samples are kept.
	left []int64
	// cleared contains the window's commit records of the request's deletes. A commit record means that the delete was
	// applied to the rows of a slot.
	cleared map[format.CommitKey]bool
}

// windows finds the windows of a resolution in the request's range that have commit records, ordered by time. It
// doesn't find windows that are sealed after the call, so the caller must read the head first.
func (r windowFinder) windows(ctx context.Context, res rollup.Resolution) ([]sealedWindow, error) {
	r.warnCachedGaps()
	p := r.env.Period
	minT := max(r.minT, r.minHidden(res)+1)
	if minT > r.maxT {
		return nil, nil
	}
	list, err := r.KnownWindows(
		ctx, r.tenant, p.WindowAt(res, minT), p.WindowAt(res, r.maxT), func(e *damage.DamagedRowsError) {
			r.env.Damage.Record(e)
			r.reportGap(e)
		},
	)
	if err != nil {
		return nil, err
	}
	found := make([]sealedWindow, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ReadWorkers)
	for i, window := range list {
		if len(r.deletes) == 0 {
			if m, ok := r.cachedCommits(r.tenant, window); ok {
				found[i] = m.slotsBetween(window, p.SlotOf(minT), p.SlotOf(r.maxT))
				continue
			}
		}
		g.Go(panics.WrapError("reading", func() (err error) {
			found[i], err = r.readCommitRecords(ctx, window, p.SlotOf(minT), p.SlotOf(r.maxT))
			return err
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(w sealedWindow) bool { return w.version == 0 }), nil
}

// readCommitRecords reads the commit records of a window. The version of the result is 0 if there are none.
func (r windowFinder) readCommitRecords(ctx context.Context, window, minSlot, maxSlot int64) (sealedWindow, error) {
	if len(r.deletes) == 0 { // With deletes, the individual records are needed.
		if m, ok, err := r.readCachedCommits(ctx, r.tenant, window); ok || err != nil {
			if err != nil {
				return sealedWindow{}, err
			}
			return m.slotsBetween(window, minSlot, maxSlot), nil
		}
	}
	m, cleared := commitRecordsReader{}, map[format.CommitKey]bool(nil)
	err := r.Scan(
		ctx, engine.Range{Table: engine.Sealed, Partition: format.SealedPartition(window, r.tenant), KeysOnly: true},
		func(row engine.Row) error {
			if id := row.Clustering[2].Text; len(r.deletes) > 0 && r.deletes.Has(id) {
				if cleared == nil {
					cleared = map[format.CommitKey]bool{}
				}
				cleared[format.CommitKeyOf(row.Clustering)] = true
			}
			m.add(row)
			return nil
		},
	)
	w := m.summarize().slotsBetween(window, minSlot, maxSlot)
	w.cleared = cleared
	return w, err
}

// commitRecordsReader computes windowCommits from the rows of commit records.
type commitRecordsReader struct {
	windowCommits
	all, ofSlot xxhash.Digest
	buf         []byte
}

func (m *commitRecordsReader) add(row engine.Row) {
	slot := row.Clustering[0].Int
	m.buf = binary.LittleEndian.AppendUint64(m.buf[:0], uint64(slot))
	m.buf = binary.LittleEndian.AppendUint64(m.buf, uint64(row.Clustering[1].Int))
	m.buf = append(m.buf, row.Clustering[2].Text...)
	n := len(m.slots)
	if n == 0 {
		m.all.Reset()
	}
	_, _ = m.all.Write(m.buf)
	if n == 0 || m.slots[n-1] != slot {
		m.ofSlot.Reset()
		m.slots, m.sums = append(m.slots, slot), append(m.sums, 0)
		n++
	}
	_, _ = m.ofSlot.Write(m.buf)
	m.sums[n-1] = m.ofSlot.Sum64()
}

// summarize returns the windowCommits of the rows that were added.
func (m *commitRecordsReader) summarize() *windowCommits {
	if len(m.slots) > 0 {
		m.version = max(1, m.all.Sum64())
	}
	return &windowCommits{version: m.version, slots: m.slots, sums: m.sums}
}

// sealedMetric is a metric of a window.
type sealedMetric struct {
	name   string
	shards int64
}

// metricBytes is the size of a sealedMetric without its name.
const metricBytes = 24

// metricNames are the metrics of a window, sorted by name.
type metricNames []sealedMetric

func (m metricNames) Bytes() (n int64) {
	for _, metric := range m {
		n += int64(len(metric.name)) + metricBytes
	}
	return n
}

// find returns the index of a metric.
func (m metricNames) find(name string) (int, bool) {
	return slices.BinarySearchFunc(m, name, func(m sealedMetric, name string) int {
		return strings.Compare(m.name, name)
	})
}

// allMetrics returns all metrics of a window.
func (r *rowReader) allMetrics(ctx context.Context, w sealedWindow) (metricNames, error) {
	v, err := r.env.Cache.Get(ctx, cache.EntryKey{
		Kind: cache.KindMetrics, Window: w.window, Tenant: r.tenant,
	}, w.version, func(ctx context.Context) (cache.EntryValue, error) {
		names, size := metricNames{}, r.newBudget(ctx)
		err := r.Scan(ctx, engine.Range{
			Table: engine.Catalog, Partition: format.CatalogPartition(w.window, r.tenant, format.CatalogMetric, ""),
		}, func(row engine.Row) error {
			names = append(names, sealedMetric{name: strings.Clone(row.Clustering[0].Text), shards: 1})
			return size.Charge(len(row.Clustering[0].Text) + metricBytes)
		})
		if err != nil {
			return nil, err
		}
		return names, r.shardsOfAll(ctx, w.window, names)
	})
	if err != nil {
		return nil, err
	}
	return v.(metricNames), nil
}

// shardsOfAll sets the number of shards of each metric that has more than one shard.
func (r *rowReader) shardsOfAll(ctx context.Context, window int64, names metricNames) error {
	rows := engine.Range{Table: engine.Shards, Partition: format.ShardsPartition(window, r.tenant)}
	rows.Damaged = func(d engine.Damage) {
		r.env.Damage.RecordRows(&rows, d)
		for i := range names {
			if name := names[i].name; (d.After == nil || d.After[0].Text < name) &&
				(d.Before == nil || name < d.Before[0].Text) {
				names[i].shards = format.MaxShards
			}
		}
	}
	return r.Scan(ctx, rows, func(row engine.Row) error {
		name := row.Clustering[0].Text
		i, ok := names.find(name)
		if ok {
			names[i].shards = r.shards(window, name, row.Value)
		}
		return nil
	})
}

// shards parses a number of shards. An unreadable number is reported and read as 1.
func (r *rowReader) shards(window int64, metric string, value []byte) int64 {
	n, err := format.ParseShards(value)
	if err != nil {
		r.reportCorrupt(&damage.CorruptRowError{
			Table: engine.Shards, Window: window, Tenant: r.tenant, Metric: strings.Clone(metric), Err: err,
		})
	}
	return n
}

// Every query first reads the list of windows and their commit records. Both are cached if the engine can detect writes
// to them (see engine.Versioned and design/queries.md). A query of one series over a day then reads only the chunks of
// the series.
//
//	query ─► windows of the tenant ─► commit records of each ─► series (by their version) ─► chunks
//	         └────────── by the engine's versions ──────────┘

// errDamagedList means that damaged rows are missing from a list. The list isn't cached, so that each query reads it
// and reports the warning.
var errDamagedList = errors.New("storage: damaged rows aren't cached")

// listedWindows are the listed windows of a tenant, in order. A list is immutable.
type listedWindows []int64

func (l listedWindows) Bytes() int64 { return int64(8 * len(l)) }

// between returns a copy of the windows between first and last.
func (l listedWindows) between(first, last int64) []int64 {
	from := sort.Search(len(l), func(i int) bool { return l[i] >= first })
	to := sort.Search(len(l), func(i int) bool { return l[i] > last })
	return slices.Clone(l[from:max(from, to)])
}

// windowCommits is a summary of the commit records of a window. It is immutable.
type windowCommits struct {
	// version is a hash of all commit records, or 0 if there are none.
	version uint64
	// slots are the slots with commit records, in order. sums are the hashes of each slot's records.
	slots []int64
	sums  []uint64
}

func (m *windowCommits) Bytes() int64 { return int64(16*len(m.slots) + 64) }

// slotsBetween returns a window with the slots between minSlot and maxSlot. The caller may modify the slots.
func (m *windowCommits) slotsBetween(window, minSlot, maxSlot int64) sealedWindow {
	from := sort.Search(len(m.slots), func(i int) bool { return m.slots[i] >= minSlot })
	to := max(from, sort.Search(len(m.slots), func(i int) bool { return m.slots[i] > maxSlot }))
	return sealedWindow{
		window: window, version: m.version, slots: slices.Clone(m.slots[from:to]), sums: slices.Clone(m.sums[from:to]),
	}
}

// version returns the engine's version of a partition. ok is false if the version is unknown.
func (e *Env) version(t *engine.Table, partition engine.Key) (version uint64, ok bool) {
	if e.Versions == nil {
		return 0, false
	}
	return e.Versions.Version(t, partition)
}

// readThroughCache caches the result of reading a partition until the partition is written to. ok is false if the
// result can't be cached, either because the engine can't detect writes or because load called missed for damaged rows.
func readThroughCache[T cache.EntryValue](
	ctx context.Context, e *Env, t *engine.Table, partition engine.Key, key cache.EntryKey,
	load func(ctx context.Context, missed func()) (T, error),
) (value T, ok bool, err error) {
	version, ok := e.version(t, partition)
	if !ok {
		return value, false, nil
	}
	v, err := e.Cache.Get(ctx, key, version, func(ctx context.Context) (cache.EntryValue, error) {
		damaged := false
		v, err := load(ctx, func() { damaged = true })
		if err == nil && damaged {
			err = errDamagedList
		}
		return v, err
	})
	if errors.Is(err, errDamagedList) {
		return value, false, nil
	}
	if err != nil {
		return value, false, err
	}
	return v.(T), true, nil
}

// KnownWindows lists the windows between first and last in which a tenant may have rows, in order. The list may come
// from a cache. Code that removes rows, or reports which rows exist, must call Env.Windows instead.
func (q *Querier) KnownWindows(
	ctx context.Context, tenant string, first, last int64, missed func(*damage.DamagedRowsError),
) ([]int64, error) {
	if list, ok, err := q.readCachedWindows(ctx, tenant); ok || err != nil {
		return list.between(first, last), err
	}
	return q.env.Windows(ctx, tenant, first, last, missed)
}

// readCachedWindows returns the windows of a tenant. It reads and caches them if they aren't cached. It returns false
// if the windows can't be cached.
func (q *Querier) readCachedWindows(ctx context.Context, tenant string) (listedWindows, bool, error) {
	key := cache.EntryKey{Kind: cache.KindWindows, Tenant: tenant}
	return readThroughCache(ctx, &q.env, engine.Windows, engine.Key{engine.Text(tenant)}, key,
		func(ctx context.Context, missed func()) (listedWindows, error) {
			return q.env.Windows(ctx, tenant, math.MinInt64, math.MaxInt64, func(*damage.DamagedRowsError) { missed() })
		})
}

// cachedCommits returns the windowCommits of a window if they are cached.
func (q *Querier) cachedCommits(tenant string, window int64) (*windowCommits, bool) {
	version, ok := q.env.version(engine.Sealed, format.SealedPartition(window, tenant))
	if !ok {
		return nil, false
	}
	v, ok := q.env.Cache.GetCached(cache.EntryKey{Kind: cache.KindMarks, Window: window, Tenant: tenant}, version)
	if !ok {
		return nil, false
	}
	return v.(*windowCommits), true
}

// readCachedCommits returns the windowCommits of a window. It reads and caches them if they aren't cached. It returns
// false if the windowCommits can't be cached.
func (q *Querier) readCachedCommits(ctx context.Context, tenant string, window int64) (*windowCommits, bool, error) {
	key := cache.EntryKey{Kind: cache.KindMarks, Window: window, Tenant: tenant}
	return readThroughCache(ctx, &q.env, engine.Sealed, format.SealedPartition(window, tenant), key,
		func(ctx context.Context, missed func()) (*windowCommits, error) {
			return q.scanCommitRecords(ctx, tenant, window, func(engine.Damage) { missed() })
		})
}

// CommitRecordsVersion returns a hash of a window's commit records, or 0 if there are none. It is cached in
// ended.Memory until the records are written to.
func (q *Querier) CommitRecordsVersion(ctx context.Context, tenant string, window int64) (uint64, error) {
	engineVersion, ok := q.env.version(engine.Sealed, format.SealedPartition(window, tenant))
	if version, known := q.env.Memory.Version(tenant, window, engineVersion); ok && known {
		return version, nil
	}
	m, err := q.scanCommitRecords(ctx, tenant, window, nil)
	if err != nil {
		return 0, err
	}
	if ok {
		q.env.Memory.SetVersion(tenant, window, engineVersion, m.version)
	}
	return m.version, nil
}

// scanCommitRecords reads the commit records of a window. damaged has the same meaning as in engine.Range.
func (q *Querier) scanCommitRecords(
	ctx context.Context, tenant string, window int64, damaged func(engine.Damage),
) (*windowCommits, error) {
	var m commitRecordsReader
	for row, err := range q.env.Engine.Scan(ctx, engine.Range{
		Table: engine.Sealed, Partition: format.SealedPartition(window, tenant), KeysOnly: true, Damaged: damaged,
	}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the seal records of window %d of tenant %q: %w",
				window, tenant, err)
		}
		m.add(row)
	}
	return m.summarize(), nil
}
