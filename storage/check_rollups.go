package storage

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Rollups are checked against what they were computed from: 5m chunks against the raw chunks of their slot, 1h
// chunks against the 5m chunks of their day. What has staged samples, or wasn't rolled up yet, isn't compared.

// slotSeries is what a series has in a slot.
type slotSeries struct {
	slot int64
	id   format.SeriesID
}

func (a slotSeries) compare(b slotSeries) int {
	return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.slot, b.slot))
}

// slotChunks are the sealed chunks of a series in a slot.
type slotChunks struct {
	samples chunk.Samples
	chunks  int
	version uint64 // of the rollups that they make
	class   int64
	unread  bool // one can't be read, which was reported: rollups may have more
}

// unsettled returns the slots of a window whose rollups may differ from its sealed samples.
func (c *checker) unsettled(tenant string, window int64) (map[int64]bool, error) {
	slots := map[int64]bool{}
	for slot := range c.staged {
		slots[slot] = true
	}
	missing, err := c.unrolled(tenant, window)
	for _, m := range missing {
		slots[m.slot] = true
	}
	return slots, err
}

// unrolled is Store.unrolled, asked once a window.
func (c *checker) unrolled(tenant string, window int64) ([]markAt, error) {
	at := tenantWindow{tenant, window}
	if missing, ok := c.missing[at]; ok {
		return missing, nil
	}
	missing, err := c.s.unrolled(c.ctx, tenant, window)
	if err == nil {
		c.missing[at] = missing
	}
	return missing, err
}

// cutShort reports whether slots of a day have marks at 5 minutes that the day lacks at an hour: an import of rollups failed between the
// two. It wasn't acknowledged, and whoever repeats it, or writes anything else into the day, makes the day's 1h chunks anew.
func (c *checker) cutShort(tenant string, first, last int64) (bool, error) {
	fine, err := c.marks(tenant, c.s.period.WindowOfSlot(rollup.FiveMinutes, first))
	if err != nil {
		return false, err
	}
	coarse, err := c.marks(tenant, c.s.period.WindowOfSlot(rollup.OneHour, first))
	if err != nil {
		return false, err
	}
	for m := range fine {
		if m.slot >= first && m.slot <= last && !coarse[m] {
			return true, nil
		}
	}
	return false, nil
}

// trimmedInPart reports whether deleted buckets are still to be taken out of a metric in slots of a day whose samples are gone: cleaning takes them out of
// the 5m chunks, makes the 1h chunks anew, and then marks the slots, so a pass that is under way, or was cut short, leaves days that differ.
func (c *checker) trimmedInPart(tenant, metric string, first, last int64) (bool, error) {
	all, err := c.deletesOf(tenant)
	if err != nil {
		return false, err
	}
	window := c.s.period.WindowOfSlot(rollup.FiveMinutes, first)
	t := newTrim(c.ctx, c.s, tenant, window, all.InForce().OfMetric(metric))
	marks, err := c.marks(tenant, window)
	if err != nil {
		return false, err
	}
	for slot := first; slot <= last; slot++ {
		if len(t.deletes.InSlot(c.s.period, slot)) == 0 {
			continue
		}
		if finer, err := t.hasFiner(slot); err != nil {
			return false, err
		} else if !finer {
			t.slot(marks, slot)
		}
	}
	return len(t.missing) > 0, nil
}

// marks remembers the marks of the windows that were asked for last, which those of other days mostly are of, too.
func (c *checker) marks(tenant string, window int64) (map[markAt]bool, error) {
	at := tenantWindow{tenant, window}
	if found, ok := c.marked[at]; ok {
		return found, nil
	}
	found, err := c.s.marksIn(c.ctx, tenant, window)
	if err != nil {
		return nil, err
	}
	if len(c.marked) >= 4 {
		clear(c.marked)
	}
	c.marked[at] = found
	return found, nil
}

