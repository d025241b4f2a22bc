package query

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/labelorder"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Query selects the samples or buckets of series.
type Query struct {
	Tenant string
	// MinT and MaxT are the first and last timestamp of the range, in milliseconds.
	MinT, MaxT int64
	Matchers   []*labels.Matcher
	// Resolution selects buckets instead of samples. The caller must read the buckets with SelectedSeries.Buckets. The
	// result contains the series that may have buckets or samples.
	Resolution rollup.Resolution
	// Columns are the columns of buckets that the caller reads.
	Columns rollup.Columns
	// Edges are times in ascending order, in milliseconds. No returned bucket begins before an edge and ends after it.
	// If an edge is inside a bucket, the buckets of the slot are computed from samples as long as samples are kept.
	Edges []int64
	// Classes limits the result to rows of these classes, with bits as in retention.HiddenTimes. 0 selects all classes.
	Classes uint64
	// LabelsOnly is true if the caller won't read samples. A series is then found if any of its rows are kept. With a
	// Limit, the result contains any of the matching series.
	LabelsOnly bool
	// part selects whether unsealed or sealed samples are searched, or both.
	part selectPart
	// Sorted requests series in the order of their labels.
	Sorted bool
	// Limit is the maximum number of series, label names or label values; 0 means no limit.
	Limit int
	// Warn is called for corrupt rows, which are skipped. If Warn is nil, corrupt rows are only logged and counted.
	// Warn is never called concurrently. After the query has returned, SelectedSeries.Samples and
	// SelectedSeries.Buckets may still call it.
	Warn func(error)
	// overGaps is true if samples before a gap are also returned.
	overGaps bool
}

// selectPart selects the unsealed samples, the sealed samples, or both.
type selectPart uint8

const (
	inAll selectPart = iota
	inUnsealed
	inSealed
)

// SelectedSeries is one series of the result of a Query. Its methods may be called from any goroutine. Samples and
// Buckets return the error of the query's context once the context is done.
type SelectedSeries struct {
	Labels labels.Labels

	sel      *selection
	id       format.SeriesID
	at       uint32 // its index among the selection's series
	from, to uint32 // its parts are sel.parts[from:to]
}

// selection is the result of a Query. Its chunks are read in groups of neighboring series, when the caller reads the
// series, so that only a few groups are in memory.
//
//	series  [ a b c d e f g … ]      parts of c: ─► source (window, metric, place)
//	groups  [   0   |   1   … ]                  └► the head's snapshot
type selection struct {
	r   *request
	ctx context.Context
	// uncleaned maps slots to the deletes that weren't applied to their rollups. It is set in queries for buckets.
	uncleaned map[int64]format.Tombstones
	sources   []source
	open      []unsealedSeries
	parts     []part
	series    []*SelectedSeries
	groups    groups
	// columns, edges and width are set in queries for buckets.
	columns rollup.Columns
	edges   []int64
	width   int64
}

// source is a partition of table raw or of a rollup table that contains sealed chunks.
type source struct {
	window *sealedWindow
	metric string
	place  format.ClassShard
	// places is the number of places of the metric in the window. A place is a pair of a class and a shard.
	places uint32
	// class is the class of the place. hidden is the newest timestamp that is hidden in the class at the source's
	// resolution. hiddenRaw is the newest timestamp that is hidden at raw resolution.
	class             int64
	hidden, hiddenRaw int64
	// located holds the positions of the series in pages. It is nil if the positions are unknown.
	located *paged.Located
}

// part is one location of a series' samples.
type part struct {
	// source is the index of a source in selection.sources, or inHead.
	source uint32
	// at is the index of the series in its window's metric, or in the head's snapshot.
	at uint32
}

const inHead = ^uint32(0)

