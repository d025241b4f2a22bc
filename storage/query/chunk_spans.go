package query

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/paged"
)

// If series are short-lived, most matching series have no samples in a query's range: `count({job="pods"})` may match
// half a million series of a day, of which only 20,000 are active in the range. Pages contain the first and last time
// of each chunk, which can be read without decoding the chunk. The spans of a metric's chunks in a slot are read once
// and cached with the index, so that the query doesn't process inactive series.
//
//	index ─► positions that match ─► spans of the slots in the range ─► positions that may have samples ─► series, chunks
//
// A span only excludes series whose chunks are all outside the range. Chunks in rows, such as cleaned chunks, have no
// spans, so their series are never excluded. The rows of a window don't change while its version is the same, except
// for chunks that lose deleted samples.

const (
	// spannedSeries is the minimum number of matching series of a metric in a window for which spans are used.
	spannedSeries = 1024
	// spannedSlots is the maximum number of slots read from a window for which spans are used. In a longer range most
	// series have samples.
	spannedSlots = 4
	// spanBytes is the size of a seriesSpan.
	spanBytes = 12
)

// seriesSpan is the time from the first to the last sample of a chunk, both included, in milliseconds since the start
// of the slot.
type seriesSpan struct {
	at          uint32 // position of the series in the index
	first, last uint32
}

// slotSpans holds the spans of a metric's chunks in a slot, ordered by position. It is immutable.
type slotSpans struct {
	list []seriesSpan
	// unused is true if spans must not be used to exclude series: either most series have samples all the time, or a
	// page is unreadable. list is then empty.
	unused bool
}

func (s *slotSpans) Bytes() int64 { return int64(spanBytes * cap(s.list)) }

// spanPositions holds the positions of series in an index. If among isn't nil, it holds for each of these series its
// approximate position among the series that have chunks in the slots of the query.
type spanPositions struct{ positions, among []uint32 }

// filterBySpans removes the positions of series without samples in the request's range. It returns all positions unless
// many series match and the range is short.
func (r seriesFinder) filterBySpans(
	ctx context.Context, w *windowMetric, m *metricSeries, positions []uint32,
) (spanPositions, error) {
	all := spanPositions{positions: positions}
	slots := w.window.slots
	if len(positions) < cmp.Or(r.env.SpannedSeries, spannedSeries) || len(slots) > spannedSlots || m.at != nil {
		return all, nil
	}
	cursors := make([]spanCursor, len(slots))
	for i, slot := range slots {
		spans, err := r.slotSpans(ctx, w, m, slot)
		if err != nil || spans.unused {
			return all, err
		}
		start := r.env.Period.SlotStart(slot)
		cursors[i] = spanCursor{list: spans.list, minT: sinceStart(r.minT, start), maxT: sinceStart(r.maxT, start)}
	}
	kept := spanPositions{positions: []uint32{}, among: []uint32{}}
	for _, p := range positions {
		meets, among := false, 0
		for i := range cursors {
			meets = cursors[i].overlapsAt(p) || meets
			among += cursors[i].next
		}
		if meets {
			if len(kept.positions) == cap(kept.positions) { // append would grow a long list by a quarter only.
				room := min(len(positions)-len(kept.positions), max(spannedSeries, 4*len(kept.positions)))
				kept.positions, kept.among = slices.Grow(kept.positions, room), slices.Grow(kept.among, room)
			}
			kept.positions, kept.among = append(kept.positions, p), append(kept.among, uint32(among))
		}
	}
	return kept, nil
}

// sinceStart returns the time in milliseconds from start, the start of a slot, to t. The result is limited to the range
// of values that a span can hold.
func sinceStart(t, start int64) uint32 {
	if t <= start {
		return 0
	}
	return uint32(min(uint64(t-start), math.MaxUint32))
}

// spanCursor iterates over the spans of a slot.
type spanCursor struct {
	list       []seriesSpan
	next       int
	minT, maxT uint32
}

