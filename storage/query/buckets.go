package query

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// BucketBuffers is the scratch memory of SelectedSeries.Buckets. It can be reused for the next series.
type BucketBuffers struct {
	samples chunk.Samples
	rolled  rollup.Buckets
	cells   rollup.Buckets
}

// errHasDeleted warns that the result includes deleted samples. Their buckets also contain other samples, and couldn't
// be recomputed.
var errHasDeleted = errors.New(
	"storage: the result includes deleted samples: their raw samples had expired before they were deleted, or before " +
		"the delete was applied to rollups, and their buckets also contain other samples",
)

// errAggregated warns that the result depends on estimated columns of imported aggregates.
var errAggregated = errors.New(
	"storage: the result depends on first and last values of buckets that were imported from downsampled blocks, " +
		"which are estimates; only counts, sums, minima and maxima of these are exact",
)

// aggregateColumns are the columns that are exact in buckets that were imported from downsampled blocks.
const aggregateColumns = rollup.ColumnCount | rollup.ColumnSum | rollup.ColumnMin | rollup.ColumnMax

// Buckets replaces the contents of into with the series' buckets within the query's range, ordered by time. Buckets of
// slots with complete rollups are read from rollups; buckets of other slots are computed from samples. The result may
// include buckets that extend beyond the range. Buckets must only be called if the query has a Resolution.
func (s *SelectedSeries) Buckets(into *rollup.Buckets, buf *BucketBuffers) error {
	sel := s.sel
	if err := sel.ctx.Err(); err != nil {
		return err
	}
	into.Reset()
	chunks, err := sel.groups.chunks(s)
	if err != nil {
		return err
	}
	if !slices.IsSortedFunc(chunks, sel.compareChunks) { // Chunks come from more than one shard or class.
		chunks = slices.Clone(chunks)
		slices.SortStableFunc(chunks, sel.compareChunks)
	}
	buf.samples.Reset()
	buf.rolled.Reset()
	hidden := sel.r.deletes.OfSeries(s.Labels)
	sampled := sel.sampledSlots(chunks)
	for i, c := range chunks {
		if sel.isRaw(c) {
			sel.decodeDeleted(s, c, hidden, &buf.samples)
		} else if !sel.isSuperseded(c, chunks[i+1:]) {
			sel.decodeBuckets(s, c, hidden, sampled, &buf.rolled)
		}
	}
	for _, p := range sel.parts[s.from:s.to] {
		if p.source != inHead {
			continue
		}
		if err := sel.r.unsealedSamples(&sel.open[p.at], sel.r.minT, sel.r.maxT, &buf.samples); err != nil {
			return err
		}
	}
	buf.samples.Normalize()
	buf.samples.Clip(sel.r.minT, sel.r.maxT)
	hideSampleStarts(&buf.samples, sel.r.startsFrom)
	buf.cells.Reset()
	if buf.samples.Len() > 0 {
		rollup.AppendCells(&buf.cells, &buf.samples, sel.edges, sel.width)
		if sel.columns&rollup.ColumnSketches != 0 {
			buf.cells.AppendSketches(&buf.samples)
		}
	}
	hideBucketStarts(&buf.rolled, sel.r.startsFrom)
	rollup.Merge(into, &buf.rolled, &buf.cells, sel.columns)
	estimated := sel.columns&^aggregateColumns != 0
	for i, flags := range into.Flags {
		if flags&(rollup.HasDeleted|rollup.Aggregated) == 0 || into.End[i] < sel.r.minT || into.Start[i] >= sel.r.maxT {
			continue
		}
		if flags&rollup.HasDeleted != 0 {
			sel.r.reportWarningOnce(errHasDeleted)
		}
		if flags&rollup.Aggregated != 0 && estimated {
			sel.r.reportWarningOnce(errAggregated)
		}
	}
	return sel.r.budget.Use.AddSamples(buf.samples.Len() + buf.rolled.Len())
}

func (sel *selection) isRaw(c sealedChunk) bool {
	return format.ResolutionOf(sel.sources[c.source].window.window) == rollup.Raw
}

// sampledSlots lists the slots for which the series has raw chunks and whose rollups were computed before some delete
// was applied.
func (sel *selection) sampledSlots(chunks []sealedChunk) (slots []int64) {
	if len(sel.uncleaned) == 0 {
		return nil
	}
	for _, c := range chunks {
		if slot := sel.r.env.Period.SlotOf(c.start + 1); sel.isRaw(c) && sel.uncleaned[slot] != nil {
			slots = append(slots, slot)
		}
	}
	return slots
}

