package storage

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// hiddenRoller creates the rollups of raw windows during one call of Expire, before the windows are hidden or deleted.
// rolled contains the windows whose rollups are complete.
type hiddenRoller struct {
	s      *Store
	rolled map[tenantWindow]bool
}

// RollHidden creates the rollups of the raw windows that are about to be hidden, and of the window after them, which is
// hidden gradually as time passes. It returns the time until which rollups are complete. The rollups must be complete
// first, because queries don't read hidden samples. While a delete isn't cleaned, RollHidden also checks windows that
// are already hidden: if samples arrived there after the delete, queries return them only once the delete was applied
// to the rollups.
func (x *hiddenRoller) RollHidden(
	ctx context.Context, tenant string, h *retention.Boundary, target int64,
) (int64, error) {
	if target == retention.Never {
		return target, nil
	}
	s, class, missing := x.s, h.Class, h.LackingMS
	from, hides := min(h.HiddenMS, target), max(target, missing)
	next := s.period.WindowEnd(s.period.WindowAt(rollup.Raw, hides+1))
	if err := s.peers.settle(ctx, tenant); err != nil {
		return from, err
	}
	ds, err := s.deletesOf(ctx, tenant)
	switch {
	case err != nil:
		return from, err
	case len(ds) == 0:
		s.rolled.Delete(tenantClass{tenant, class})
		if h.NextRolled && hides == h.HiddenMS {
			return next, nil
		}
	default:
		if err := x.rollMissing(ctx, tenant, class, missing, from, ds); err != nil {
			return from, err
		}
	}
	return x.RollUntil(ctx, tenant, from, next)
}

// rollMissing creates missing rollups of hidden windows up to a time. It skips windows to which nothing was written
// since it last found their rollups complete.
func (x *hiddenRoller) rollMissing(
	ctx context.Context, tenant string, class, missing, to int64, ds format.Tombstones,
) error {
	s := x.s
	windows, err := s.readableWindows(
		ctx, tenant, s.period.WindowAt(rollup.Raw, missing+1), s.period.WindowAt(rollup.Raw, to),
	)
	if err != nil {
		return err
	}
	before, now := s.rolled.Value(tenantClass{tenant, class}), make(map[int64]uint64, len(windows))
	for _, w := range windows {
		stamp, ok := s.commitRecordsStamp(tenant, w, ds)
		if known, is := before[w]; !ok || !is || known != stamp {
			if err := x.rollOnce(ctx, w, tenant); err != nil {
				return err
			}
		}
		if ok { // The stamp excludes records written just now, so they are checked next time.
			now[w] = stamp
		}
	}
	s.rolled.Set(tenantClass{tenant, class}, now)
	return nil
}

// RollUntil creates the rollups of the raw windows that end after from and until to. It returns the time until which
// rollups are complete.
func (x *hiddenRoller) RollUntil(ctx context.Context, tenant string, from, to int64) (int64, error) {
	s := x.s
	windows, err := s.readableWindows(
		ctx, tenant, s.period.WindowAt(rollup.Raw, from+1), s.period.WindowAt(rollup.Raw, to),
	)
	if err != nil {
		return from, err
	}
	for _, w := range windows {
		if err := x.rollOnce(ctx, w, tenant); err != nil {
			return max(from, s.period.WindowStart(w)), err
		}
	}
	return to, nil
}

// rollOnce creates the missing rollups of a raw window, unless this call of Expire has already done so.
func (x *hiddenRoller) rollOnce(ctx context.Context, window int64, tenant string) error {
	at := tenantWindow{tenant, window}
	if x.rolled[at] {
		return nil
	}
	if _, err := x.s.rollWindow(ctx, tenant, window, func() {}); err != nil {
		return fmt.Errorf(
			"storage: window %d of tenant %q is kept, because its rollups could not be created: %w", window, tenant,
			err,
		)
	}
	x.rolled[at] = true
	return nil
}

// rolledWindows caches the hidden windows with complete rollups, for tenants with uncleaned deletes. It maps each
// window to a stamp of its commit records and the deletes. If the stamp is unchanged in the next Expire, a minute
// later, the commit records aren't read again.
type rolledWindows = bounds.Map[tenantClass, map[int64]uint64]

type tenantClass struct {
	tenant string
	class  int64
}

// commitRecordsStamp returns a number that changes when commit records of a raw window or of its rollups are written,
// or when the deletes change. ok is false if it can't be computed.
func (s *Store) commitRecordsStamp(tenant string, window int64, ds format.Tombstones) (stamp uint64, ok bool) {
	if s.versions == nil {
		return 0, false
	}
	var b []byte
	start, _ := s.period.WindowSpan(window)
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		version, ok := s.versions.Version(
			engine.Sealed, format.SealedPartition(s.period.WindowAt(res, start+1), tenant),
		)
		if !ok {
			return 0, false
		}
		b = binary.LittleEndian.AppendUint64(b, version)
	}
	for _, d := range ds {
		b = append(b, d.ID...)
	}
	return xxhash.Sum64(b), true
}