// Select finds the series that match the query and may have samples in its range. It reads no samples.
func (q *Querier) Select(ctx context.Context, query Query) ([]*SelectedSeries, error) {
	r, err := q.openRequest(ctx, query)
	if r == nil {
		return nil, err
	}
	// Invariant I4: the head is read first, then the commit records, then the rows. Samples that are being sealed are
	// found twice.
	sel := &selection{r: r, ctx: ctx, columns: query.Columns, edges: query.Edges, width: query.Resolution.Width()}
	limit := 0
	if query.LabelsOnly {
		limit = query.Limit
	}
	if query.part != inSealed {
		if sel.open, err = r.findUnsealed(ctx, limit); err != nil {
			return nil, err
		}
		if query.Resolution != rollup.Raw {
			r.showUnexpired(sel.open)
		}
	}
	var found []matching
	if query.part != inUnsealed && (limit == 0 || len(sel.open) < limit) {
		if found, err = sel.findSealed(ctx, query); err != nil {
			return nil, err
		}
	}
	if !query.Sorted {
		limit = query.Limit
	}
	sel.mergeSeries(found, limit)
	if query.Sorted {
		if err := sel.sortByLabels(query.Tenant); err != nil {
			return nil, err
		}
	}
	if query.Limit > 0 && len(sel.series) > query.Limit {
		sel.series = sel.series[:query.Limit]
	}
	for i, series := range sel.series {
		series.at = uint32(i)
	}
	sel.groups.init(sel, query.Sorted)
	return sel.series, nil
}

// SelectUnsealed is like Select, but finds only series with unsealed samples.
func (q *Querier) SelectUnsealed(ctx context.Context, query Query) ([]*SelectedSeries, error) {
	query.part = inUnsealed
	return q.Select(ctx, query)
}

