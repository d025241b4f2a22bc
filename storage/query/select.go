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

// Query asks for the samples of series.
type Query struct {
	Tenant string
	// MinT and MaxT bound the samples' timestamps, both included, milliseconds.
	MinT, MaxT int64
	Matchers   []*labels.Matcher
	// Resolution asks for buckets, which SelectedSeries.Buckets reads, in place of samples. The series are those
	// that may have either.
	Resolution rollup.Resolution
	// Columns are those that are wanted of the buckets.
	Columns rollup.Columns
	// Edges are times that no bucket may straddle, ascending, milliseconds: where one that isn't at a bucket's
	// end lies in a slot, that slot is answered from samples, as long as these are kept.
	Edges []int64
	// Classes bounds the answer to rows of these classes, as Horizons names them; 0: all.
	Classes uint64
	// LabelsOnly is true if no samples will be read: series are found as long as anything is kept of them. With a Limit, any of the
	// series are returned.
	LabelsOnly bool
	// part is which series are searched.
	part selectPart
	// Sorted asks for series in the order of their labels.
	Sorted bool
	// Limit is the greatest number of series, or of names or values of labels, that are wanted; 0: all.
	Limit int
	// Warn is called for rows that had to be skipped because they are corrupt; nil: they are only logged and counted. It is
	// called by one goroutine at a time, also by SelectedSeries.Samples.
	Warn func(error)
	// overGaps shows samples before a gap, too.
	overGaps bool
}

// selectPart is where series are searched.
type selectPart uint8

const (
	inAll selectPart = iota
	inUnsealed
	inSealed
)

// SelectedSeries is one series of a Query's answer. Its methods may be called from any goroutine, and
// after the query's context has ended they fail with its error.
type SelectedSeries struct {
	Labels labels.Labels

	sel      *selection
	id       format.SeriesID
	at       uint32 // its place among the selection's series
	from, to uint32 // its parts
}

// selection is the answer to a Query. What it reads is cut into groups of neighbouring series, so that what
// it holds follows what its caller asks for.
//
//	series  [ a b c d e f g … ]      parts of c: ─► source (window, metric, place)
//	groups  [   0   |   1   … ]                  └► the head's snapshot
type selection struct {
	r   *request
	ctx context.Context
	// uncleaned are, of a query for buckets, the deletes that the rollups of a slot were made without, by slot.
	uncleaned map[int64]format.Tombstones
	sources   []source
	open      []openSeries
	parts     []part
	series    []*SelectedSeries
	groups    groups
	// columns, edges and width are for buckets.
	columns rollup.Columns
	edges   []int64
	width   int64
}

// source is where sealed chunks are: a partition of table raw, or of rollups.
type source struct {
	window *sealedWindow
	metric string
	place  format.ClassShard
	// places is how many the metric has in the window.
	places uint32
	// class is the place's; hidden is the newest timestamp that it no longer keeps, and hiddenRaw that of raw samples.
	class             int64
	hidden, hiddenRaw int64
	// located is where the series stand in pages; nil: that isn't known.
	located *paged.Located
}

// part is where samples of a series are.
type part struct {
	// source is the index of a source, or inHead.
	source uint32
	// at is the place of the series in its window's metric, or in the head's snapshot.
	at uint32
}

const inHead = ^uint32(0)

