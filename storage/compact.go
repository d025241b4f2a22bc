package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/rollup"
)

// scansEnd is how long the first compaction of a window waits for scans of it that began before.
const scansEnd = 10 * time.Second

// maxCompactedTenants bounds the cache of compacted windows.
const maxCompactedTenants = 1 << 16

// compacting remembers which windows are compacted.
type compacting struct {
	mu sync.Mutex // of changes
	of map[string]compactedTenant
}

// compactedWindows are the windows of a tenant that were compacted, by number, with the version of their marks then.
type compactedWindows map[int64]uint64

// compactedTenant has those of a tenant, and their row as it is stored; nil: there is none. They don't change.
type compactedTenant struct {
	windows compactedWindows
	row     []byte
}

// compactedRow is a row of table store: {"windows":{"2199023256246":"9f0c…"}}.
type compactedRow struct {
	Windows map[int64]string `json:"windows"`
}

var compactedPartition = engine.Key{engine.Text("compacted")}

// Compacts reports whether rollups are compacted: where this process is the only one that writes rows, and they don't
// vanish by themselves.
func (s *Store) Compacts() bool { return !s.opts.ReadOnly && s.mayCompact() }

func (s *Store) mayCompact() bool {
	clearing, ok := engine.As[engine.Clearing](s.eng)
	return !s.sharesRows() && ok && clearing.TakesClear()
}

// Compactable yields the windows of rollups that are over, and weren't compacted since they were written to, as
// Uncounted does.
func (s *Store) Compactable(ctx context.Context, between func()) iter.Seq2[ended.OverWindow, error] {
	if !s.mayCompact() {
		return func(func(ended.OverWindow, error) bool) {}
	}
	yieldTenant := func(tenant string, yield func(ended.OverWindow) bool) (wanted bool, err error) {
		done, err := s.compactedOf(ctx, tenant)
		for _, res := range compactedResolutions {
			if err == nil {
				wanted, err = s.compactableOf(ctx, tenant, res, done, between, yield)
			}
			if err != nil || !wanted {
				return false, err
			}
		}
		return true, nil
	}
	return ended.AllWindows(ctx, s.Tenants, yieldTenant)
}

// compactedResolutions are those whose chunks are compacted.
var compactedResolutions = []rollup.Resolution{rollup.FiveMinutes, rollup.OneHour}

// compactableOf yields those of a tenant and resolution.
func (s *Store) compactableOf(ctx context.Context, tenant string, res rollup.Resolution, done compactedWindows, between func(), yield func(ended.OverWindow) bool) (wanted bool, err error) {
	last := s.period.WindowAt(res, s.opts.Now().Add(-ended.EndedAfter).UnixMilli()) - 1
	windows, err := s.KnownWindows(ctx, tenant, format.FirstWindow(res), last, s.damage.Record)
	if err != nil {
		return false, err
	}
	s.known.Retain(tenant, format.FirstWindow(res), last, windows)
	for _, w := range windows {
		marks, err := s.CommitRecordsVersion(ctx, tenant, w)
		if err != nil {
			return false, err
		}
		version, again := done[w]
		if marks != 0 && !(again && marks == version) {
			start, end := s.period.WindowSpan(w)
			if !yield(ended.OverWindow{Tenant: tenant, Window: w, Resolution: res, StartMS: start, EndMS: end, Again: again, Version: marks}) {
				return false, nil
			}
		}
		between()
	}
	return true, nil
}

// Compact makes long chunks of the chunks of a window: see paged.Rows.Compact. It may end anywhere, and begin anew, and
// be run beside seals. between is called between pieces of the work.
func (s *Store) Compact(ctx context.Context, c ended.OverWindow, between func()) (stats paged.Compacted, err error) {
	if err := s.Ready(); err != nil {
		return stats, err
	}
	if err := s.member.MayWrite(); err != nil {
		return stats, err
	}
	if !s.mayCompact() {
		return stats, fmt.Errorf("%w: this engine doesn't support compaction of rollups", engine.ErrBadWrite)
	}
	if err := s.beginLong(ctx, c.Window); err != nil {
		return stats, err
	}
	names, err := s.metricsIn(ctx, c.Tenant, c.Window)
	if err != nil {
		return stats, err
	}
	var damaged error // of the first metric with rows that can't be read: others don't wait for it
	for _, metric := range names {
		done, err := s.compactMetric(ctx, &c, metric, between)
		stats.Add(done)
		if err == nil {
			continue
		}
		err = fmt.Errorf("storage: compacting window %d of tenant %q, metric %q: %w", c.Window, c.Tenant, metric, err)
		if !errors.Is(err, engine.ErrCorrupt) {
			return stats, err
		}
		damaged = cmp.Or(damaged, err)
	}
	s.metrics.longChunks.WithLabelValues(c.Resolution.String()).Add(float64(stats.Chunks))
	s.metrics.leftSeries.WithLabelValues(c.Resolution.String()).Add(float64(stats.Left))
	if damaged != nil {
		return stats, damaged
	}
	return stats, s.noteCompacted(ctx, &c)
}

