package check

import (
	"bytes"
	"cmp"
	"fmt"
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

// Rollups are compared with their sources: 5m chunks with the raw chunks of their slot, and 1h chunks with the 5m
// chunks of their day. Slots are skipped if they have staged samples or incomplete rollups.

// slotSeries identifies a series in a slot.
type slotSeries struct {
	slot int64
	id   format.SeriesID
}

func (a slotSeries) compare(b slotSeries) int {
	return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.slot, b.slot))
}

// slotChunks holds the sealed samples of a series in a slot.
type slotChunks struct {
	samples chunk.Samples
	chunks  int
	version uint64 // version of the rollup computed from the chunks
	class   int64
	unread  bool // a chunk is unreadable, so rollups may contain more samples
}

// unsettledSlots returns the slots of a raw window whose rollups may differ from its sealed samples.
func (c *checker) unsettledSlots(tenant string, window int64) (map[int64]bool, error) {
	slots := map[int64]bool{}
	for slot := range c.staged {
		slots[slot] = true
	}
	missing, err := c.unrolledSlots(tenant, window)
	for _, slot := range missing {
		slots[slot] = true
	}
	return slots, err
}

// unrolledSlots returns the slots of a raw window for which the window's rollups don't include all seals. It caches
// these slots.
func (c *checker) unrolledSlots(tenant string, window int64) ([]int64, error) {
	at := windowOf{tenant, window}
	if missing, ok := c.missing[at]; ok {
		return missing, nil
	}
	missing, err := c.env.Unrolled(c.ctx, tenant, window)
	if err == nil {
		c.missing[at] = missing
	}
	return missing, err
}

