package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
)

// Counts returns the statistics of the store's series.
func (s *Store) Counts() *counts.Statistics {
	return counts.New(counts.Env{
		Period: s.period, Head: s.head, Cache: s.cache, Memory: &s.known, Now: s.opts.Now, Shared: s.opts.Shared,
		Expiring: s.retention.Expires(), Kept: retention.Grace,
		QueryBytes: s.opts.QueryBytes, CountingBytes: int64(s.opts.seams.countingBytes),
		Tenants: s.Tenants, Windows: s.ShownRawWindows, Version: s.CommitRecordsVersion, Classes: s.countedClasses,
		Metrics: s.metricsIn,
		IsRolled: func(ctx context.Context, tenant string, window int64) (bool, error) {
			missing, err := s.listUnrolledExcept(ctx, tenant, window, nil)
			return len(missing) == 0, err
		},
		Scan: func(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
			return query.EachRow(rows.Table, s.rows.Scan(ctx, rows), row)
		},
		ScanCounts: func(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
			return query.EachRow(rows.Table, s.eng.Scan(ctx, rows), row)
		},
		MayCount: s.checkMayCount, Lock: func() func() { s.sealMu[0].Lock(); return s.sealMu[0].Unlock },
		Replace: s.replaceCounts, Note: s.damage.RecordOnce,
		NewReader: s.NewCountingReader,
	})
}

// checkMayCount returns an error if this process must not write counts now. Writing counts also deletes the counts of
// other states of the window, which requires a trusted clock.
func (s *Store) checkMayCount() error {
	if err := s.Ready(); err != nil {
		return err
	}
	if err := s.member.MayWrite(); err != nil {
		return err
	}
	return s.clock.MayRemove()
}

// countedClasses returns the classes whose series are counted in a window. It excludes classes that are dropped or
// about to be dropped, because some of their rows may be missing. others has a bit for each excluded class.
func (s *Store) countedClasses(
	ctx context.Context, tenant string, window int64,
) (counted []int64, others uint64, err error) {
	t, err := s.retention.Boundaries(ctx, tenant)
	if err != nil {
		return nil, 0, err
	}
	for class := range s.retention.Classes() {
		if s.period.WindowEnd(window) <= t.Missing(class, format.ResolutionOf(window)) {
			others |= 1 << class
		} else {
			counted = append(counted, class)
		}
	}
	return counted, others, nil
}