// beginLong lists a window as one that may have long chunks: durable before the first one is written.
func (s *Store) beginLong(ctx context.Context, window int64) error {
	if !s.rows.HasLong(window) {
		err := changeSettings(ctx, s.eng, func(have *settings) bool {
			at, known := slices.BinarySearch(have.Long, window)
			if !known {
				have.Long = slices.Insert(have.Long, at, window)
			}
			return !known
		})
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, scansEnd)
	defer cancel()
	err := s.rows.BeginLong(ctx, window)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w; it will be retried", engine.ErrUnavailable, err)
	}
	return err
}

func (s *Store) compactMetric(ctx context.Context, c *ended.OverWindow, metric string, between func()) (done paged.Compacted, err error) {
	shards, err := s.readShards(ctx, c.Window, c.Tenant, metric)
	if err != nil {
		return done, err
	}
	for at := range format.ClassShards(s.retention.Classes(), shards) {
		d, err := s.compactPartition(ctx, c.Resolution, format.SeriesPartition(c.Window, c.Tenant, metric, at), between)
		done.Add(d)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *Store) compactPartition(ctx context.Context, res rollup.Resolution, partition engine.Key, between func()) (paged.Compacted, error) {
	reading := func() (done func()) { return func() {} }
	if s.caching != nil {
		reading = s.caching.ReadOnce
	}
	return s.rows.Compact(ctx, paged.Compaction{
		Resolution: res, Partition: partition, Reading: reading, Between: between,
		Left:      s.unreadReporter(format.TableOf(res), partition, ignoreUnreadable),
		Timestamp: func(start int64, version uint64) int64 { return s.timestampOf(res, start, version) },
	})
}

// compactedOf returns the windows of a tenant that were compacted.
func (s *Store) compactedOf(ctx context.Context, tenant string) (compactedWindows, error) {
	s.compacting.mu.Lock()
	defer s.compacting.mu.Unlock()
	done, err := s.recallCompacted(ctx, tenant)
	return done.windows, err
}

// recallCompacted returns them with their row. It needs the lock.
func (s *Store) recallCompacted(ctx context.Context, tenant string) (compactedTenant, error) {
	if done, ok := s.compacting.of[tenant]; ok {
		return done, nil
	}
	windows, row, err := s.readCompacted(ctx, tenant)
	done := compactedTenant{windows, row}
	if err == nil {
		s.compacting.set(tenant, done)
	}
	return done, err
}

func (c *compacting) set(tenant string, done compactedTenant) {
	if c.of == nil || len(c.of) >= maxCompactedTenants {
		c.of = map[string]compactedTenant{}
	}
	c.of[tenant] = done
}

// readCompacted reads them, and the row. One that can't be read counts as none: the windows are looked through again.
func (s *Store) readCompacted(ctx context.Context, tenant string) (done compactedWindows, value []byte, err error) {
	item := engine.Key{engine.Text(tenant)}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Store, Partition: compactedPartition, From: item, To: item}) {
		if err != nil {
			return nil, nil, fmt.Errorf("storage: reading which windows of tenant %q are compacted: %w", tenant, err)
		}
		value = bytes.Clone(row.Value)
	}
	done = compactedWindows{}
	var row compactedRow
	if value != nil && json.Unmarshal(value, &row) == nil {
		for window, version := range row.Windows {
			if n, err := strconv.ParseUint(version, 16, 64); err == nil {
				done[window] = n
			}
		}
	}
	return done, value, nil
}

// noteCompacted notes that a window was compacted, and forgets those that are gone.
func (s *Store) noteCompacted(ctx context.Context, c *ended.OverWindow) error {
	s.compacting.mu.Lock()
	defer s.compacting.mu.Unlock()
	before, err := s.recallCompacted(ctx, c.Tenant)
	if err != nil {
		return err
	}
	done := maps.Clone(before.windows)
	listed, err := s.KnownWindows(ctx, c.Tenant, -allWindows, allWindows, s.damage.Record)
	if err != nil {
		return err
	}
	maps.DeleteFunc(done, func(window int64, _ uint64) bool {
		_, is := slices.BinarySearch(listed, window)
		return !is
	})
	done[c.Window] = c.Version
	row := compactedRow{Windows: map[int64]string{}}
	for window, version := range done {
		row.Windows[window] = strconv.FormatUint(version, 16)
	}
	after, err := json.Marshal(row)
	if err != nil {
		return err
	}
	ok, _, err := s.eng.CompareAndSet(ctx, engine.Store, compactedPartition, engine.Key{engine.Text(c.Tenant)}, before.row, after)
	if err == nil && !ok {
		err = errSettingsContended
	}
	if err != nil {
		delete(s.compacting.of, c.Tenant) // Unknown after a failed write.
		return fmt.Errorf("storage: recording that window %d of tenant %q was compacted: %w", c.Window, c.Tenant, err)
	}
	s.compacting.set(c.Tenant, compactedTenant{done, after})
	return nil
}
