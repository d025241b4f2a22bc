package storage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rollSeries is the number of series that are rolled up together.
const rollSeries = 1000

// commitRecordsIn reads the commit records of a tenant's window of any resolution. It returns none if the records are
// past their retention.
func (s *Store) commitRecordsIn(ctx context.Context, tenant string, window int64) (map[format.CommitKey]bool, error) {
	return s.commitRecordsBetween(ctx, tenant, window, nil, nil)
}

// commitRecordsBetween reads the commit records with keys between from and to, which are used as in engine.Range.
func (s *Store) commitRecordsBetween(
	ctx context.Context, tenant string, window int64, from, to engine.Key,
) (map[format.CommitKey]bool, error) {
	found := map[format.CommitKey]bool{}
	if stand, err := s.retention.HasSharedRows(ctx, tenant, window); err != nil || !stand {
		return found, err
	}
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Sealed, Partition: format.SealedPartition(window, tenant), From: from, To: to, KeysOnly: true,
	}) {
		if err != nil {
			return nil, fmt.Errorf(
				"storage: reading the seal records of window %d of tenant %q: %w", window, tenant, err,
			)
		}
		found[format.CommitKeyOf(row.Clustering)] = true
	}
	return found, nil
}

// listUnrolled lists the commit records of a raw window that are missing in the rollup windows, in order. A missing
// record means that the rollups don't include the seal or delete of the record. Each delete that touches slots of the
// window has a commit record per slot, under the delete's id. The rollup windows get this record once the rollups were
// recomputed for the delete.
func (s *Store) listUnrolled(ctx context.Context, tenant string, window int64) ([]format.CommitKey, error) {
	deleted, err := s.deletesOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return s.listUnrolledExcept(ctx, tenant, window, deleted)
}

// listUnrolledExcept is like listUnrolled, for a given list of the tenant's deletes.
func (s *Store) listUnrolledExcept(
	ctx context.Context, tenant string, window int64, deleted format.Tombstones,
) ([]format.CommitKey, error) {
	raw, err := s.commitRecordsIn(ctx, tenant, window)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	for _, m := range slices.Collect(maps.Keys(raw)) {
		for _, d := range deleted.InSlot(s.period, m.Slot) {
			raw[d.CommitKey(m.Slot)] = true
		}
	}
	// A rollup window contains the commit records of up to 30 days. Only the records of the raw window's slots are
	// read.
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for m := range raw {
		first, last = min(first, m.Slot), max(last, m.Slot)
	}
	from, to := engine.Key{engine.Int(first)}, engine.Key{engine.Int(last)}
	byWindow := map[int64]map[format.CommitKey]bool{}
	var missing []format.CommitKey
	for m := range raw {
		for _, res := range rollup.Resolutions {
			w := s.period.WindowOfSlot(res, m.Slot)
			if byWindow[w] == nil {
				stand, err := s.retention.HasSharedRows(ctx, tenant, w)
				if err != nil {
					return nil, err
				}
				if !stand { // The rollups have expired before the raw rows, because the retention was raised.
					byWindow[w] = raw
					continue
				}
				if byWindow[w], err = s.commitRecordsBetween(ctx, tenant, w, from, to); err != nil {
					return nil, err
				}
			}
			if !byWindow[w][m] {
				missing = append(missing, m)
				break
			}
		}
	}
	slices.SortFunc(missing, func(a, b format.CommitKey) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Partition, b.Partition), strings.Compare(a.ID, b.ID))
	})
	return missing, nil
}

// windowRoller creates the missing rollups of a raw window. Rollups are missing if an import was interrupted after it
// sealed samples, or if a delete touches slots of the window.
type windowRoller struct {
	*rowWriter
	tenant string
	window int64
	slots  map[int64]*rolledSlot
	// deleted are all tombstones of the tenant.
	deleted format.Tombstones
	// classes is the window's list of classes.
	classes *retention.ClassList
	// between is called between units of work.
	between func()
}

// rollWindow creates the missing rollups of a raw window. It returns the number of processed series; a series counts
// once per slot. It can be repeated and can run concurrently with seals. between is called between units of work.
func (s *Store) rollWindow(ctx context.Context, tenant string, window int64, between func()) (series int, err error) {
	missing, err := s.listUnrolled(ctx, tenant, window)
	if err != nil || len(missing) == 0 {
		return 0, err
	}
	x := &windowRoller{
		rowWriter: newRowWriter(ctx, s, Work{Slot: missing[0].Slot, Partition: missing[0].Partition}),
		tenant:    tenant, window: window, slots: map[int64]*rolledSlot{}, between: between,
	}
	if x.deleted, err = s.deletesOf(ctx, tenant); err != nil {
		return 0, err
	}
	if x.classes, _, err = s.retention.ClassesOn(ctx, tenant, window); err != nil {
		return 0, err
	}
	x.recordMissing(missing)
	if err := x.listWindows(); err != nil {
		return 0, err
	}
	names, err := x.listMetrics()
	if err != nil {
		return 0, err
	}
	for _, metric := range names {
		n, err := x.rollMetric(metric)
		series += n
		if err != nil {
			return series, err
		}
	}
	for _, m := range missing {
		if err := x.writeCommitRecord(m); err != nil {
			return series, err
		}
	}
	return series, nil
}