// overlapsAt reports whether the series at a position has a span that overlaps the range. Positions must increase from
// call to call.
func (c *spanCursor) overlapsAt(position uint32) (meets bool) {
	for c.next < len(c.list) && c.list[c.next].at < position {
		c.next++
	}
	for i := c.next; i < len(c.list) && c.list[i].at == position && !meets; i++ {
		meets = c.list[i].first <= c.maxT && c.minT <= c.list[i].last
	}
	return meets
}

// slotSpans returns the spans of a metric in a slot.
func (r seriesFinder) slotSpans(ctx context.Context, w *windowMetric, m *metricSeries, slot int64) (*slotSpans, error) {
	key := cache.EntryKey{Kind: cache.KindSpans, Window: slot, Tenant: r.tenant, Text: w.metric}
	v, err := r.env.Cache.Get(ctx, key, m.serial, func(ctx context.Context) (cache.EntryValue, error) {
		return r.loadSpans(ctx, w, m, slot)
	})
	if err != nil {
		return nil, err
	}
	return v.(*slotSpans), nil
}

// errSpansUnhelpful means that spans aren't used, because most series of the metric have samples all the time.
var errSpansUnhelpful = errors.New("storage: most series last")

// loadSpans reads the spans of a metric in a slot.
func (r seriesFinder) loadSpans(
	ctx context.Context, w *windowMetric, m *metricSeries, slot int64,
) (cache.EntryValue, error) {
	l := spansLoad{
		m: m, start: r.env.Period.SlotStart(slot), width: r.env.Period.SlotEnd(slot) - r.env.Period.SlotStart(slot),
		budget: r.newBudget(ctx),
	}
	for _, place := range usedPlaces(m.places) {
		l.place = place
		err := r.env.Rows.Spans(ctx, format.SeriesPartition(w.window.window, r.tenant, w.metric, place), l.start, l.add)
		switch {
		case errors.Is(err, errSpansUnhelpful), errors.Is(err, engine.ErrCorrupt): // Reading the chunks reports it.
			return &slotSpans{unused: true}, nil
		case err != nil:
			return nil, err
		}
	}
	slices.SortFunc(l.list, func(a, b seriesSpan) int { return cmp.Compare(a.at, b.at) })
	return &slotSpans{list: slices.Clip(l.list)}, nil
}

// spansLoad reads the spans of a metric in the slot that starts at start.
type spansLoad struct {
	m            *metricSeries
	place        format.ClassShard
	start, width int64
	budget       *meter.ReadBudget
	list         []seriesSpan
	lasting      int // chunks whose samples span, or may span, at least half of the slot
}

// add adds the span of a chunk that was read from l.place.
func (l *spansLoad) add(s paged.ChunkSpan) error {
	at, ok := l.positionOf(s.ID)
	if !ok {
		return nil // Its labels are unreadable, or were written after the index was built.
	}
	span := seriesSpan{at: at, last: math.MaxUint32}
	if s.First >= l.start && s.Last <= l.start+l.width {
		span.first, span.last = sinceStart(s.First, l.start), sinceStart(s.Last, l.start)
	}
	if int64(span.last-span.first) >= l.width/2 {
		if l.lasting++; l.lasting > len(l.m.ids)/2 {
			return errSpansUnhelpful
		}
	}
	l.list = append(l.list, span)
	return l.budget.Charge(spanBytes)
}

// positionOf returns the position in the index of the series in l.place with this id.
func (l *spansLoad) positionOf(id string) (at uint32, ok bool) {
	ids := l.m.ids
	i := sort.Search(len(ids), func(i int) bool { return bytes.Compare(ids[i][:], []byte(id)) >= 0 })
	for ; i < len(ids) && string(ids[i][:]) == id; i++ {
		if l.m.places == nil || l.m.places[i] == l.place {
			return uint32(i), true
		}
	}
	return 0, false
}
