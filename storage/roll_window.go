package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rollSeries is how many series are rolled up together.
const rollSeries = 1000

// markAt names a mark.
type markAt struct {
	slot      int64
	partition int
	id        string
}

// marksIn reads the marks of a tenant's window of any resolution.
func (s *Store) marksIn(ctx context.Context, tenant string, window int64) (map[markAt]bool, error) {
	found := map[markAt]bool{}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Sealed, Partition: format.SealedPartition(window, tenant), KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the marks of window %d of %q: %w", window, tenant, err)
		}
		k := row.Clustering
		found[markAt{k[0].Int, int(k[1].Int), strings.Clone(k[2].Text)}] = true
	}
	return found, nil
}

// markOf is the mark that says that a delete was applied to the rollups of a slot.
func markOf(slot int64, d *format.Tombstone) markAt { return markAt{slot, 0, d.ID} }

// unrolled lists the marks of a raw window whose rollups aren't there, in order. For each delete that touches slots
// of the window there are marks, too, under the delete's id: the rollups have them once they were made anew.
func (s *Store) unrolled(ctx context.Context, tenant string, window int64) ([]markAt, error) {
	deleted, err := s.deletesOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return s.unrolledOf(ctx, tenant, window, deleted)
}

// unrolledOf is unrolled for some of the tenant's deletes.
func (s *Store) unrolledOf(ctx context.Context, tenant string, window int64, deleted format.Tombstones) ([]markAt, error) {
	raw, err := s.marksIn(ctx, tenant, window)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Collect(maps.Keys(raw)) {
		for _, d := range deleted.InSlot(s.period, m.slot) {
			raw[markOf(m.slot, d)] = true
		}
	}
	byWindow := map[int64]map[markAt]bool{}
	var missing []markAt
	for m := range raw {
		for _, res := range rollup.Resolutions {
			w := s.period.WindowOfSlot(res, m.slot)
			if byWindow[w] == nil {
				if byWindow[w], err = s.marksIn(ctx, tenant, w); err != nil {
					return nil, err
				}
			}
			if !byWindow[w][m] {
				missing = append(missing, m)
				break
			}
		}
	}
	slices.SortFunc(missing, func(a, b markAt) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.partition, b.partition), strings.Compare(a.id, b.id))
	})
	return missing, nil
}

// rollWindow makes the rollups of what was sealed in a raw window without them: by an earlier release. It
// returns how many series it worked off, each counted once a slot. It may be repeated, and run beside seals.
// between is called between pieces of the work.
func (s *Store) rollWindow(ctx context.Context, tenant string, window int64, between func()) (series int, err error) {
	missing, err := s.unrolled(ctx, tenant, window)
	if err != nil || len(missing) == 0 {
		return 0, err
	}
	sealers := map[int64]*sealer{}
	deleted, err := s.deletesOf(ctx, tenant)
	if err != nil {
		return 0, err
	}
	whole := map[int64]bool{} // slots whose rollups are missing for other reasons
	for _, m := range missing {
		if sealers[m.slot] == nil {
			sealers[m.slot] = newSealer(ctx, s, Work{Slot: m.slot, Partition: m.partition})
		}
		if x := sealers[m.slot]; deleted.Has(m.id) {
			x.due = append(x.due, deleted.Where(func(d *format.Tombstone) bool { return d.ID == m.id })...)
		} else {
			whole[m.slot] = true
		}
	}
	for slot, x := range sealers {
		x.forDue = !whole[slot]
	}
	for _, slot := range slices.Sorted(maps.Keys(sealers)) {
		for _, res := range rollup.Resolutions {
			if err := s.listWindow(ctx, tenant, sealers[slot].into[res].window); err != nil {
				return series, err
			}
		}
	}
	names, err := s.metricsToRoll(ctx, tenant, window, sealers)
	if err != nil {
		return series, err
	}
	for _, metric := range names {
		n, err := s.rollMetric(ctx, tenant, window, metric, sealers, between)
		series += n
		if err != nil {
			return series, err
		}
	}
	for _, m := range missing {
		for _, res := range rollup.Resolutions {
			row := s.markRow(tenant, sealers[m.slot].into[res], m.slot, m.partition, m.id)
			if err := s.eng.Write(ctx, []engine.Batch{row}); err != nil {
				return series, fmt.Errorf("storage: marking slot %d of %q as rolled up: %w", m.slot, tenant, err)
			}
			if err := s.stayListed(ctx, tenant, sealers[m.slot].into[res].window); err != nil {
				return series, err
			}
		}
		if !deleted.Has(m.id) {
			continue
		}
		// So that the marks of the resolutions are alike again.
		if err := s.eng.Write(ctx, []engine.Batch{s.markRow(tenant, sealers[m.slot].into[rollup.Raw], m.slot, m.partition, m.id)}); err != nil {
			return series, fmt.Errorf("storage: marking slot %d of %q as cleared of what was deleted: %w", m.slot, tenant, err)
		}
		if err := s.stayListed(ctx, tenant, window); err != nil {
			return series, err
		}
	}
	return series, nil
}

