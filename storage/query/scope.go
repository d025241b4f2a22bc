package query

import (
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// scope is what a query may see of what it asked for.
type scope struct {
	of *rowReader
	// hidden are the horizons of the tenant's classes, and classes those that were asked for. gaps are ranges of time of which 1h rollups
	// may be missing, and in a query for buckets raw rows: there each slot is answered from samples or from rollups.
	hidden  []retention.Hidden
	gaps    retention.Gaps
	classes uint64
	// minT and maxT bound the times, milliseconds; nothing is seen if minT > maxT.
	minT, maxT int64
	// deletes are those that touch that range.
	deletes format.Tombstones
}

// hiddenIn returns the newest timestamp that a class no longer keeps at a resolution, milliseconds.
func (r *scope) hiddenIn(class int64, res rollup.Resolution) int64 {
	if class < int64(len(r.hidden)) {
		return r.hidden[class].At[res]
	}
	return r.of.env.Retention.Past(r.of.tenant, class, res) // It was added meanwhile.
}

// earliest and latest return the newest timestamp that no class keeps any more, and that one of them doesn't.
func (r *scope) earliest(res rollup.Resolution) int64 {
	t := r.hidden[0].At[res]
	for i := range r.hidden {
		t = min(t, r.hidden[i].At[res])
	}
	return t
}

func (r *scope) latest(res rollup.Resolution) int64 {
	t := r.hidden[0].At[res]
	for i := range r.hidden {
		t = max(t, r.hidden[i].At[res])
	}
	return t
}

// shows reports whether anything of a class is to be seen in a window.
func (r *scope) shows(class int64, window int64) bool {
	res, end := format.ResolutionOf(window), r.of.env.Period.WindowEnd(window)
	return r.classes&(1<<class) != 0 && end > r.hiddenIn(class, res) && !r.gaps.Hold(class, res, end)
}

// lacksRaw reports whether samples of some class may be lacking in a slot.
func (r *scope) lacksRaw(slot int64) bool {
	if r.of.env.Period.SlotStart(slot) < r.latest(rollup.Raw) {
		return true
	}
	return r.gaps.HoldAny(r.of.env.Period.SlotEnd(slot))
}

// visible returns those of the positions whose series are in a class of which the window shows anything.
func (r *scope) visible(w *sealedWindow, m *metricSeries, positions []uint32) []uint32 {
	if m.places == nil {
		if !r.shows(retention.DefaultClass, w.window) {
			return nil
		}
		return positions
	}
	var kept []uint32
	for i, p := range positions {
		switch {
		case !r.shows(m.places[p].Class(), w.window):
			if kept == nil {
				kept = append(make([]uint32, 0, len(positions)), positions[:i]...)
			}
		case kept != nil:
			kept = append(kept, p)
		}
	}
	if kept != nil {
		return kept
	}
	return positions
}

// sourceOf returns the source of a metric in one of its places.
func (r *scope) sourceOf(w windowMetric, at format.ClassShard) source {
	class := at.Class()
	return source{
		window: w.window, metric: w.metric, place: at, class: class,
		hidden: r.hiddenIn(class, format.ResolutionOf(w.window.window)), hiddenRaw: r.hiddenIn(class, rollup.Raw),
	}
}

// hasSamples reports whether a slot's samples answer as well as its rollups: it has marks of raw rows, or is of a time from which
// none are lacking. A seal that was cut short may have left rollups there with marks of their own.
func (r *scope) hasSamples(sums map[int64]uint64, slot int64) bool {
	_, ok := sums[slot]
	return ok || !r.lacksRaw(slot)
}
