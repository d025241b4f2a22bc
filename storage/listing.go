package storage

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
)

// A row of table windows records whether a tenant's window may have rows. The row is never deleted: the timestamp of a
// deletion can't be read back, so a later writer couldn't choose a higher timestamp. Instead the row is overwritten,
// each time with a higher generation, which is also its timestamp:
//
//	          lister                                            unlister
//	listed ── rows ── commit records ── still listed?           none? ── closing ── none? ── unlisted
//
// A closing window counts as listed. Invariant: a window with commit records is listed. If the unlister's second read
// misses a commit record, the record was written after the window was marked as closing. After writing the record, its
// writer reads the row, finds the window closing or unlisted, and lists it in the next generation.

// tenantWindow identifies a window of a tenant.
type tenantWindow struct {
	tenant string
	window int64
}

// windowList caches the windows that this process has listed. It maps each window to the time, in seconds since 1970,
// until which the window certainly stays listed. This is the expiry of a commit record that was durable when the window
// was found listed. The time is 0 if no such record is known, so the window may be unlisted at any time.
type windowList struct {
	bounds.Map[tenantWindow, int64]
	// changing are locks, selected by a hash of the tenant. The tenant's lock must be held to read and rewrite a row of
	// the tenant.
	changing [64]sync.Mutex
}

// lock locks the rows of a tenant in table windows. No other goroutine changes them until unlock is called.
func (l *windowList) lock(tenant string) (unlock func()) {
	mu := &l.changing[xxhash.Sum64String(tenant)%uint64(len(l.changing))]
	mu.Lock()
	return mu.Unlock
}

// readListing reads the row of a window in table windows. If there is no row, it returns the zero Listing.
func (s *Store) readListing(ctx context.Context, at tenantWindow) (l format.Listing, err error) {
	key := engine.Key{engine.Int(at.window)}
	for row, err := range s.eng.Scan(
		ctx, engine.Range{Table: engine.Windows, Partition: engine.Key{engine.Text(at.tenant)}, From: key, To: key},
	) {
		if err != nil {
			return l, fmt.Errorf(
				"storage: checking whether window %d of tenant %q is listed: %w", at.window, at.tenant, err,
			)
		}
		l = format.ParseListing(row.Value)
	}
	return l, nil
}

func listingRow(at tenantWindow, l format.Listing) engine.Batch {
	return engine.Batch{
		Table: engine.Windows, Partition: engine.Key{engine.Text(at.tenant)}, Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Int(at.window)}, Timestamp: l.Generation, Value: format.AppendListing(l),
		}},
	}
}

// listWindow ensures that a tenant and its window are listed. It must be called before writing rows that readers must
// find. Callers that write commit records must call relistWindow afterwards.
func (s *Store) listWindow(ctx context.Context, tenant string, window int64) error {
	at := tenantWindow{tenant, window}
	if _, ok := s.windows.Get(at); ok {
		return nil
	}
	defer s.windows.lock(tenant)()
	return s.ensureListed(ctx, at, 0)
}

// ensureListed writes the row that lists a tenant, and lists a window unless it is already listed. It caches that the
// window stays listed until the given time. The caller must hold the tenant's lock.
func (s *Store) ensureListed(ctx context.Context, at tenantWindow, until int64) error {
	l, err := s.readListing(ctx, at)
	if err != nil {
		return err
	}
	rows := []engine.Batch{{Table: engine.Tenants, Partition: engine.Key{engine.Int(0)}, Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(at.tenant)}, Timestamp: 1, Value: []byte{1},
	}}}}
	if !l.IsListed() {
		rows = append(rows, listingRow(at, l.WithState(format.Listed)))
	}
	if err := s.eng.Write(ctx, rows); err != nil {
		return fmt.Errorf("storage: listing window %d of tenant %q: %w", at.window, at.tenant, err)
	}
	s.windows.Change(at, func(before int64) int64 { return max(before, until) })
	return nil
}