// rollMetric makes the rollups of one metric in the slots of sealers, and of their days.
func (s *Store) rollMetric(ctx context.Context, tenant string, window int64, metric string, sealers map[int64]*sealer, between func()) (series int, err error) {
	list, err := s.seriesToRoll(ctx, tenant, window, metric, sealers)
	if err != nil {
		return 0, err
	}
	slots := slices.Sorted(maps.Keys(sealers))
	for part := range slices.Chunk(list, rollSeries) {
		ofDay := map[*collected]bool{}
		var dueOfDay format.Tombstones
		dueIn := map[int64]format.Tombstones{}
		for i, slot := range slots {
			x := sealers[slot]
			dueIn[slot] = x.due
			x.tasks = x.tasks[:0]
			if err := x.destine(tenant, metric, part); err != nil {
				return series, err
			}
			for j := range part {
				if c := &part[j]; !x.forDue || len(x.due.OfSeries(c.series.Labels())) > 0 {
					x.tasks = append(x.tasks, rollupTask{collected: c})
					ofDay[c] = true
				}
			}
			if err := x.rollFine(); err != nil {
				return series, err
			}
			dueOfDay = append(dueOfDay, x.due.Where(func(d *format.Tombstone) bool { return !dueOfDay.Has(d.ID) })...)
			lastOfDay := i+1 == len(slots) || s.period.DayOf(slots[i+1]) != s.period.DayOf(slot)
			if lastOfDay {
				x.dueIn = dueIn
				if err := x.rollDay(part, ofDay, dueOfDay); err != nil {
					return series, err
				}
				clear(ofDay)
				dueOfDay = nil
			}
			series += len(part)
			between()
		}
	}
	return series, nil
}

// rollDay makes the 1h rollups of a day of some series, of which slots' rollups were made, and applies what these didn't know.
func (x *sealer) rollDay(part []collected, of map[*collected]bool, due format.Tombstones) error {
	x.tasks = x.tasks[:0]
	for j := range part {
		if of[&part[j]] {
			x.tasks = append(x.tasks, rollupTask{collected: &part[j]})
		}
	}
	defer func(ofSlot format.Tombstones) { x.due = ofSlot }(x.due)
	x.due = due
	return x.makeAll1h()
}

// destine finds the shards in which the rollups of a metric's series go.
func (x *sealer) destine(tenant, metric string, list []collected) error {
	perPartition := len(list)/x.s.period.OfSlot(x.work.Slot).Partitions + 1
	for _, res := range rollup.Resolutions {
		n, err := x.shardsFor(res, tenant, metric, perPartition, int64(perPartition)*format.RollupBytes)
		if err != nil {
			return err
		}
		for i := range list {
			list[i].shards[res] = uint16(format.ShardOf(list[i].series.ID(), n))
		}
	}
	return nil
}

// Unrolled is a window of a tenant's raw rows that was sealed, in part or whole, without rollups.
type Unrolled struct {
	Tenant string
	Window int64
	// StartMS and EndMS are what the window spans, milliseconds.
	StartMS, EndMS int64
	// Seals is how many seals made no rollups.
	Seals int
}

// Unrolled lists the windows between two times, milliseconds, that lack rollups, the oldest first.
func (s *Store) Unrolled(ctx context.Context, minT, maxT int64) ([]Unrolled, error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	var found []Unrolled
	for _, tenant := range tenants {
		windows, err := s.windowsOf(ctx, tenant, s.period.RawWindowAt(minT), s.period.RawWindowAt(maxT))
		if err != nil {
			return nil, err
		}
		for _, w := range windows {
			missing, err := s.unrolled(ctx, tenant, w)
			if err != nil {
				return nil, err
			}
			if len(missing) > 0 {
				end := s.period.RawWindowEnd(w)
				found = append(found, Unrolled{
					Tenant: tenant, Window: w, StartMS: end - s.period.OfRawWindow(w).RawWindowMS, EndMS: end, Seals: len(missing),
				})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Unrolled) int { return cmp.Compare(a.EndMS, b.EndMS) })
	return found, nil
}

// RollUp makes the rollups that a window lacks. It returns how many series it worked off, each counted once a
// slot. between is called between pieces of the work, for a caller that rests.
func (s *Store) RollUp(ctx context.Context, u Unrolled, between func()) (series int, err error) {
	if err := s.Ready(); err != nil {
		return 0, err
	}
	if err := s.maySeal(); err != nil {
		return 0, err
	}
	return s.rollWindow(ctx, u.Tenant, u.Window, between)
}
