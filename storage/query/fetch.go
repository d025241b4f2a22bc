package query

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/rollup"
)

// task is the unit of work of one goroutine. It contains series of one source that are close enough to each other to be
// read with one scan per slot.
type task struct{ wants []wantedSeries }

// largeGap is the maximum number of unwanted series between two wanted series of a task, if the group is large. Most
// unwanted series are in pages, where a search skips them quickly. A group of a result that is sorted by labels
// contains about one in sortedGroups of the series, so the gaps between their ids vary around sortedGroups. If the
// maximum gap were SeekRows, a quarter of these series would start separate tasks.
const largeGap = 256

// tasks splits the wanted series of each source into tasks. It starts a new task where the gap between two series is so
// large that starting another scan is faster than reading past the gap. large reports whether the group is large. tasks
// assumes that the series of a metric in a window are spread evenly over the metric's places.
func (sel *selection) tasks(wants []wantedSeries, large bool) []task {
	tasks := make([]task, 0, min(len(wants), 1+len(sel.sources)))
	seekRows := uint32(sel.r.env.SeekRows)
	if large {
		seekRows = max(seekRows, largeGap)
	}
	for from, i := 0, 1; i <= len(wants); i++ {
		if i == len(wants) || wants[i].source != wants[i-1].source ||
			wants[i].at-wants[i-1].at > seekRows*sel.sources[wants[i].source].places {
			tasks = append(tasks, task{wants: wants[from:i]})
			from = i
		}
	}
	return tasks
}

// fewChunks is the minimum initial capacity, in chunks, for tasks with a short range.
const fewChunks = 32

// fetch reads the chunks of a task, slot by slot.
func (sel *selection) fetch(ctx context.Context, t *task) ([]sealedChunk, error) {
	window := sel.sources[t.wants[0].source].window
	slots := window.slots
	f := fetcher{sel: sel}
	if format.ResolutionOf(window.window) != rollup.Raw {
		f.chunks = make([]sealedChunk, 0, len(t.wants)*sel.chunksOf(window))
		err := f.fetchRollups(ctx, t.wants)
		return f.chunks, err
	}
	if n := len(t.wants) * len(slots); sel.width == 0 &&
		sel.r.maxT-sel.r.minT < (sel.r.env.Period.SlotEnd(slots[0])-sel.r.env.Period.SlotStart(slots[0]))/4 {
		f.chunks = make([]sealedChunk, 0, min(n, max(fewChunks, len(t.wants)/4))) // Many chunks may be out of range.
	} else if !sel.allUncleaned(slots) {
		f.chunks = make([]sealedChunk, 0, n)
	}
	src := &sel.sources[t.wants[0].source]
	if len(t.wants) <= maxCachedSeries {
		f.version, f.keeps = f.versionOf(src)
	}
	hidden := src.hidden
	for _, slot := range slots {
		if sel.r.env.Period.SlotEnd(slot) <= hidden {
			continue
		}
		wants := t.wants
		if ds, ok := sel.uncleaned[slot]; ok {
			wants = withDeletes(wants, ds)
		}
		if len(wants) == 0 {
			continue
		}
		if err := f.readChunks(ctx, sel.r.env.Period.SlotStart(slot), wants); err != nil {
			return nil, err
		}
	}
	return f.chunks, nil
}

// withDeletes returns the series to which any of the deletes applies.
func withDeletes(wants []wantedSeries, ds format.Tombstones) (some []wantedSeries) {
	for _, w := range wants {
		if slices.ContainsFunc(w.deletes, func(d *format.Tombstone) bool { return slices.Contains(ds, d) }) {
			some = append(some, w)
		}
	}
	return some
}

// allUncleaned reports whether the rollups of every slot were computed before some delete was applied.
func (sel *selection) allUncleaned(slots []int64) bool {
	return !slices.ContainsFunc(slots, func(slot int64) bool { return sel.uncleaned[slot] == nil })
}

// chunksOf returns the approximate number of chunks that a series has in a window: one per slot or per day.
func (sel *selection) chunksOf(w *sealedWindow) int {
	if format.ResolutionOf(w.window) != rollup.OneHour {
		return len(w.slots)
	}
	first, last := sel.startsOf(w)
	return int((last-first)/format.DayMS) + 1
}

type fetcher struct {
	sel    *selection
	chunks []sealedChunk
	room   []byte   // memory for the next chunks
	ids    []string // of the wanted series; reused together with text
	text   []byte
	// keeps is true if the chunks of a scan for few series may be cached. version is the version of their partitions.
	keeps   bool
	version uint64
	// partition is reused memory for the key of a partition.
	partition engine.Key
}