// decodeDeleted appends the samples of a raw chunk that aren't hidden. If sel.uncleaned contains deletes for the
// chunk's slot, only the buckets that one of these deletes touches are computed from samples. decodeDeleted then
// appends only the samples of these buckets.
func (sel *selection) decodeDeleted(s *SelectedSeries, c sealedChunk, hidden format.Tombstones, into *chunk.Samples) {
	ds, ok := sel.uncleaned[sel.r.env.Period.SlotOf(c.start+1)]
	if !ok {
		sel.decodeChunk(s, c, hidden, into)
		return
	}
	var all chunk.Samples
	sel.decodeChunk(s, c, hidden, &all)
	ds = ds.OfSeries(s.Labels)
	format.RemoveSamples(&all, func(t int64) bool {
		return !ds.TouchesBucket(-format.FloorDiv(-t, sel.width)*sel.width, sel.width)
	})
	into.AppendAll(&all)
}

// compareChunks orders chunks by start. Rollup chunks with the same span in different shards are ordered by version,
// highest last.
func (sel *selection) compareChunks(a, b sealedChunk) int {
	if c := cmp.Compare(a.start, b.start); c != 0 {
		return c
	}
	window := sel.sources[a.source].window.window
	if c := cmp.Compare(window, sel.sources[b.source].window.window); c != 0 ||
		format.ResolutionOf(window) == rollup.Raw {
		return c
	}
	return cmp.Compare(rollup.VersionOf(a.data), rollup.VersionOf(b.data))
}

// isSuperseded reports whether a chunk with the same span in another shard supersedes c, because it has a higher
// version. next must contain the chunks after c.
func (sel *selection) isSuperseded(c sealedChunk, next []sealedChunk) bool {
	for _, o := range next {
		if o.start != c.start {
			break
		}
		if o.source != c.source && sel.sources[o.source].window.window == sel.sources[c.source].window.window {
			return true
		}
	}
	return false
}

// decodeBuckets appends the buckets of a chunk. It omits buckets of slots whose buckets are computed from samples. In
// the slots in sampled, it also omits each bucket touched by a delete that wasn't applied to the rollups, because these
// buckets are computed from samples. A corrupt chunk is reported and skipped.
func (sel *selection) decodeBuckets(
	s *SelectedSeries, c sealedChunk, hidden format.Tombstones, sampled []int64, into *rollup.Buckets,
) {
	src := &sel.sources[c.source]
	before := into.Len()
	if err := rollup.DecodeStored(c.data, sel.columns, into); err != nil {
		sel.r.reportCorrupt(&damage.CorruptRowError{
			Table: format.TableOf(format.ResolutionOf(src.window.window)), Window: src.window.window,
			Tenant: sel.r.tenant, Metric: src.metric, Series: s.id.String(), Start: c.start, Err: err,
		})
		return
	}
	if rollup.IsLong(c.data) {
		sel.keepRequested(src.window, before, into)
	}
	ends := into.End[before:]
	if len(ends) == 0 || len(hidden) == 0 && len(sampled) == 0 && ends[0] > src.hidden &&
		sel.areAllRolled(src.window, ends[0], ends[len(ends)-1]) {
		return
	}
	// The chunk of a day may contain buckets of slots whose seal is in progress or was interrupted. The buckets of
	// these slots are computed from samples.
	period, w := sel.r.env.Period, src.window
	rolled := func(end int64) bool {
		slot := period.SlotOf(end)
		_, ok := slices.BinarySearch(w.slots, slot)
		if !ok || end <= src.hidden {
			return false
		}
		uncleared := func(d *format.Tombstone) bool { return !w.cleared[d.CommitKey(slot)] }
		if hidden.HidesBucket(end, sel.width, uncleared) {
			return false
		}
		_, fromSamples := slices.BinarySearch(w.left, slot)
		if slices.Contains(sampled, slot) {
			fromSamples = hidden.Filter(uncleared).TouchesBucket(end, sel.width)
		}
		if !fromSamples || end <= src.hiddenRaw || sel.r.gaps.Contains(src.class, rollup.Raw, end) {
			// The bucket has no visible samples from which it could be computed. It is therefore returned even if it
			// includes deleted samples.
			if ds := hidden.Filter(uncleared); ds.TouchesBucket(end, sel.width) && hasDeleted(c, end, ds) {
				sel.r.reportWarningOnce(errHasDeleted)
			}
			return true
		}
		// The bucket can be computed from its visible samples. If retention hides some of its samples, the bucket is
		// read from the rollup instead, which includes them. There are two exceptions: an edge of the query is inside
		// the bucket, or a delete that wasn't applied to the rollup touches the bucket. In both cases the bucket is
		// computed from the visible samples.
		return end-sel.width < src.hiddenRaw && !sel.containsEdge(end) &&
			!hidden.Filter(uncleared).TouchesBucket(end, sel.width)
	}
	for _, end := range ends {
		if !rolled(end) {
			into.Delete(before, func(end int64) bool { return !rolled(end) })
			return
		}
	}
}