// relistWindow ensures that a window is still listed after commit records were written, because another process may
// have unlisted it concurrently. The window then stays listed until the commit records expire; all records of a batch
// have the same expiry.
func (s *Store) relistWindow(ctx context.Context, tenant string, window int64, marks engine.Batch) error {
	at, now := tenantWindow{tenant, window}, s.opts.Now().Unix()
	if until, ok := s.windows.Get(at); ok && until > now {
		return nil
	}
	until := int64(math.MaxInt64)
	if marks.Expires != 0 {
		until = marks.Expires - int64(retention.Margin.Seconds()) // Clocks may differ by Margin.
	}
	defer s.windows.lock(tenant)()
	return s.ensureListed(ctx, at, until)
}

// unlistWindow unlists a window if it has no rows. done is true if it did. On engines that expire rows, dropping a
// window doesn't delete its rows. On such an engine the window stays listed until its rows expire, so that deletes,
// cleaning and checks find them.
func (s *Store) unlistWindow(ctx context.Context, tenant string, window int64) (done bool, err error) {
	at := tenantWindow{tenant, window}
	if rows, err := s.hasRows(ctx, tenant, window); err != nil || rows {
		return false, err
	}
	defer s.windows.lock(tenant)()
	l, err := s.readListing(ctx, at)
	if err != nil {
		return false, err
	}
	s.windows.Delete(at)
	if !l.MayHaveRows() {
		return false, nil
	}
	close := l.WithState(format.Closing)
	if err := s.eng.Write(ctx, []engine.Batch{listingRow(at, close)}); err != nil {
		return false, fmt.Errorf("storage: closing window %d of tenant %q: %w", window, tenant, err)
	}
	if rows, err := s.hasRows(ctx, tenant, window); err != nil || rows {
		return false, err
	}
	if err := s.eng.Write(ctx, []engine.Batch{listingRow(at, close.WithState(format.Unlisted))}); err != nil {
		return false, fmt.Errorf("storage: removing window %d of tenant %q from the list: %w", window, tenant, err)
	}
	return true, nil
}

// hasRows reports whether a window of a tenant has commit records or metric names.
func (s *Store) hasRows(ctx context.Context, tenant string, window int64) (bool, error) {
	marks, err := s.isEmptyPartition(ctx, engine.Sealed, format.SealedPartition(window, tenant))
	if err != nil || !marks {
		return !marks, err
	}
	names, err := s.isEmptyPartition(
		ctx, engine.Catalog, format.CatalogPartition(window, tenant, format.CatalogMetric, ""),
	)
	return !names, err
}

// windowsOf lists the windows between first and last in which a tenant may have rows, in order. Unreadable rows are
// reported and skipped.
func (s *Store) windowsOf(ctx context.Context, tenant string, first, last int64) (windows []int64, err error) {
	return s.windowsSkipping(ctx, tenant, first, last, s.damage.Record)
}

// readableWindows is like windowsOf, but it returns an error if rows are unreadable. Code that removes rows must use
// it.
func (s *Store) readableWindows(ctx context.Context, tenant string, first, last int64) (windows []int64, err error) {
	return s.windowsSkipping(ctx, tenant, first, last, nil)
}

// windowsSkipping lists the windows between first and last. It calls missed for unreadable rows, or returns an error if
// missed is nil.
func (s *Store) windowsSkipping(
	ctx context.Context, tenant string, first, last int64, missed func(*damage.DamagedRowsError),
) (windows []int64, err error) {
	rows := engine.Range{
		Table: engine.Windows, Partition: engine.Key{engine.Text(tenant)},
		From: engine.Key{engine.Int(first)}, To: engine.Key{engine.Int(last)},
	}
	if missed != nil {
		rows.Damaged = func(d engine.Damage) { missed(s.damage.GapOf(&rows, d)) }
	}
	return s.scanWindows(ctx, rows)
}

// scanWindows returns the windows that are listed by the rows in a range.
func (s *Store) scanWindows(ctx context.Context, rows engine.Range) (windows []int64, err error) {
	for row, err := range s.eng.Scan(ctx, rows) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing windows of tenant %q: %w", rows.Partition[0].Text, err)
		}
		if format.ParseListing(row.Value).MayHaveRows() {
			windows = append(windows, row.Clustering[0].Int)
		}
	}
	return windows, nil
}