// wanted returns a request for the chunks of the given series that start between first and last. The series must belong
// to one source and be ordered by id.
func (f *fetcher) wanted(wants []wantedSeries, first, last int64) paged.Wanted {
	src := &f.sel.sources[wants[0].source]
	f.ids, f.text = slices.Grow(f.ids[:0], len(wants)), slices.Grow(f.text[:0], len(wants)*engine.IDLen)
	for i := range wants {
		f.text = append(f.text, wants[i].of.id[:]...)
	}
	all := string(f.text)
	for i := range wants {
		f.ids = append(f.ids, all[i*engine.IDLen:(i+1)*engine.IDLen])
	}
	return paged.Wanted{
		Table: format.TableOf(format.ResolutionOf(src.window.window)), IDs: f.ids, First: first, Last: last,
		NoVersions: true, Remember: true, Version: src.window.version, PassOver: f.sel.r.env.SeekRows,
		Columns: f.sel.columns, Located: src.located,
		Partition: format.SeriesPartition(src.window.window, f.sel.r.tenant, src.metric, src.place),
		// Bound the range by the query's range, unless the chunks may be cached or buckets are requested. Cached chunks
		// may be used by queries for other times, and buckets need samples around the range.
		Bounded: !f.keeps && f.sel.width == 0, MinT: f.sel.r.minT, MaxT: f.sel.r.maxT,
	}
}

// scan reads the chunks of the given series in the slot that starts at start. The series must belong to one source and
// be ordered by id. whole is false if some chunks are unreadable.
func (f *fetcher) scan(ctx context.Context, start int64, wants []wantedSeries) (whole bool, err error) {
	return f.sel.r.chunks(ctx, f.wanted(wants, start, start), func(row engine.Row) error {
		id := row.Clustering[2].Text
		for string(wants[0].of.id[:]) < id {
			wants = wants[1:]
		}
		return f.appendChunk(wants[0], start, row)
	})
}

// appendChunk appends a chunk of a series.
func (f *fetcher) appendChunk(of wantedSeries, start int64, row engine.Row) error {
	if len(f.chunks) == cap(f.chunks) { // append would grow a long list by only a quarter each time.
		f.chunks = slices.Grow(f.chunks, len(f.chunks)+1)
	}
	f.chunks = append(f.chunks, sealedChunk{
		data: f.copyBytes(row.Value), start: start, source: of.source, series: of.series,
	})
	return f.sel.r.budget.Charge(len(row.Value))
}

// blockBytes is the size of the blocks in which memory for chunks is allocated. The first block is only as large as the
// first chunk, because series that are far apart have separate fetchers with few chunks each.
const blockBytes = 64 << 10

func (f *fetcher) copyBytes(b []byte) []byte {
	if len(b) > cap(f.room)-len(f.room) {
		f.room = make([]byte, 0, max(len(b), min(blockBytes, 4*cap(f.room))))
	}
	from := len(f.room)
	f.room = append(f.room, b...)
	return f.room[from:len(f.room):len(f.room)]
}

// decodeChunk appends the samples of a chunk that aren't hidden. A corrupt chunk is reported and skipped.
func (sel *selection) decodeChunk(s *SelectedSeries, c sealedChunk, hidden format.Tombstones, into *chunk.Samples) {
	src := &sel.sources[c.source]
	minT := max(sel.r.minT, src.hidden+1)
	raw, err := format.ParseRawChunk(c.data)
	if err == nil && raw.Data == nil {
		return
	}
	var info chunk.Info
	if err == nil {
		info, err = chunk.Header(raw.Data)
	}
	if err == nil && (info.MaxT < minT || info.MinT > sel.r.maxT) {
		return
	}
	if len(hidden) > 0 {
		hidden = raw.Exempt.SelectApplying(hidden).Filter(func(d *format.Tombstone) bool {
			return d.Touches(info.MinT-1, info.MaxT)
		})
	}
	switch {
	case err == nil && (len(hidden) > 0 || minT > sel.r.minT && info.MinT < minT):
		var all chunk.Samples
		if err = chunk.Decode(raw.Data, &all); err == nil {
			all.Normalize()
			all.Clip(minT, sel.r.maxT)
			hidden.RemoveDeleted(&all)
			into.AppendAll(&all)
		}
	case err == nil:
		err = chunk.Decode(raw.Data, into)
	}
	if err != nil {
		sel.r.reportCorrupt(&damage.CorruptRowError{
			Table: engine.Raw, Window: src.window.window, Tenant: sel.r.tenant, Metric: src.metric,
			Series: s.id.String(), Start: c.start, Err: err,
		})
	}
}