// hasDeleted reports whether the bucket of chunk c that ends at end may include samples that ds deletes. ds must
// contain deletes that weren't applied to the chunk. The bucket may include such samples if a delete touches the time
// between its first and last sample, or if the chunk is unreadable.
func hasDeleted(c sealedChunk, end int64, ds format.Tombstones) bool {
	var b rollup.Buckets
	if rollup.DecodeStored(c.data, rollup.AllColumns, &b) != nil {
		return true
	}
	b.Delete(0, func(other int64) bool { return other != end })
	return format.TrimBuckets(&b, func(int64) format.Tombstones { return ds })
}

// containsEdge reports whether one of the query's edges is inside the bucket that ends at end.
func (sel *selection) containsEdge(end int64) bool {
	i, _ := slices.BinarySearch(sel.edges, end-sel.width+1)
	return i < len(sel.edges) && sel.edges[i] < end
}

// keepRequested removes the buckets from index onwards that are outside the requested slots of the window. It is needed
// for long chunks, which cover more slots.
func (sel *selection) keepRequested(w *sealedWindow, index int, into *rollup.Buckets) {
	p, ends := sel.r.env.Period, into.End[index:]
	from := sort.Search(len(ends), func(i int) bool { return ends[i] > p.SlotStart(w.slots[0]) })
	to := sort.Search(len(ends), func(i int) bool { return ends[i] > p.SlotEnd(w.slots[len(w.slots)-1]) })
	if to-from < len(ends) {
		into.KeepRange(index, index+from, index+max(from, to))
	}
}

// areAllRolled reports whether the buckets of all slots from firstEnd to lastEnd, both included, are read from rollups.
func (sel *selection) areAllRolled(w *sealedWindow, firstEnd, lastEnd int64) bool {
	first, last := sel.r.env.Period.SlotOf(firstEnd), sel.r.env.Period.SlotOf(lastEnd)
	from, ok := slices.BinarySearch(w.slots, first)
	to := from + int(last-first)
	if !ok || to >= len(w.slots) || w.slots[to] != last {
		return false
	}
	left, _ := slices.BinarySearch(w.left, first)
	return left == len(w.left) || w.left[left] > last
}

// fetchRollups reads the rollup chunks of a task. The rows of a series in a window are adjacent. If the query needs
// less than half of the rows of a series, fetchRollups starts a new scan for each series, unless reading past all rows
// of a series in the window is faster than starting a scan.
func (f *fetcher) fetchRollups(ctx context.Context, wants []wantedSeries) error {
	of := f.sel.sources[wants[0].source].window
	from, to := f.sel.startsOf(of)
	w := f.wanted(wants, from, to)
	w.Long = !slices.ContainsFunc(wants, func(w wantedSeries) bool { return !w.alone })
	if width := windowMSOf(of.window); (to-from)*2 <= width && int64(w.PassOver) < width/f.sel.chunkMSOf(of) {
		w.PassOver = 0
	}
	_, err := f.sel.r.chunks(ctx, w, func(row engine.Row) error {
		id, start := row.Clustering[1].Text, row.Clustering[2].Int
		for string(wants[0].of.id[:]) < id {
			wants = wants[1:]
		}
		if interval, long := format.LongStart(start); long {
			start = interval
		}
		return f.appendChunk(wants[0], start, row)
	})
	return err
}

// startsOf returns the start of the first and of the last requested chunk in a rollup window.
func (sel *selection) startsOf(w *sealedWindow) (from, to int64) {
	p := sel.r.env.Period
	first, last := w.slots[0], w.slots[len(w.slots)-1]
	if format.ResolutionOf(w.window) == rollup.OneHour {
		return p.DayOf(first), p.DayOf(last)
	}
	return p.SlotStart(first), p.SlotStart(last)
}

// chunkMSOf returns the time that a rollup chunk of a window covers, in milliseconds: a slot or a day.
func (sel *selection) chunkMSOf(w *sealedWindow) int64 {
	if format.ResolutionOf(w.window) == rollup.OneHour {
		return format.DayMS
	}
	p := sel.r.env.Period
	return p.SlotEnd(w.slots[0]) - p.SlotStart(w.slots[0])
}

func windowMSOf(window int64) int64 {
	if format.ResolutionOf(window) == rollup.OneHour {
		return format.Window1hMS
	}
	return format.Window5mMS
}
