package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// trim takes buckets of deleted samples out of a window of rollups.
type trim struct {
	s      *Store
	ctx    context.Context
	tenant string
	window int64
	res    rollup.Resolution
	// waiting are the deletes that chunks were made without, by the chunks' starts; missing are their marks.
	waiting map[int64]format.Tombstones
	missing map[format.CommitKey]bool
	// listed and marked are of finer windows that were asked for, and their slots that have marks.
	listed  map[int64]bool
	marked  map[int64]map[int64]bool
	deletes format.Tombstones
	// unread takes those that are about chunks which can't be read: slots get no marks of these. nil: they get marks
	// all the same.
	unread unreadDeletes
}

// errTrimmed means that another process has trimmed the same slots meanwhile, and may have brought rollups since, which
// the deletes aren't about.
var errTrimmed = fmt.Errorf("%w: another process has already removed the deleted samples; try again",
	engine.ErrUnavailable)

// trimTries is how often a window is trimmed where other processes do so meanwhile.
const trimTries = 5

// trimWindow takes buckets out of the rollups of the slots whose samples are gone, where includes returns true.
func (s *Store) trimWindow(
	ctx context.Context, tenant string, window int64, ds format.Tombstones, unread unreadDeletes,
	includes func(slot int64) bool,
) (err error) {
	end, err := s.member.Filling.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	// A delete that was removed meanwhile must not delete samples that came later.
	standing, err := s.deletesOf(ctx, tenant)
	if err != nil {
		return err
	}
	ds = ds.Filter(func(d *format.Tombstone) bool { return standing.Has(d.ID) })
	for range trimTries {
		if err = s.trimOnce(ctx, tenant, window, ds, unread, includes); !errors.Is(err, errTrimmed) {
			break
		}
	}
	return err
}