// rollupsOf compares the 5m chunks of a metric with what of raw chunks is in sealed.
func (c *checker) rollupsOf(tenant string, window int64, metric string, sealed map[slotSeries]*slotChunks) error {
	unsettled, err := c.unsettled(tenant, window)
	if err != nil {
		return err
	}
	for _, at := range slices.SortedFunc(maps.Keys(sealed), slotSeries.compare) { // Neighbours stand in one page.
		have := sealed[at]
		if unsettled[at.slot] || have.unread || c.isGone(rollup.FiveMinutes, at.slot, tenant, have.class) {
			continue
		}
		series := head.MetricOf(tenant, metric).Series(at.id, labels.EmptyLabels())
		w := c.s.period.WindowOfSlot(rollup.FiveMinutes, at.slot)
		shards, err := c.s.shardsAround(c.ctx, w, tenant, metric, c.missed)
		if err != nil {
			return err
		}
		start := c.s.period.SlotStart(at.slot)
		stored, unread, err := c.s.rollups(c.ctx, rollup.FiveMinutes, w, series, shards, start, start)
		if err != nil {
			return err
		}
		if unread {
			continue // It is reported with its window.
		}
		have.samples.Normalize()
		var b rollup.Buckets
		if have.samples.Len() > 0 {
			rollup.AppendEvery(&b, &have.samples, rollup.FiveMinutes.Width())
		}
		want := appendOrEmpty(&b, rollup.FiveMinutes, have.version)
		switch {
		case len(stored) > 0 && c.isGone(rollup.Raw, at.slot, tenant, have.class):
			// The raw chunks that are left may not be all that the rollup was made of.
		case len(stored) == 0:
			err = c.reportUnlessStaged(at.slot, at.slot, "r5m: window %d, tenant %q, metric %q, series %x, start %d: the rollup of %d chunks is missing", w, tenant, metric, at.id, start, have.chunks)
		case stored[0].version < have.version && bytes.Equal(stored[0].data, appendOrEmpty(&b, rollup.FiveMinutes, stored[0].version)):
			// A raw chunk of a seal that failed came after the next seal had read the slot: its samples are among those of that seal's.
		case !bytes.Equal(stored[0].data, want):
			err = c.reportUnlessStaged(at.slot, at.slot, "r5m: window %d, tenant %q, metric %q, series %x, start %d: version %d doesn't match the %d raw chunks", w, tenant, metric, at.id, start, stored[0].version, have.chunks)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reportUnlessStaged reports a rollup that differs from what it is computed from, unless the stage holds rows of any of the slots from first to
// last. staged lacks the slots that aren't listed: a commit that failed after its blobs of an old slot were durable leaves
// such rows, whose samples weren't acknowledged. A seal that listed the slot while that commit was under way seals them all the same; if it fails
// before their rollups are written, none repeats it until something else of the slot is staged.
func (c *checker) reportUnlessStaged(first, last int64, problem string, args ...any) error {
	for slot := first; slot <= last; slot++ {
		for p := range c.s.period.OfSlot(slot).Partitions {
			empty, err := c.s.empty(c.ctx, engine.Stage, format.StagePartition(slot, p))
			if err != nil || !empty {
				return err
			}
		}
	}
	c.report(problem, args...)
	return nil
}

// rollupWindow checks the rows of a window of rollups.
func (c *checker) rollupWindow(tenant string, window int64, done func(done, all int)) error {
	c.stats.Windows++
	names, err := c.s.metricsIn(c.ctx, tenant, window)
	if err != nil {
		return err
	}
	for i, metric := range names {
		done(i, len(names))
		shards, err := c.s.shardsAround(c.ctx, window, tenant, metric, c.missed)
		if err != nil {
			return err
		}
		known := map[format.SeriesID]string{}
		for at := range c.s.standingPlaces(tenantWindow{tenant, window}, shards) {
			if err := c.rollupShard(tenant, window, metric, at, known); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) rollupShard(tenant string, window int64, metric string, in format.ClassShard, known map[format.SeriesID]string) error {
	t := format.TableOf(format.ResolutionOf(window))
	lists, listAt, err := c.listsOf(tenant, window)
	if err != nil {
		return err
	}
	var builder labels.ScratchBuilder
	var b rollup.Buckets
	for row, err := range c.scan(engine.Range{Table: t, Partition: format.SeriesPartition(window, tenant, metric, in)}) {
		if err != nil {
			return err
		}
		k := row.Clustering
		id, start := format.SeriesID([]byte(k[1].Text)), k[2].Int
		at := func(format string, args ...any) {
			c.report(t.Name+": window %d, tenant %q, metric %q, class %d, shard %d, series %x, start %d: "+format, append([]any{window, tenant, metric, in.Class(), in.Shard(), id, start}, args...)...)
		}
		switch k[0].Int {
		case format.KindLabels:
			ls, err := format.ParseLabels(row.Value, metric, &builder)
			known[id] = classesBy(lists, ls)
			if err != nil {
				known[id] = strings.Repeat(string(byte(in.Class())), len(lists))
				at("%v", err)
			} else if format.SeriesIDOf(ls) != id {
				at("the labels %s belong to series %x", ls, format.SeriesIDOf(ls))
			}
		case format.KindChunk:
			c.stats.Rollups++
			c.stats.RollupBytes += int64(len(row.Value))
			if by, ok := known[id]; !ok {
				at("the chunk belongs to a series without labels")
			} else if want := int64(by[listAt(start)]); want != in.Class() {
				at("the series is in class %d on that day", want)
			}
			b.Reset()
			if err := rollup.Decode(row.Value, rollup.AllColumns, &b); err != nil {
				at("%v", err)
			} else if b.Len() > 0 && (c.s.period.WindowAt(format.ResolutionOf(window), b.End[0]) != window || b.Start[0] < start) {
				at("its buckets are in the wrong row")
			} else if t == engine.R1h {
				if err := c.goOn(c.day(tenant, metric, id, start, in.Class())); err != nil {
					return err
				}
			}
		default:
			at("unknown row kind %d", k[0].Int)
		}
	}
	return c.filters(t, format.SeriesPartition(window, tenant, metric, in))
}

// day compares a 1h chunk with what the 5m chunks of its day make.
func (c *checker) day(tenant, metric string, id format.SeriesID, start, class int64) error {
	p := c.s.period
	first, last := p.SlotOf(start+1), p.SlotOf(start+format.DayMS)
	for slot := first; slot <= last; slot++ {
		if c.staged[slot] || c.isGone(rollup.FiveMinutes, slot, tenant, class) {
			return nil
		}
	}
	if missing, err := c.unrolled(tenant, p.RawWindowOfSlot(first)); err != nil || len(missing) > 0 {
		return err
	}
	if cut, err := c.cutShort(tenant, first, last); err != nil || cut {
		return err
	}
	series := head.MetricOf(tenant, metric).Series(id, labels.EmptyLabels())
	w := p.WindowOfSlot(rollup.FiveMinutes, first)
	shards, err := c.s.shardsAround(c.ctx, w, tenant, metric, c.missed)
	if err != nil {
		return err
	}
	x := newRoller(newRowWriter(c.ctx, c.s, Work{Slot: first}), tenant, first)
	r := rollupTask{collected: &collected{series: series, class: class}}
	chunks, unread, err := c.s.rollups(c.ctx, rollup.FiveMinutes, w, series, shards, start, start+format.DayMS-1)
	if err != nil {
		return err
	}
	if err := x.settle(x.hourRollup(), &r, x.make1h(&r, chunks, unread, &rollMemory{})); err != nil {
		return err
	}
	if r.unread {
		return nil // They are reported with their window; the 1h chunk may have more.
	}
	stored, err := c.s.shardsAround(c.ctx, p.WindowOfSlot(rollup.OneHour, first), tenant, metric, c.missed)
	if err != nil {
		return err
	}
	newest, _, err := c.s.rollups(c.ctx, rollup.OneHour, p.WindowOfSlot(rollup.OneHour, first), series, stored, start, start)
	if err != nil {
		return err
	}
	if len(newest) == 0 || !bytes.Equal(newest[0].data, r.chunk) {
		if part, err := c.trimmedInPart(tenant, metric, first, last); err != nil || part {
			return err
		}
		return c.reportUnlessStaged(first, last, "r1h: tenant %q, metric %q, series %x, start %d: doesn't match the 5m rollups of the day", tenant, metric, id, start)
	}
	return nil
}

// addSealed keeps a chunk to compare rollups with; ds are the deletes of its series.
func (c *checker) addSealed(sealed map[slotSeries]*slotChunks, row engine.Row, class int64, ds format.Tombstones) {
	at := slotSeries{slot: c.s.period.SlotOf(row.Clustering[1].Int + 1)}
	copy(at.id[:], strings.Clone(row.Clustering[2].Text))
	if sealed[at] == nil {
		sealed[at] = &slotChunks{}
	}
	ds = ds.InSlot(c.s.period, at.slot)
	raw, err := format.DecodeRawChunk(row.Value, ds, &sealed[at].samples)
	sealed[at].unread = sealed[at].unread || err != nil
	sealed[at].chunks++
	sealed[at].version += raw.Exempt.Weight(ds)
	sealed[at].class = class
}

// isGone reports whether the rows of a class may be gone from the window that holds a slot.
func (c *checker) isGone(res rollup.Resolution, slot int64, tenant string, class int64) bool {
	err := c.s.learnExpiries(c.ctx, tenantWindow{tenant, c.s.period.WindowOfSlot(res, slot)})
	return err != nil || c.s.isGone(res, slot, tenant, class)
}

// listsOf returns the lists of classes of the days of a window, and a function that returns the index of the one of a time.
func (c *checker) listsOf(tenant string, window int64) (lists []*classList, at func(start int64) int, err error) {
	p := c.s.period
	start, end := p.WindowSpan(window)
	first := p.RawWindowAt(start + 1)
	var of []int // by window of raw rows
	for w := first; w <= p.RawWindowAt(end); w++ {
		l, _, err := c.s.classesOn(c.ctx, tenant, w)
		if err != nil {
			return nil, nil, err
		}
		i := slices.Index(lists, l)
		if i < 0 {
			i, lists = len(lists), append(lists, l)
		}
		of = append(of, i)
	}
	return lists, func(start int64) int { return of[p.RawWindowAt(start+1)-first] }, nil
}

// classesBy returns the classes of a series by each of the lists, a byte each.
func classesBy(lists []*classList, ls labels.Labels) string {
	by := make([]byte, len(lists))
	for i, l := range lists {
		by[i] = byte(l.find(ls))
	}
	return string(by)
}
