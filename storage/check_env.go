package storage

import (
	"context"
	"iter"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/check"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Check verifies the stored rows: see check.Run.
func (s *Store) Check(ctx context.Context, report func(problem string)) (check.Totals, error) {
	days := &checkedDays{
		s: s, marked: map[tenantWindow]map[format.CommitKey]bool{}, classes: map[tenantWindow]check.WindowClasses{},
	}
	return check.Run(ctx, check.Env{
		Engine: s.eng, Rows: s.rows, Period: s.period, Counts: s.Counts(), Shared: s.opts.Shared,
		Classes: s.retention.Classes, ClassesIn: days.classesIn,
		GapOf: s.damage.GapOf,
		Tenants: func(ctx context.Context, missed check.Missed) ([]string, error) {
			return s.tenantsSkipping(ctx, missed)
		},
		Windows: func(ctx context.Context, tenant string, missed check.Missed) ([]int64, error) {
			return s.windowsSkipping(ctx, tenant, -allWindows, allWindows, missed)
		},
		Unlisted: s.unlistedRows, Deletes: s.deletesOf, Metrics: s.metricsIn,
		Shards: func(ctx context.Context, window int64, tenant, metric string, missed check.Missed) (int64, error) {
			return s.shardsSkipping(ctx, window, tenant, metric, missed)
		},
		ShardsRow: func(ctx context.Context, window int64, tenant, metric string, missed check.Missed) ([]byte, error) {
			if err := s.retention.LoadExpiries(ctx, tenant, window); err != nil {
				return nil, err
			}
			return s.shardsValue(ctx, window, tenant, metric, missed)
		},
		Places: func(tenant string, window, shards int64) iter.Seq[format.ClassShard] {
			return s.unexpiredShards(tenantWindow{tenant, window}, shards)
		},
		IsGone: func(ctx context.Context, res rollup.Resolution, slot int64, tenant string, class int64) bool {
			err := s.retention.LoadExpiries(ctx, tenant, s.period.WindowOfSlot(res, slot))
			return err != nil || s.retention.MayBeMissing(res, slot, tenant, class)
		},
		Unrolled: func(ctx context.Context, tenant string, window int64) (slots []int64, err error) {
			missing, err := s.listUnrolled(ctx, tenant, window)
			for _, m := range missing {
				slots = append(slots, m.Slot)
			}
			return slots, err
		},
		Rollups: func(
			ctx context.Context, res rollup.Resolution, window int64, series *Series, shards, from, to int64,
		) (list []check.StoredRollup, unread bool, err error) {
			found, unread, err := s.readRollups(ctx, res, window, series, shards, from, to)
			for _, r := range found {
				list = append(list, check.StoredRollup{Version: r.version, Data: r.data})
			}
			return list, unread, err
		},
		EncodeRollup: appendOrEmpty,
		Waiting: func(ctx context.Context, partition int) (slots []int64, err error) {
			work, err := s.WaitingWork(ctx, partition)
			for _, w := range work {
				slots = append(slots, w.Slot)
			}
			return slots, err
		},
		IsEmpty: s.isEmptyPartition, CheckExemplar: checkExemplar,
		CheckLabels: func(ls labels.Labels) error { return checkLabels(ls, s.opts.maxLabelBounds()) },
		Days:        days,
	}, report)
}

// checkedDays recomputes the rollups of days for a check, which compares them with the stored rollups.
type checkedDays struct {
	s *Store
	// marked caches the commit records of a few rollup windows. classes caches the lists of classes of a few windows.
	marked  map[tenantWindow]map[format.CommitKey]bool
	classes map[tenantWindow]check.WindowClasses
}

// classesIn returns the lists of classes for the days of a window. It caches the lists of a few windows, because a
// check calls it for each shard, and the retention keeper doesn't cache that a day without rows has no list.
func (c *checkedDays) classesIn(ctx context.Context, tenant string, window int64) (check.WindowClasses, error) {
	at := tenantWindow{tenant, window}
	if found, ok := c.classes[at]; ok {
		return found, nil
	}
	period := c.s.period
	start, end := period.WindowSpan(window)
	first := period.RawWindowAt(start + 1)
	days := c.s.retention.NewDayLists(tenant)
	var lists []*retention.ClassList
	var of []int // index into lists, by raw window
	for w := first; w <= period.RawWindowAt(end); w++ {
		l, err := days.ListAt(ctx, period.WindowEnd(w))
		if err != nil {
			return check.WindowClasses{}, err
		}
		i := slices.Index(lists, l)
		if i < 0 {
			i, lists = len(lists), append(lists, l)
		}
		of = append(of, i)
	}
	found := check.WindowClasses{
		Lists: len(lists),
		Of: func(ls labels.Labels) string {
			by := make([]byte, len(lists))
			for i, l := range lists {
				by[i] = byte(l.ClassOfLabels(ls))
			}
			return string(by)
		},
		ListAt: func(startMS int64) int { return of[period.RawWindowAt(startMS+1)-first] },
	}
	if len(c.classes) >= 4 {
		clear(c.classes)
	}
	c.classes[at] = found
	return found, nil
}

// HourRollup computes a series' 1h chunk from its 5m chunks.
func (c *checkedDays) HourRollup(
	ctx context.Context, startMS, window int64, series *Series, class, shards int64,
) (chunk []byte, unread bool, err error) {
	first := c.s.period.SlotOf(startMS + 1)
	x := newRoller(newRowWriter(ctx, c.s, Work{Slot: first}), series.Tenant(), first)
	r := rollupTask{collectedSeries: &collectedSeries{series: series, class: class}}
	chunks, unread, err := c.s.readRollups(
		ctx, rollup.FiveMinutes, window, series, shards, startMS, startMS+format.DayMS-1,
	)
	if err != nil {
		return nil, false, err
	}
	err = x.keepUnreadable(x.hourRollup(), &r, x.make1h(&r, chunks, unread, &rollMemory{}))
	return r.chunk, r.unread, err
}

// CutShort reports whether a day's slots have commit records at 5m that are missing at 1h. This happens if an import of
// rollups failed after it wrote the 5m records. Such an import wasn't acknowledged. Repeating the import, or any other
// write to the day, recomputes the 1h chunks.
func (c *checkedDays) CutShort(ctx context.Context, tenant string, first, last int64) (bool, error) {
	fine, err := c.marks(ctx, tenant, c.s.period.WindowOfSlot(rollup.FiveMinutes, first))
	if err != nil {
		return false, err
	}
	coarse, err := c.marks(ctx, tenant, c.s.period.WindowOfSlot(rollup.OneHour, first))
	if err != nil {
		return false, err
	}
	for m := range fine {
		if m.Slot >= first && m.Slot <= last && !coarse[m] {
			return true, nil
		}
	}
	return false, nil
}

// TrimmedInPart reports whether some deletes haven't been applied yet to a metric's rollups, in slots of a day whose
// raw rows no longer exist. Cleaning removes the buckets from the 5m chunks, recomputes the 1h chunks, and then writes
// the slots' commit records. So while a pass runs, or after it was interrupted, the 5m and 1h rollups of a day may
// differ.
func (c *checkedDays) TrimmedInPart(ctx context.Context, tenant, metric string, first, last int64) (bool, error) {
	all, err := c.s.deletesOf(ctx, tenant)
	if err != nil {
		return false, err
	}
	window := c.s.period.WindowOfSlot(rollup.FiveMinutes, first)
	t := newTrim(ctx, c.s, tenant, window, all.InForce().OfMetric(metric))
	marks, err := c.marks(ctx, tenant, window)
	if err != nil {
		return false, err
	}
	for slot := first; slot <= last; slot++ {
		if len(t.deletes.InSlot(c.s.period, slot)) == 0 {
			continue
		}
		if finer, err := t.hasFinerRows(slot); err != nil {
			return false, err
		} else if !finer {
			t.slot(marks, slot)
		}
	}
	return len(t.missing) > 0, nil
}

// marks returns the commit records of a window. It caches the records of a few windows, because consecutive days are
// mostly in the same window.
func (c *checkedDays) marks(ctx context.Context, tenant string, window int64) (map[format.CommitKey]bool, error) {
	at := tenantWindow{tenant, window}
	if found, ok := c.marked[at]; ok {
		return found, nil
	}
	found, err := c.s.commitRecordsIn(ctx, tenant, window)
	if err != nil {
		return nil, err
	}
	if len(c.marked) >= 4 {
		clear(c.marked)
	}
	c.marked[at] = found
	return found, nil
}
