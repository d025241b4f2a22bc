package storage

import (
	"slices"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// What is past the retention of its class is hidden, though its rows may still stand.

// hiddenIn returns the newest timestamp that a class no longer keeps at a resolution, milliseconds.
func (r *request) hiddenIn(class int64, res rollup.Resolution) int64 {
	if class < int64(len(r.hidden)) {
		return r.hidden[class].At[res]
	}
	return r.s.wanted(r.s.classes.keep(r.tenant, class).Of(res)) // It was added meanwhile.
}

// earliest and latest return the newest timestamp that no class keeps any more, and that one of them doesn't.
func (r *request) earliest(res rollup.Resolution) int64 {
	t := r.hidden[0].At[res]
	for i := range r.hidden {
		t = min(t, r.hidden[i].At[res])
	}
	return t
}

func (r *request) latest(res rollup.Resolution) int64 {
	t := r.hidden[0].At[res]
	for i := range r.hidden {
		t = max(t, r.hidden[i].At[res])
	}
	return t
}

// shows says whether anything of a class is to be seen in a window.
func (r *request) shows(class int64, window int64) bool {
	return r.classes&(1<<class) != 0 && r.s.period.WindowEnd(window) > r.hiddenIn(class, format.ResolutionOf(window)) &&
		(format.ResolutionOf(window) != rollup.Raw || !inGap(r.gaps, class, r.s.period.WindowEnd(window)))
}

// lacksRaw says whether samples of some class may be lacking in a slot.
func (r *request) lacksRaw(slot int64) bool {
	if r.s.period.SlotStart(slot) < r.latest(rollup.Raw) {
		return true
	}
	end := r.s.period.SlotEnd(slot)
	return slices.ContainsFunc(r.gaps, func(g classGap) bool { return inGap(r.gaps, g.class, end) })
}

// visible returns those of the positions whose series are in a class of which the window shows anything.
func (r *request) visible(w sealedWindow, m *metricSeries, positions []uint32) []uint32 {
	if m.places == nil {
		if !r.shows(classDefault, w.window) {
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

// sourceOf returns what is read of a metric in one of its places.
func (r *request) sourceOf(w windowMetric, at format.ClassShard) source {
	class := at.Class()
	return source{
		window: w.window, metric: w.metric, place: at, class: class,
		hidden: r.hiddenIn(class, format.ResolutionOf(w.window.window)), hiddenRaw: r.hiddenIn(class, rollup.Raw),
	}
}

// open finds the unsealed series.
func (r *request) open() []openSeries {
	list := r.s.selectOpen(r.tenant, r.matchers, r.minT, r.maxT)
	kept := list[:0]
	for i := range list {
		o := &list[i]
		o.hidden, o.gaps = r.hiddenIn(o.class, rollup.Raw), r.gaps
		if r.classes&(1<<o.class) != 0 {
			kept = append(kept, *o)
		}
	}
	return kept
}
