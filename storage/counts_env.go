package storage

import (
	"context"
	"strings"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Counts counts the series of the store.
func (s *Store) Counts() *counts.Statistics {
	return counts.New(counts.Env{
		Period: s.period, Head: s.head, Cache: s.cache, Memory: &s.known, Now: s.opts.Now, Shared: s.opts.Shared, Expiring: s.expiring, Kept: retention.Grace,
		QueryBytes: s.opts.QueryBytes, CountingBytes: int64(s.opts.seams.countingBytes),
		Tenants: s.Tenants, Windows: s.shownRawWindows, Version: s.versionOfMarks, Classes: s.countedClasses, Metrics: s.metricsIn,
		IsRolled: func(ctx context.Context, tenant string, window int64) (bool, error) {
			missing, err := s.unrolledOf(ctx, tenant, window, nil)
			return len(missing) == 0, err
		},
		Scan: func(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
			return eachRow(rows.Table, s.rows.Scan(ctx, rows), row)
		},
		ScanCounts: func(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
			return eachRow(rows.Table, s.eng.Scan(ctx, rows), row)
		},
		MayCount: s.mayCount, Lock: func() func() { s.sealMu[0].Lock(); return s.sealMu[0].Unlock }, Replace: s.replaceCounts, Note: s.damage.NoteOnce, Warnings: damage.Warnings,
		NewReader: func(ctx context.Context, tenant string, warn func(error)) (counts.WindowReader, error) {
			r, err := s.newRequest(ctx, Query{Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Warn: warn, overGaps: true})
			return &countedRequest{request: r}, err
		},
	})
}

// mayCount returns an error if this process may not write counts now: those of other states are deleted with that.
func (s *Store) mayCount() error {
	if err := s.Ready(); err != nil {
		return err
	}
	if err := s.member.MayWrite(); err != nil {
		return err
	}
	return s.clock.MayRemove()
}

// shownRawWindows lists the windows of raw rows of a tenant that are shown, up to last.
func (s *Store) shownRawWindows(ctx context.Context, tenant string, last int64) ([]int64, error) {
	hidden, err := s.horizons(ctx, tenant, -format.MaxTime, format.MaxTime)
	if err != nil {
		return nil, err
	}
	shown := (&scope{hidden: hidden}).earliest(rollup.Raw)
	return s.knownWindows(ctx, tenant, s.period.WindowAt(rollup.Raw, max(shown, -format.MaxTime)+1), last, s.damage.Note)
}

// countedClasses returns the classes whose series are counted in a window: those of which rows may be missing, as they are dropped or about to be,
// are left out whole. others are these, a bit each.
func (s *Store) countedClasses(ctx context.Context, tenant string, window int64) (counted []int64, others uint64, err error) {
	t, err := s.horizonsOf(ctx, tenant)
	if err != nil {
		return nil, 0, err
	}
	for class := range s.retention.Classes() {
		if s.period.WindowEnd(window) <= t.lacking(class, format.ResolutionOf(window)) {
			others |= 1 << class
		} else {
			counted = append(counted, class)
		}
	}
	return counted, others, nil
}

// countedRequest is a request as package counts reads by it.
type countedRequest struct {
	*request

	lost int // rows of labels that couldn't be read
}

func (r *countedRequest) Windows(ctx context.Context) ([]counts.WindowVersion, error) {
	found, err := windowFinder{r.request}.windows(ctx, rollup.Raw)
	list := make([]counts.WindowVersion, len(found))
	for i := range found {
		list[i] = counts.WindowVersion{Window: found[i].window, Version: found[i].version}
	}
	return list, err
}

func (r *countedRequest) Window(ctx context.Context, window int64) (w counts.WindowVersion, err error) {
	if r.s.period.WindowEnd(window) <= r.minT {
		return w, nil
	}
	found, err := windowFinder{r.request}.marks(ctx, window, 0, 0)
	return counts.WindowVersion{Window: window, Version: found.version}, err
}

func (r *countedRequest) Metrics(ctx context.Context, w counts.WindowVersion) ([]counts.MetricShards, error) {
	names, err := r.catalog().allMetrics(ctx, sealedWindow{window: w.Window, version: w.Version})
	list := make([]counts.MetricShards, len(names))
	for i, m := range names {
		list[i] = counts.MetricShards{Name: m.name, Shards: m.shards}
	}
	return list, err
}

func (r *countedRequest) Scan(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
	return r.scan(ctx, rows, row)
}

func (r *countedRequest) CorruptLabels(window int64, metric, series string, err error) {
	bad := &damage.CorruptRowError{Table: engine.Raw, Window: window, Tenant: r.tenant, Metric: metric, Series: strings.Clone(series), Err: err}
	r.s.damage.NoteOnce(engine.Raw, bad)
	if r.lost++; r.lost <= maxTold {
		r.tell(bad)
	}
}