// findSealed finds the sealed series that match.
func (sel *selection) findSealed(ctx context.Context, q Query) ([]matching, error) {
	r := sel.r
	windows, err := windowFinder{r}.findWindows(ctx, q, sel.open)
	if err != nil {
		return nil, err
	}
	sel.uncleaned = windows.uncleaned
	find := seriesFinder{r}
	list, err := find.windowMetrics(ctx, windows.list)
	if err != nil {
		return nil, err
	}
	found, memory := make([]matching, len(list)), matchedMemory{}
	err = find.eachMatch(ctx, list, func(at int, m *metricSeries, positions []uint32) (err error) {
		match := spanPositions{positions: positions}
		if q.Resolution == rollup.Raw && !q.LabelsOnly {
			if match, err = find.filterBySpans(ctx, &list[at], m, positions); err != nil {
				return err
			}
		}
		found[at], err = find.matchingOf(ctx, list[at], m, match, &memory)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Remove windows without matches. They have no metric, and would separate the windows of a metric from each other.
	return slices.DeleteFunc(found, func(m matching) bool { return len(m.ids) == 0 }), nil
}

// mergeSeries creates one series per id from the windows and the head. limit is the maximum number of series; 0 means
// no limit. found must be sorted by metric, and each id must belong to one metric.
func (sel *selection) mergeSeries(found []matching, limit int) {
	heads := sel.sortedHeads()
	m := merger{sel: sel, limit: limit}
	m.allocate(found, len(heads))
	for len(found) > 0 || len(heads) > 0 {
		metric := ""
		switch {
		case len(heads) == 0:
			metric = found[0].window.metric
		case len(found) == 0:
			metric = sel.open[heads[0]].series.Metric()
		default:
			metric = min(found[0].window.metric, sel.open[heads[0]].series.Metric())
		}
		n, k := 0, 0
		for n < len(found) && found[n].window.metric == metric {
			n++
		}
		for k < len(heads) && sel.open[heads[k]].series.Metric() == metric {
			k++
		}
		if m.mergeMetric(found[:n], heads[:k]); m.isFull() {
			return
		}
		found, heads = found[n:], heads[k:]
	}
}

// headPosition is an index into a selection's open series, with the sort key of the series: its metric and the first
// bytes of its id.
type headPosition struct {
	id     uint64
	metric uint32 // the index of the metric's first series
	at     uint32
}

// sortedHeads returns the indexes of the open series, sorted by metric and id. Open series of one metric must be
// adjacent.
func (sel *selection) sortedHeads() []uint32 {
	open := sel.open
	places := make([]headPosition, len(open))
	first := uint32(0)
	for i := range places {
		if open[i].series.Metric() != open[first].series.Metric() {
			first = uint32(i)
		}
		id := open[i].series.ID()
		places[i] = headPosition{id: binary.BigEndian.Uint64(id[:]), metric: first, at: uint32(i)}
	}
	slices.SortFunc(places, func(a, b headPosition) int {
		if a.metric != b.metric {
			if c := strings.Compare(open[a.at].series.Metric(), open[b.at].series.Metric()); c != 0 {
				return c
			}
		}
		if a.id != b.id {
			return cmp.Compare(a.id, b.id)
		}
		return strings.Compare(open[a.at].series.IDText(), open[b.at].series.IDText())
	})
	heads := make([]uint32, len(places))
	for i, p := range places {
		heads[i] = p.at
	}
	return heads
}

// merger appends series to a selection.
type merger struct {
	sel   *selection
	limit int
	slab  []SelectedSeries // memory for the next series
	runs  []run
}

// run holds the series of a metric in one window, and the index of the next series to merge.
type run struct {
	*matching
	source uint32              // index of the first place's source; the sources of the other places follow
	places []format.ClassShard // the places with series, ascending
	next   int
}

// allocate allocates memory for the series of the windows and the head. It assumes that most series of a metric are in
// all windows of the metric.
func (m *merger) allocate(found []matching, heads int) {
	parts, series, most := heads, 0, heads
	for i := range found {
		n := len(found[i].ids)
		if i > 0 && found[i].window.metric != found[i-1].window.metric {
			series, most = series+most, 0
		}
		parts, most = parts+n, max(most, n)
	}
	if series += most; m.limit > 0 {
		series, parts = min(series, m.limit), min(parts, m.limit)
	}
	m.sel.series, m.sel.parts = make([]*SelectedSeries, 0, series), make([]part, 0, parts)
	m.slab = make([]SelectedSeries, min(series, slabSeries))
}

// slabSeries is the maximum number of series whose memory is allocated together.
const slabSeries = 1024

func (m *merger) isFull() bool { return m.limit > 0 && len(m.sel.series) >= m.limit }

// mergeMetric merges the series of one metric. The series of each window and of the head must be ordered by id.
func (m *merger) mergeMetric(found []matching, heads []uint32) {
	sel := m.sel
	m.runs = m.runs[:0]
	for i := range found {
		f := &found[i]
		if len(f.ids) == 0 {
			continue
		}
		n := run{matching: f, source: uint32(len(sel.sources)), places: usedPlaces(f.places)}
		m.runs = append(m.runs, n)
		for _, at := range n.places {
			src := sel.r.sourceOf(f.window, at)
			src.located, src.places = f.located[at], uint32(len(n.places))
			sel.sources = append(sel.sources, src)
		}
	}
	for !m.isFull() {
		id, ok := m.minID(heads)
		if !ok {
			return
		}
		heads = m.addSeries(id, heads)
	}
}

// onePlace is the list of places of most metrics. It contains only place 0.
var onePlace = []format.ClassShard{0}

// usedPlaces returns the distinct places of series, ascending.
func usedPlaces(places []format.ClassShard) []format.ClassShard {
	if places == nil {
		return onePlace
	}
	used := slices.Clone(places)
	slices.Sort(used)
	return slices.Compact(used)
}

// minID returns the smallest id that hasn't been merged yet. ok is false if all ids have been merged.
func (m *merger) minID(heads []uint32) (least format.SeriesID, ok bool) {
	if len(heads) > 0 {
		least, ok = m.sel.open[heads[0]].series.ID(), true
	}
	for i := range m.runs {
		r := &m.runs[i]
		if r.next < len(r.ids) && (!ok || bytes.Compare(r.ids[r.next][:], least[:]) < 0) {
			least, ok = r.ids[r.next], true
		}
	}
	return least, ok
}

// addSeries creates a series from all parts with this id, and returns the remaining heads.
func (m *merger) addSeries(id format.SeriesID, heads []uint32) []uint32 {
	sel := m.sel
	if len(m.slab) == 0 {
		m.slab = make([]SelectedSeries, min(slabSeries, max(1, len(sel.series))))
	}
	series := &m.slab[0]
	m.slab = m.slab[1:]
	series.sel, series.id, series.from = sel, id, uint32(len(sel.parts))
	for i := range m.runs {
		r := &m.runs[i]
		for ; r.next < len(r.ids) && r.ids[r.next] == id; r.next++ {
			at := 0
			if r.matching.places != nil {
				at, _ = slices.BinarySearch(r.places, r.matching.places[r.next])
			}
			series.Labels = r.labels[r.next]
			sel.parts = append(sel.parts, part{source: r.source + uint32(at), at: r.positions[r.next]})
		}
	}
	for ; len(heads) > 0 && sel.open[heads[0]].series.ID() == id; heads = heads[1:] {
		series.Labels = sel.open[heads[0]].series.Labels()
		sel.parts = append(sel.parts, part{source: inHead, at: heads[0]})
	}
	series.to = uint32(len(sel.parts))
	sel.series = append(sel.series, series)
	return heads
}

// Windows lists the windows from which sealed samples of the series are read.
func (s *SelectedSeries) Windows() (list []int64) {
	for _, p := range s.sel.parts[s.from:s.to] {
		if p.source != inHead {
			list = append(list, s.sel.sources[p.source].window.window)
		}
	}
	return list
}

// Warm loads the memory that contains the series' labels and samples into the processor's cache. It returns a value
// computed from this memory, so that the compiler doesn't remove the loads. If a caller warms several series before it
// reads them, the processor loads their memory concurrently, so the caller waits only once.
func (s *SelectedSeries) Warm() (sum byte) {
	for text := labelorder.Encoding(s.Labels); text != ""; text = text[min(cacheLine, len(text)):] {
		sum |= text[0]
	}
	for _, p := range s.sel.parts[s.from:s.to] {
		if p.source == inHead {
			sum |= s.sel.open[p.at].unsealed.Prefetch()
		}
	}
	return sum
}

// cacheLine is the number of bytes that a processor reads from memory at once. Some processors read more.
const cacheLine = 64

// Samples appends the series' samples within the query's range, in order, at most one per timestamp. If the query has a
// Resolution, Buckets must be called instead.
func (s *SelectedSeries) Samples(into *chunk.Samples) error {
	if into.Len() > 0 {
		var own chunk.Samples
		if err := s.Samples(&own); err != nil {
			return err
		}
		into.AppendAll(&own)
		return nil
	}
	sel := s.sel
	if err := sel.ctx.Err(); err != nil {
		return err
	}
	chunks, err := sel.groups.chunks(s)
	if err != nil {
		return err
	}
	hidden := sel.r.deletes.OfSeries(s.Labels)
	for _, c := range chunks {
		sel.decodeChunk(s, c, hidden, into)
	}
	for _, p := range sel.parts[s.from:s.to] {
		if p.source != inHead {
			continue
		}
		if err := sel.r.unsealedSamples(&sel.open[p.at], sel.r.minT, sel.r.maxT, into); err != nil {
			return err
		}
	}
	into.Normalize()
	into.Clip(sel.r.minT, sel.r.maxT)
	hideSampleStarts(into, sel.r.startsFrom)
	sel.r.removeInvalidHistograms(s.Labels, into)
	return sel.r.budget.Use.AddSamples(into.Len())
}