// Select finds the series that match and have, or may have, samples in the range. It reads no samples yet.
func (q *Querier) Select(ctx context.Context, query Query) ([]*SelectedSeries, error) {
	r, err := q.openRequest(ctx, query)
	if r == nil {
		return nil, err
	}
	// Invariant I4: first the head, then the marks, then the rows. Samples sealed meanwhile are met twice.
	sel := &selection{r: r, ctx: ctx, columns: query.Columns, edges: query.Edges, width: query.Resolution.Width()}
	limit := 0
	if query.LabelsOnly {
		limit = query.Limit
	}
	if query.part != inSealed {
		if sel.open, err = r.open(ctx, limit); err != nil {
			return nil, err
		}
		if query.Resolution != rollup.Raw {
			r.showStanding(sel.open)
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
	sel.merge(found, limit)
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

// SelectUnsealed is Select for the series that have unsealed samples.
func (q *Querier) SelectUnsealed(ctx context.Context, query Query) ([]*SelectedSeries, error) {
	query.part = inUnsealed
	return q.Select(ctx, query)
}

// findSealed finds the sealed series that match.
func (sel *selection) findSealed(ctx context.Context, q Query) ([]matching, error) {
	r := sel.r
	windows, err := windowFinder{r}.windowsAt(ctx, q, sel.open)
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
		match := spanned{positions: positions}
		if q.Resolution == rollup.Raw && !q.LabelsOnly {
			if match, err = find.withSamples(ctx, &list[at], m, positions); err != nil {
				return err
			}
		}
		found[at], err = find.take(ctx, list[at], m, match, &memory)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Where nothing matches there is no metric either: left in, it would cut a metric's windows in two.
	return slices.DeleteFunc(found, func(m matching) bool { return len(m.ids) == 0 }), nil
}

// merge makes one series of what windows and head have under one id; limit bounds how many, 0: all. found
// comes by metric, and an id belongs to one metric.
func (sel *selection) merge(found []matching, limit int) {
	heads := sel.sortedHeads()
	m := merger{sel: sel, limit: limit}
	m.expect(found, len(heads))
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
		if m.metric(found[:n], heads[:k]); m.full() {
			return
		}
		found, heads = found[n:], heads[k:]
	}
}

// headPlace is a place in a selection's open series, with what it is sorted by: its metric's, and the first bytes of its id.
type headPlace struct {
	id     uint64
	metric uint32 // the place of the first series of the metric
	at     uint32
}

// sortedHeads returns the places of the open series by metric and id. Those of one metric come one after the other.
func (sel *selection) sortedHeads() []uint32 {
	open := sel.open
	places := make([]headPlace, len(open))
	first := uint32(0)
	for i := range places {
		if open[i].series.Metric() != open[first].series.Metric() {
			first = uint32(i)
		}
		id := open[i].series.ID()
		places[i] = headPlace{id: binary.BigEndian.Uint64(id[:]), metric: first, at: uint32(i)}
	}
	slices.SortFunc(places, func(a, b headPlace) int {
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

// run is what one window has of a metric, and how far it is merged.
type run struct {
	*matching
	source uint32              // of the first place; those of the others follow
	places []format.ClassShard // that it has series in, ascending
	next   int
}

// expect makes room for the series of windows and of the head, of which most have the same in all windows.
func (m *merger) expect(found []matching, heads int) {
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

// slabSeries bounds for how many series memory is taken at once.
const slabSeries = 1024

func (m *merger) full() bool { return m.limit > 0 && len(m.sel.series) >= m.limit }

// metric merges the series of one metric, whose windows and head are each in the order of ids.
func (m *merger) metric(found []matching, heads []uint32) {
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
	for !m.full() {
		id, ok := m.least(heads)
		if !ok {
			return
		}
		heads = m.add(id, heads)
	}
}

// onePlace is where most metrics have all of their series.
var onePlace = []format.ClassShard{0}

// usedPlaces returns those of the places of series, each once, ascending.
func usedPlaces(places []format.ClassShard) []format.ClassShard {
	if places == nil {
		return onePlace
	}
	used := slices.Clone(places)
	slices.Sort(used)
	return slices.Compact(used)
}

// least returns the smallest id that is not merged yet.
func (m *merger) least(heads []uint32) (least format.SeriesID, ok bool) {
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

// add makes a series of everything under id, and returns the rest of heads.
func (m *merger) add(id format.SeriesID, heads []uint32) []uint32 {
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

// Windows lists the windows of sealed rows that the series is read from.
func (s *SelectedSeries) Windows() (list []int64) {
	for _, p := range s.sel.parts[s.from:s.to] {
		if p.source != inHead {
			list = append(list, s.sel.sources[p.source].window.window)
		}
	}
	return list
}

// Warm reads what labels and samples of the series need, as far as that doesn't change, into the processor's cache, and returns a byte that depends on
// it. A reader of many series that calls it for some at once waits for the memory of all of them at the same time.
func (s *SelectedSeries) Warm() (sum byte) {
	for text := labelorder.Encoding(s.Labels); text != ""; text = text[min(cacheLine, len(text)):] {
		sum |= text[0]
	}
	for _, p := range s.sel.parts[s.from:s.to] {
		if p.source == inHead {
			sum |= s.sel.open[p.at].unsealed.Warm()
		}
	}
	return sum
}

// cacheLine is the number of bytes that a processor reads from memory at once, or less.
const cacheLine = 64

// Samples appends the series' samples within the query's range, in order, at most one a timestamp. It isn't for
// queries that ask for a resolution: see Buckets.
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
		sel.decode(s, c, hidden, into)
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
	sel.r.leaveOut(s.Labels, into)
	return sel.r.budget.Use.Samples(into.Len())
}