// recordMissing records the slots with missing rollups, and for each slot the deletes that its rollups don't include.
func (x *windowRoller) recordMissing(missing []format.CommitKey) {
	whole := map[int64]bool{} // slots whose rollups are missing for other reasons
	for _, m := range missing {
		in := x.slots[m.Slot]
		if in == nil {
			in = newRolledSlot(x.ctx, x.s, m.Slot)
			x.slots[m.Slot] = in
		}
		if x.deleted.Has(m.ID) {
			in.due = append(in.due, x.deleted.Filter(func(d *format.Tombstone) bool { return d.ID == m.ID })...)
		} else {
			whole[m.Slot] = true
		}
	}
	for slot, in := range x.slots {
		in.forDue = !whole[slot]
	}
	x.remade = len(whole) == 0
}

func (x *windowRoller) listWindows() error {
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		for _, res := range rollup.Resolutions {
			if err := x.s.listWindow(x.ctx, x.tenant, x.slots[slot].into[res].window); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeCommitRecord writes m to the rollup windows. It records that their rollups include the seal or delete. The
// record of a delete is also written to the raw window.
func (x *windowRoller) writeCommitRecord(m format.CommitKey) error {
	list := rollup.Resolutions[:]
	if x.deleted.Has(m.ID) {
		list = append(slices.Clone(list), rollup.Raw) // All resolutions then have the same commit records.
	}
	for _, res := range list {
		if err := x.s.writeCommitRecords(
			x.ctx, x.tenant, res, format.CommitMaintenance, []format.CommitKey{m},
		); err != nil {
			return err
		}
	}
	return nil
}

// rollMetric computes the 5m rollups of one metric in all slots with missing rollups, and the 1h rollups of the days of
// these slots.
func (x *windowRoller) rollMetric(metric string) (series int, err error) {
	list, err := x.listSeries(metric)
	if err != nil {
		return 0, err
	}
	days := map[int64][]*rolledSlot{}
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		day := x.s.period.DayOf(slot)
		days[day] = append(days[day], x.slots[slot])
	}
	for part := range slices.Chunk(list, rollSeries) {
		for _, day := range slices.Sorted(maps.Keys(days)) {
			if err := x.rollDay(metric, days[day], part); err != nil {
				return series, err
			}
			series += len(part) * len(days[day])
			x.between()
		}
	}
	return series, nil
}

// rollDay computes the rollups of some series of a metric in slots of one day.
func (x *windowRoller) rollDay(metric string, slots []*rolledSlot, part []collectedSeries) error {
	r := newRoller(x.rowWriter, x.tenant, slots[0].slot)
	if err := r.setShards(metric, part); err != nil {
		return err
	}
	r.due = map[int64]format.Tombstones{}
	for _, in := range slots {
		r.slots[in.slot], r.due[in.slot] = in, in.due
	}
	for i := range part {
		c, some := &part[i], false
		for _, in := range slots {
			if !in.forDue || len(in.due.OfSeries(c.series.Labels())) > 0 {
				in.tasks, some = append(in.tasks, rollupTask{collectedSeries: c}), true
			}
		}
		if some {
			r.series = append(r.series, c)
		}
	}
	return r.writeAll()
}

// Unrolled is a tenant's raw window with missing rollups.
type Unrolled struct {
	Tenant string
	Window int64
	// StartMS and EndMS are the start and end of the window, in milliseconds.
	StartMS, EndMS int64
	// Seals is the number of seals, imports and deletes that the rollups don't include.
	Seals int
}

// Unrolled yields the windows between two times, in milliseconds, that have missing rollups, ordered by tenant and
// oldest first. between is called after each checked window, so that the caller can pause. Iteration stops after an
// error.
func (s *Store) Unrolled(ctx context.Context, minT, maxT int64, between func()) iter.Seq2[Unrolled, error] {
	return func(yield func(Unrolled, error) bool) {
		tenants, err := s.Tenants(ctx)
		for i := 0; i < len(tenants) && err == nil; i++ {
			var wanted bool
			if wanted, err = s.unrolledWindows(
				ctx, tenants[i], minT, maxT, between, func(u Unrolled) bool { return yield(u, nil) },
			); err == nil && !wanted {
				return
			}
		}
		if err != nil {
			yield(Unrolled{}, err)
		}
	}
}

// unrolledWindows calls yield for a tenant's windows with missing rollups. wanted is false if yield returned false.
func (s *Store) unrolledWindows(
	ctx context.Context, tenant string, minT, maxT int64, between func(), yield func(Unrolled) bool,
) (wanted bool, err error) {
	windows, err := s.windowsOf(ctx, tenant, s.period.RawWindowAt(minT), s.period.RawWindowAt(maxT))
	if err != nil {
		return false, err
	}
	for _, w := range windows {
		missing, err := s.listUnrolled(ctx, tenant, w)
		if err != nil {
			return false, err
		}
		if len(missing) > 0 {
			end := s.period.RawWindowEnd(w)
			u := Unrolled{
				Tenant: tenant, Window: w, StartMS: end - s.period.OfRawWindow(w).RawWindowMS, EndMS: end,
				Seals: len(missing),
			}
			if !yield(u) {
				return false, nil
			}
		}
		between()
	}
	return true, nil
}

// RollUp creates the missing rollups of a window. It returns the number of processed series; a series counts once per
// slot. between is called between units of work, so that the caller can pause.
func (s *Store) RollUp(ctx context.Context, u Unrolled, between func()) (series int, err error) {
	if err := s.Ready(); err != nil {
		return 0, err
	}
	if err := s.member.MayWrite(); err != nil {
		return 0, err
	}
	return s.rollWindow(ctx, u.Tenant, u.Window, between)
}
