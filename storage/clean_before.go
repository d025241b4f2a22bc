package storage

import (
	"context"
	"errors"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// trimDeleted takes what deletes are about out of the rollups of slots of one day, and marks these as cleared of it,
// before rollups without samples come there, which are of a resolution and coarser: rollups can't name deletes that
// they are exempt from. The caller has the turn of filling, and has read the deletes after begun.
func (s *Store) trimBefore(
	ctx context.Context, tenant string, finest rollup.Resolution, slots map[int64]bool, ds format.Tombstones, begun time.Time,
) error {
	ds = ds.Filter(func(d *format.Tombstone) bool {
		for slot := range slots {
			if d.TouchesSlot(s.period, slot) {
				return true
			}
		}
		return false
	})
	if len(ds) == 0 {
		return nil
	}
	var raw, fine, hours int64
	for slot := range slots { // All are in the same.
		raw, fine, hours = s.period.WindowOfSlot(rollup.Raw, slot), s.period.WindowOfSlot(rollup.FiveMinutes, slot), s.period.WindowOfSlot(rollup.OneHour, slot)
	}
	if _, err := s.rollWindow(ctx, tenant, raw, func() {}); err != nil { // There may be samples of other classes.
		return err
	}
	window := fine
	if finest == rollup.OneHour {
		stand, err := s.retention.HasSharedRows(ctx, tenant, fine)
		if err != nil {
			return err
		}
		if !stand || s.retention.DropsTogether() {
			window = hours // No class has 5m rollups.
		}
	}
	for range trimTries {
		t := newTrim(ctx, s, tenant, window, ds)
		marks, err := s.commitRecordsIn(ctx, tenant, window)
		if err != nil {
			return err
		}
		for slot := range slots {
			t.slot(marks, slot)
		}
		for _, d := range ds {
			if t.isMissing(d) && s.deletes.mayCome(d, begun) {
				return errDeleting
			}
		}
		if err = t.run(); !errors.Is(err, errTrimmed) {
			return err
		}
	}
	return errTrimmed
}