// checkRollups compares the 5m chunks of a metric with the raw chunks in sealed.
func (c *checker) checkRollups(tenant string, window int64, metric string, sealed map[slotSeries]*slotChunks) error {
	unsettled, err := c.unsettledSlots(tenant, window)
	if err != nil {
		return err
	}
	for _, at := range slices.SortedFunc(maps.Keys(sealed), slotSeries.compare) { // Neighbors are in the same page.
		have := sealed[at]
		if unsettled[at.slot] || have.unread || c.mayBeMissing(rollup.FiveMinutes, at.slot, tenant, have.class) {
			continue
		}
		series := head.MetricOf(tenant, metric).Series(at.id, labels.EmptyLabels())
		w := c.env.Period.WindowOfSlot(rollup.FiveMinutes, at.slot)
		shards, err := c.env.Shards(c.ctx, w, tenant, metric, c.addMissed)
		if err != nil {
			return err
		}
		start := c.env.Period.SlotStart(at.slot)
		stored, unread, err := c.env.Rollups(c.ctx, rollup.FiveMinutes, w, series, shards, start, start)
		if err != nil {
			return err
		}
		if unread {
			continue // The unreadable chunk is reported with its window.
		}
		have.samples.Normalize()
		var b rollup.Buckets
		if have.samples.Len() > 0 {
			rollup.AppendStored(&b, &have.samples, metric, rollup.FiveMinutes.Width())
		}
		want := c.env.EncodeRollup(&b, rollup.FiveMinutes, have.version)
		switch {
		case len(stored) > 0 && c.mayBeMissing(rollup.Raw, at.slot, tenant, have.class):
			// The rollup may have been computed from more raw chunks than remain.
		case len(stored) == 0:
			err = c.reportUnlessStaged(at.slot, at.slot,
				"r5m: %s, tenant %q, metric %q, series %x, start %s: the rollup of %d chunks is missing",
				c.windowName(w), tenant, metric, at.id, format.FormatTime(start), have.chunks)
		case stored[0].Version < have.version &&
			bytes.Equal(stored[0].Data, c.env.EncodeRollup(&b, rollup.FiveMinutes, stored[0].Version)):
			// A failed seal wrote a raw chunk after the next seal had read the slot. The next seal has sealed the same
			// samples, so the rollup is complete with a lower version.
		case !bytes.Equal(stored[0].Data, want):
			err = c.reportUnlessStaged(at.slot, at.slot,
				"r5m: %s, tenant %q, metric %q, series %x, start %s: version %d doesn't match the %d raw chunks",
				c.windowName(w), tenant, metric, at.id, format.FormatTime(start), stored[0].Version, have.chunks)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reportUnlessStaged reports a rollup that differs from its sources, unless the staging log has rows in any of the
// slots from first to last. It reads the staging log of these slots, because c.staged contains only listed slots. An
// unlisted slot has rows if a commit failed after the blobs of an old slot were durable. Their samples weren't
// acknowledged, but are sealed by a seal that listed the slot during the commit. If this seal then fails before it has
// written the rollups, no process repeats it until other samples of the slot are staged.
func (c *checker) reportUnlessStaged(first, last int64, problem string, args ...any) error {
	for slot := first; slot <= last; slot++ {
		for p := range c.env.Period.OfSlot(slot).Partitions {
			empty, err := c.env.IsEmpty(c.ctx, engine.Stage, format.StagePartition(slot, p))
			if err != nil || !empty {
				return err
			}
		}
	}
	c.report(problem, args...)
	return nil
}

// checkRollupWindow checks the rows of a rollup window.
func (c *checker) checkRollupWindow(tenant string, window int64, done func(done, all int)) error {
	c.stats.Windows++
	names, err := c.env.Metrics(c.ctx, tenant, window)
	if err != nil {
		return err
	}
	for i, metric := range names {
		done(i, len(names))
		c.stats.Metrics++
		shards, err := c.env.Shards(c.ctx, window, tenant, metric, c.addMissed)
		if err != nil {
			return err
		}
		known := map[format.SeriesID]string{}
		for at := range c.env.Places(tenant, window, shards) {
			if err := c.checkRollupShard(tenant, window, metric, at, known); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) checkRollupShard(tenant string, window int64, metric string, in format.ClassShard,
	known map[format.SeriesID]string) error {
	t := format.TableOf(format.ResolutionOf(window))
	classes, err := c.env.ClassesIn(c.ctx, tenant, window)
	if err != nil {
		return err
	}
	var builder labels.ScratchBuilder
	var b rollup.Buckets
	gaps := c.gaps
	for row, err := range c.scan(engine.Range{Table: t,
		Partition: format.SeriesPartition(window, tenant, metric, in)}) {
		if err != nil {
			return err
		}
		k := row.Clustering
		id, start := format.SeriesID([]byte(k[1].Text)), k[2].Int
		at := func(text string, args ...any) {
			c.report("%s: %s, tenant %q, metric %q, class %d, shard %d, series %x%s: %s", t.Name,
				c.windowName(window), tenant, metric, in.Class(), in.Shard(), id, startOf(k[0].Int, start),
				fmt.Sprintf(text, args...))
		}
		switch k[0].Int {
		case format.KindLabels:
			c.stats.Series++
			ls, err := format.ParseLabels(row.Value, metric, &builder)
			known[id] = classes.Of(ls)
			if err != nil {
				known[id] = strings.Repeat(string(byte(in.Class())), classes.Lists)
				at("%v", err)
			} else if format.SeriesIDOf(ls) != id {
				at("the labels %s belong to series %x", ls, format.SeriesIDOf(ls))
			}
		case format.KindChunk:
			c.stats.Rollups++
			c.stats.RollupBytes += int64(len(row.Value))
			if by, ok := known[id]; !ok && c.gaps == gaps {
				at("the chunk belongs to a series without labels")
			} else if !ok {
				// Its labels are unreadable, which is reported.
			} else if want := int64(by[classes.ListAt(start)]); want != in.Class() {
				at("the series is in class %d on that day", want)
			}
			b.Reset()
			if err := rollup.Decode(row.Value, rollup.AllColumns, &b); err != nil {
				at("%v", err)
			} else if b.Len() > 0 && (c.env.Period.WindowAt(format.ResolutionOf(window), b.End[0]) != window ||
				b.Start[0] < start) {
				at("its buckets are in the wrong row")
			} else if t == engine.R1h {
				if err := c.reportDamage(c.checkDay(tenant, metric, id, start, in.Class())); err != nil {
					return err
				}
			}
		default:
			at("unknown row kind %d", k[0].Int)
		}
	}
	return c.checkFilters(t, format.SeriesPartition(window, tenant, metric, in))
}

// checkDay compares a 1h chunk with the result of rolling up the day's 5m chunks.
func (c *checker) checkDay(tenant, metric string, id format.SeriesID, start, class int64) error {
	p := c.env.Period
	first, last := p.SlotOf(start+1), p.SlotOf(start+format.DayMS)
	for slot := first; slot <= last; slot++ {
		if c.staged[slot] || c.mayBeMissing(rollup.FiveMinutes, slot, tenant, class) {
			return nil
		}
	}
	if missing, err := c.unrolledSlots(tenant, p.RawWindowOfSlot(first)); err != nil || len(missing) > 0 {
		return err
	}
	if cut, err := c.env.Days.CutShort(c.ctx, tenant, first, last); err != nil || cut {
		return err
	}
	series := head.MetricOf(tenant, metric).Series(id, labels.EmptyLabels())
	w := p.WindowOfSlot(rollup.FiveMinutes, first)
	shards, err := c.env.Shards(c.ctx, w, tenant, metric, c.addMissed)
	if err != nil {
		return err
	}
	chunk, unread, err := c.env.Days.HourRollup(c.ctx, start, w, series, class, shards)
	if err != nil || unread {
		return err // Unreadable chunks are reported with their window.
	}
	stored, err := c.env.Shards(c.ctx, p.WindowOfSlot(rollup.OneHour, first), tenant, metric, c.addMissed)
	if err != nil {
		return err
	}
	newest, _, err := c.env.Rollups(c.ctx, rollup.OneHour, p.WindowOfSlot(rollup.OneHour, first),
		series, stored, start, start)
	if err != nil {
		return err
	}
	if len(newest) == 0 || !bytes.Equal(newest[0].Data, chunk) {
		if part, err := c.env.Days.TrimmedInPart(c.ctx, tenant, metric, first, last); err != nil || part {
			return err
		}
		return c.reportUnlessStaged(first, last,
			"r1h: tenant %q, metric %q, series %x, start %d: doesn't match the 5m rollups of the day",
			tenant, metric, id, start)
	}
	return nil
}

// addSealed adds a raw chunk to sealed, to be compared with rollups. ds are the deletes that apply to its series.
func (c *checker) addSealed(sealed map[slotSeries]*slotChunks, row engine.Row, class int64, ds format.Tombstones) {
	at := slotSeries{slot: c.env.Period.SlotOf(row.Clustering[1].Int + 1)}
	copy(at.id[:], strings.Clone(row.Clustering[2].Text))
	if sealed[at] == nil {
		sealed[at] = &slotChunks{}
	}
	ds = ds.InSlot(c.env.Period, at.slot)
	raw, err := format.DecodeRawChunk(row.Value, ds, &sealed[at].samples)
	sealed[at].unread = sealed[at].unread || err != nil
	sealed[at].chunks++
	sealed[at].version += raw.Exempt.Weight(ds)
	sealed[at].class = class
}

// mayBeMissing reports whether rows of a class may have expired or been deleted in the window that contains a slot.
func (c *checker) mayBeMissing(res rollup.Resolution, slot int64, tenant string, class int64) bool {
	return c.env.IsGone(c.ctx, res, slot, tenant, class)
}