// trimEnds applies a delete to the buckets that its ends cut, where queries find no samples of them, or soon won't. The
// delete itself hides the buckets between, but of the hours that it cuts only buckets of 5 minutes show the rest.
func (s *Store) trimEnds(ctx context.Context, tenant string, d *format.Tombstone) error {
	for _, slot := range slices.Compact([]int64{s.period.SlotOf(d.Start), s.period.SlotOf(d.End)}) {
		soon, err := s.retention.HidesSoon(ctx, tenant, slot)
		if err != nil {
			return err
		}
		if !soon {
			continue // Samples answer, until the buckets are made anew in the background.
		}
		if _, err := s.rollWindow(ctx, tenant, s.period.WindowOfSlot(rollup.Raw, slot), func() {}); err != nil {
			return err
		}
		for _, res := range rollup.Resolutions {
			err := s.trimWindow(ctx, tenant, s.period.WindowOfSlot(res, slot), format.Tombstones{d}, unreadDeletes{},
				func(at int64) bool { return at == slot })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) trimOnce(
	ctx context.Context, tenant string, window int64, ds format.Tombstones, unread unreadDeletes,
	includes func(slot int64) bool,
) error {
	t := newTrim(ctx, s, tenant, window, ds)
	t.unread = unread
	marks, err := s.commitRecordsIn(ctx, tenant, window)
	if err != nil {
		return err
	}
	for m := range marks {
		if !includes(m.Slot) {
			continue
		}
		if finer, err := t.hasFinerRows(m.Slot); err != nil {
			return err
		} else if !finer {
			t.slot(marks, m.Slot)
		}
	}
	return t.run()
}

func newTrim(ctx context.Context, s *Store, tenant string, window int64, ds format.Tombstones) *trim {
	return &trim{
		s: s, ctx: ctx, tenant: tenant, window: window, res: format.ResolutionOf(window),
		waiting: map[int64]format.Tombstones{}, missing: map[format.CommitKey]bool{}, listed: map[int64]bool{},
		marked: map[int64]map[int64]bool{}, deletes: ds,
	}
}

// slot adds the deletes of which a slot has no marks. Those that are only announced get marks, and nothing is taken out
// for them.
func (t *trim) slot(marks map[format.CommitKey]bool, slot int64) {
	start := t.s.destinationsOf(slot)[t.res].start
	for _, d := range t.deletes.InSlot(t.s.period, slot) {
		at := d.CommitKey(slot)
		if marks[at] {
			continue
		}
		t.missing[at] = true
		if !d.Announced {
			t.wait(start, d)
		}
	}
}

// isMissing reports whether a slot has no mark of a delete.
func (t *trim) isMissing(d *format.Tombstone) bool {
	for at := range t.missing {
		if at.ID == d.ID {
			return true
		}
	}
	return false
}

func (t *trim) run() error {
	if len(t.missing) == 0 {
		return nil
	}
	names, hourly, err := t.metrics()
	if err != nil {
		return err
	}
	for _, metric := range names {
		if err := t.metric(metric, hourly); err != nil {
			return err
		}
	}
	return t.mark()
}

// metrics lists the metrics of the window. Where some series may have only buckets of an hour, though others have those
// of 5 minutes, it also returns the windows of the former, and lists their metrics, too.
func (t *trim) metrics() (names []string, hourly []int64, err error) {
	if t.res == rollup.FiveMinutes && !t.s.retention.DropsTogether() {
		for m := range t.missing {
			if w := t.s.period.WindowOfSlot(rollup.OneHour, m.Slot); !slices.Contains(hourly, w) {
				hourly = append(hourly, w)
			}
		}
	}
	for _, w := range append([]int64{t.window}, hourly...) {
		more, err := t.s.metricsIn(t.ctx, t.tenant, w)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, more...)
	}
	slices.Sort(names)
	return slices.Compact(names), hourly, nil
}

// metric trims the rows of a metric: buckets of an hour are made of those of 5 minutes, so these are trimmed first.
func (t *trim) metric(metric string, hourly []int64) error {
	ds := t.deletes.InForce()
	var list []collectedSeries
	known, of := map[string]bool{}, head.MetricOf(t.tenant, metric)
	add := func(_ engine.Key, _ format.ClassShard, series map[string]deletedSeries) error {
		for id, x := range series {
			if !known[id] {
				known[id] = true
				list = append(list, collectedSeries{series: of.Series(format.SeriesIDFrom(id), x.labels)})
			}
		}
		return nil
	}
	err := t.s.eachDeletedOf(t.ctx, t.tenant, t.window, metric, ds,
		func(part engine.Key, at format.ClassShard, series map[string]deletedSeries) error {
			if err := t.partition(part, at, series); err != nil || t.res == rollup.OneHour || len(hourly) > 0 {
				return err
			}
			return add(part, at, series)
		})
	if err != nil {
		return err
	}
	for _, w := range hourly {
		if err := t.s.eachDeletedOf(t.ctx, t.tenant, w, metric, ds, add); err != nil {
			return err
		}
	}
	return t.hours(metric, list)
}

func (t *trim) wait(start int64, d *format.Tombstone) {
	if !t.waiting[start].Has(d.ID) {
		t.waiting[start] = append(t.waiting[start], d)
	}
}

// hasFinerRows reports whether there may be samples of a slot, or finer rollups than these: its window is listed (a seal
// lists it before it marks anything, and the marks were read before), and the slot has marks there, or rows of a seal
// that is about to mark it. Nothing may be left of a window that is listed where rows vanish by themselves, and nothing
// of a slot where the samples of the window are of other classes.
func (t *trim) hasFinerRows(slot int64) (bool, error) {
	for res := rollup.Raw; res < t.res; res++ {
		window := t.s.period.WindowOfSlot(res, slot)
		listed, known := t.listed[window]
		if !known {
			found, err := t.s.readableWindows(t.ctx, t.tenant, window, window)
			if err != nil {
				return false, err
			}
			listed = len(found) > 0
			t.listed[window] = listed
		}
		if listed {
			var err error
			if listed, err = t.stands(res, window, slot); err != nil {
				return false, err
			}
		}
		if listed {
			return true, nil
		}
	}
	return false, nil
}

// stands reports whether a slot has marks in a window, or samples.
func (t *trim) stands(res rollup.Resolution, window, slot int64) (bool, error) {
	marks, known := t.marked[window]
	if !known {
		marks = map[int64]bool{}
		found, err := t.s.commitRecordsIn(t.ctx, t.tenant, window)
		if err != nil {
			return false, err
		}
		for m := range found {
			marks[m.Slot] = true
		}
		t.marked[window] = marks
	}
	if marks[slot] || res != rollup.Raw {
		return marks[slot], nil
	}
	names, err := t.s.metricsIn(t.ctx, t.tenant, window)
	if err != nil {
		return false, err
	}
	key := engine.Key{engine.Int(format.KindChunk), engine.Int(t.s.period.SlotStart(slot))}
	for _, metric := range names {
		if len(t.deletes.OfMetric(metric)) == 0 {
			continue
		}
		shards, err := t.s.readShards(t.ctx, window, t.tenant, metric)
		if err != nil {
			return false, err
		}
		for at := range t.s.unexpiredShards(tenantWindow{t.tenant, window}, shards) {
			unread := false
			for _, err := range t.s.rows.ScanReadable(t.ctx, engine.Range{
				Table: engine.Raw, Partition: format.SeriesPartition(window, t.tenant, metric, at), From: key, To: key,
				KeysOnly: true, Limit: 1,
			}, func(paged.Unreadable) { unread = true }) {
				return err == nil, err
			}
			if unread {
				return true, nil
			}
		}
	}
	return false, nil
}

// partition trims the chunks of one partition.
func (t *trim) partition(part engine.Key, at format.ClassShard, series map[string]deletedSeries) error {
	c, err := t.s.newCleaner(t.ctx, t.tenant, t.window, part, at.Class())
	if errors.Is(err, retention.ErrWindowOver) {
		return nil
	}
	if err != nil {
		return err
	}
	c.unread = t.unread
	left := t.s.unreadReporter(c.batch.Table, part, func(u paged.Unreadable) { t.left(u, series) })
	for row, err := range t.s.rows.ScanReadable(t.ctx, engine.Range{
		Table: c.batch.Table, Partition: part, From: engine.Key{engine.Int(format.KindChunk)},
		To: engine.Key{engine.Int(format.KindChunk)},
	}, left) {
		if err != nil {
			return fmt.Errorf("storage: trimming window %d of tenant %q: %w", t.window, t.tenant, err)
		}
		id, start := row.Clustering[1].Text, row.Clustering[2].Int
		x, ok := series[id]
		if !ok {
			continue
		}
		of := t.waiting[start].Filter(func(d *format.Tombstone) bool { return x.deletes.Has(d.ID) })
		t.buckets(c, row, of)
		if c.bytes < engine.MaxBatch/2 {
			continue
		}
		if err := t.flush(c); err != nil {
			return err
		}
	}
	return t.flush(c)
}

// left notes chunks that can't be read.
func (t *trim) left(u paged.Unreadable, series map[string]deletedSeries) {
	for id, x := range series {
		for start, ds := range t.waiting {
			if u.Has(id, start, start) {
				t.unread.add(ds.Filter(func(d *format.Tombstone) bool { return x.deletes.Has(d.ID) }), u.Err)
			}
		}
	}
}

// flush writes trimmed rows. Another process that brings rollups marks the slots as trimmed before. So rows that were
// read before the slots have such marks hold nothing that it brought, and its rows have a higher version than those
// written here, however late these come.
func (t *trim) flush(c *cleaner) error {
	if len(c.batch.Mutations) == 0 {
		return nil
	}
	if err := t.unmarked(); err != nil {
		return err
	}
	return c.flush(t.ctx)
}

// unmarked returns errTrimmed if another process has marked the slots as trimmed.
func (t *trim) unmarked() error {
	if !t.s.opts.Shared {
		return nil
	}
	marks, err := t.s.commitRecordsIn(t.ctx, t.tenant, t.window)
	if err != nil {
		return err
	}
	for at := range t.missing {
		if marks[at] {
			return errTrimmed
		}
	}
	return nil
}

// hours rebuilds the 1h chunks of series of a metric, in the days of the slots.
func (t *trim) hours(metric string, list []collectedSeries) error {
	days := map[int64]map[int64]format.Tombstones{} // their deletes, by slot
	for m := range t.missing {
		day := t.s.period.DayOf(m.Slot)
		if days[day] == nil {
			days[day] = map[int64]format.Tombstones{}
		}
		days[day][m.Slot] = append(days[day][m.Slot], t.deletes.InForce().Filter(func(d *format.Tombstone) bool {
			return d.ID == m.ID
		})...)
	}
	for _, due := range days {
		for part := range slices.Chunk(list, rollSeries) {
			if err := t.hoursOf(metric, due, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// hoursOf rebuilds the 1h chunks of some series of a day, of which due are the deletes.
func (t *trim) hoursOf(metric string, due map[int64]format.Tombstones, part []collectedSeries) error {
	var slot int64
	for slot = range due { // All are of the same day.
		break
	}
	marks, err := t.s.commitRecordsIn(t.ctx, t.tenant, t.s.period.WindowOfSlot(rollup.OneHour, slot))
	if err != nil {
		return err
	}
	w := newRowWriter(t.ctx, t.s, Work{Slot: slot})
	w.remade, w.before = true, t.unmarked
	x := newRoller(w, t.tenant, slot)
	x.due, x.unread = due, t.unread
	classes, _, err := t.s.retention.ClassesOn(t.ctx, t.tenant, t.s.period.WindowOfSlot(rollup.Raw, slot))
	if err != nil {
		return err
	}
	if err := x.setShards(metric, part); err != nil {
		return err
	}
	for i := range part {
		part[i].class = classes.ClassOf(part[i].series)
		if len(x.hourRollup().dueDeletes(part[i].series)) > 0 {
			x.series = append(x.series, &part[i])
		}
	}
	// Hours without 5m rollups may have come after a delete that the 1h rollups were cleared of.
	x.due = make(map[int64]format.Tombstones, len(due))
	for slot, ds := range due {
		x.due[slot] = ds.Filter(func(d *format.Tombstone) bool { return !marks[d.CommitKey(slot)] })
	}
	return x.writeAll()
}

// mark marks the slots as trimmed, at all coarser resolutions first.
func (t *trim) mark() error {
	for m := range t.missing {
		// All windows before any mark: one with marks whose finer ones aren't listed has lost those.
		for res := t.res; res <= rollup.OneHour; res++ {
			if err := t.s.listWindow(t.ctx, t.tenant, t.s.period.WindowOfSlot(res, m.Slot)); err != nil {
				return err
			}
		}
	}
	for m := range t.missing {
		if t.unread[m.ID] != nil {
			continue
		}
		for res := rollup.OneHour; res >= t.res; res-- {
			if err := t.s.writeCommitRecords(
				t.ctx, t.tenant, res, format.CommitMaintenance, []format.CommitKey{m},
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// buckets takes whole buckets out of a row of rollups: of slots whose rollups were made without the delete.
func (t *trim) buckets(c *cleaner, row engine.Row, ds format.Tombstones) {
	if len(ds) == 0 {
		return
	}
	var b rollup.Buckets
	info, err := rollup.Header(row.Value)
	if err == nil {
		err = rollup.Decode(row.Value, rollup.AllColumns, &b)
	}
	if err != nil {
		c.reportCorrupt(row.Clustering[1].Text, row.Clustering[2].Int, ds, err)
		return
	}
	due := func(end int64) format.Tombstones {
		return ds.Filter(func(d *format.Tombstone) bool { return t.missing[d.CommitKey(t.s.period.SlotOf(end))] })
	}
	if !format.TrimBuckets(&b, due) {
		return
	}
	k := row.Clustering
	c.put(engine.Key{k[0], engine.Text(strings.Clone(k[1].Text)), k[2]},
		t.s.timestampOf(t.res, k[2].Int, info.Version+1), appendOrEmpty(&b, t.res, info.Version+1))
}
