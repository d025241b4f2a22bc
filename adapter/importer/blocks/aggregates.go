package blocks

import (
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/rollup"
)

// window holds the aggregates of one window [start, end). Times are in milliseconds.
type window struct {
	start, end int64
	// stamp is the time of the last sample if the window is the chunk's last and ends early, otherwise end − 1.
	stamp             int64
	n                 uint32
	sum, least, most  float64
	counter           float64 // the counter's value at the end of the window, see aggregateCounter
	first, last       float64
	firstT, lastT     int64
	rises, correction float64
}

// chunkWindows are the windows of a chunk.
type chunkWindows struct {
	width int64
	list  []window
	// first is the first sample and last the last value of the chunk. They are valid if hasCounter is set.
	first      stamped
	last       float64
	hasCounter bool
}

// windowsOf returns the windows of a chunk of aggregates. width is in milliseconds.
func windowsOf(c *aggregateChunk, width int64) (*chunkWindows, error) {
	all, err := c.points()
	if err != nil {
		return nil, err
	}
	w := &chunkWindows{width: width}
	counts := all[aggregateCount]
	for i, name := range [...]string{
		aggregateCount: "count", aggregateSum: "sum", aggregateMin: "min", aggregateMax: "max",
	} {
		if len(all[i]) != len(counts) {
			return nil, fmt.Errorf("%w: %d windows have a %s, and %d a count",
				errAggregates, len(all[i]), name, len(counts))
		}
	}
	for i, p := range counts {
		for _, of := range [...]int{aggregateSum, aggregateMin, aggregateMax} {
			if all[of][i].t != p.t {
				return nil, fmt.Errorf("%w: windows of different times", errAggregates)
			}
		}
		if !(p.v >= 1 && p.v <= float64(width)) || p.v != math.Trunc(p.v) {
			return nil, fmt.Errorf("%w: a window of %v samples at %d ms; it may have 1 to %d", errAggregates, p.v, p.t,
				width)
		}
		if i > 0 && p.t <= counts[i-1].t {
			return nil, fmt.Errorf("%w: windows out of order: %d ms after %d ms", errAggregates, p.t, counts[i-1].t)
		}
		start := p.t - (p.t%width+width)%width
		if i > 0 && start < w.list[i-1].end {
			return nil, fmt.Errorf(
				"%w: two windows in the %d ms from %d ms on; meta.json may declare another resolution", errAggregates,
				width, start,
			)
		}
		x := window{
			start: start, end: start + width, stamp: p.t, n: uint32(p.v),
			sum: all[aggregateSum][i].v, least: all[aggregateMin][i].v, most: all[aggregateMax][i].v,
		}
		if !rollup.IsPossible(x.n, x.sum, x.least, x.most) {
			return nil, fmt.Errorf("%w: the sum %v, min %v and max %v of the %d samples at %d ms contradict each other",
				errAggregates, x.sum, x.least, x.most, x.n, p.t)
		}
		w.list = append(w.list, x)
	}
	w.setCounter(all[aggregateCounter])
	return w, nil
}

// setCounter sets the fields that derive from the counter's samples. If the samples don't match the windows, it sets
// none of the fields.
func (w *chunkWindows) setCounter(counter []stamped) {
	if len(w.list) == 0 || len(counter) != len(w.list)+2 {
		return
	}
	for i := range w.list {
		if p := counter[i+1]; p.t != w.list[i].stamp || !(math.Abs(p.v) <= math.MaxFloat64) {
			return
		}
	}
	w.first, w.last, w.hasCounter = counter[0], counter[len(counter)-1].v, true
	for i := range w.list {
		w.list[i].counter = counter[i+1].v
		w.list[i].rises = counter[i+1].v - counter[i].v
	}
}

// estimate sets the first and last sample and the correction of each window. isCounter is set if the series is known to
// be a counter.
func (w *chunkWindows) estimate(isCounter bool) {
	w.estimateTimes()
	if w.hasCounter {
		if odd := w.estimateCounter(); isCounter || 4*odd <= len(w.list) {
			return
		}
	}
	for i := range w.list {
		x := &w.list[i]
		mean := min(max(x.sum/float64(x.n), x.least), x.most)
		x.first, x.last, x.correction = mean, mean, 0
	}
	if w.hasCounter {
		w.list[0].first = w.list[0].inside(w.first.v)
		x := &w.list[len(w.list)-1]
		x.last = x.inside(w.last)
	}
}

func (x *window) inside(v float64) float64 { return min(max(v, x.least), x.most) }

// near reports whether two values are equal except for rounding errors.
func near(a, b float64) bool {
	return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b))
}

// estimateCounter sets the first and last values and the corrections of a counter. It returns the number of windows
// with a possible reset. In a window without a reset, the first value is the min and the last value is the max. With
// the corrections, the increase between any two windows equals the increase of the samples.
//
//	rises of window i = (last[i] − first[i] + correction[i]) + (first[i] − last[i-1], or first[i] after a reset)
func (w *chunkWindows) estimateCounter() (odd int) {
	before, isKnown := w.first.v, true // last value of the previous window
	for i := range w.list {
		x := &w.list[i]
		if isKnown && x.least >= before && near(before+x.rises, x.most) {
			x.first, x.last, x.correction = x.least, x.most, 0
			if before = x.last; i == 0 {
				x.first = x.inside(w.first.v)
			}
			continue
		}
		odd++
		x.last, isKnown = w.lastOf(i)
		rises := x.rises
		switch {
		case i == 0:
			x.first = x.inside(w.first.v)
		case before > x.most: // The counter was reset between the windows.
			x.first = x.least
			rises -= x.first
		default:
			x.first = x.inside(before)
			rises -= x.first - before
		}
		x.correction = max(rises-(x.last-x.first), 0)
		if near(x.correction+x.most, x.most) {
			x.correction = 0
		}
		before = x.last
	}
	return odd
}

// lastOf returns the last value of a window with a possible reset. isKnown is true if the value follows from the end of
// the chunk, or from the next window if the next window has no reset.
func (w *chunkWindows) lastOf(i int) (v float64, isKnown bool) {
	x := &w.list[i]
	if i == len(w.list)-1 {
		return x.inside(w.last), true
	}
	next := &w.list[i+1]
	v = x.inside(next.most - next.rises)
	if near(v+next.rises, next.most) && v <= next.least {
		return v, true
	}
	return x.least, false
}

// estimateTimes sets the times of the first and last sample of each window as if samples were evenly spaced. If a
// window next to a gap has fewer samples than other windows, its samples are placed away from the gap: at the end of
// the window if the gap is before it, and at its start if the gap is after it.
func (w *chunkWindows) estimateTimes() {
	most := uint32(0)
	for i := range w.list {
		most = max(most, w.list[i].n)
	}
	usual := float64(w.width) / float64(max(most, 1))
	for i := range w.list {
		x := &w.list[i]
		from, to := float64(x.start), float64(x.end)
		knowsFirst, knowsLast := i == 0 && w.hasCounter && w.first.t >= x.start, x.stamp < x.end-1
		if knowsFirst {
			from = float64(w.first.t)
		}
		if knowsLast {
			to = float64(x.stamp)
		}
		n := float64(x.n)
		begins := i > 0 && w.list[i-1].end < x.start
		ends := i < len(w.list)-1 && w.list[i+1].start > x.end
		switch step := (to - from) / n; {
		case knowsFirst && knowsLast:
		case knowsFirst:
			to = from + step*(n-1)
		case knowsLast:
			from = to - step*(n-1)
		case begins && !ends:
			to -= usual / 2
			from = to - usual*(n-1)
		case ends && !begins:
			from += usual / 2
			to = from + usual*(n-1)
		default:
			from, to = from+step/2, to-step/2
		}
		x.firstT = min(max(int64(from), x.start+1), x.end-1)
		x.lastT = min(max(int64(to), x.firstT), x.end-1)
		if x.n == 1 {
			x.firstT = x.lastT
		}
	}
}

// join adds the part of the same window that is in a later chunk.
func (x *window) join(later *window) {
	if later.first < x.last {
		x.correction += x.last
	}
	x.n += later.n
	x.sum += later.sum
	x.least, x.most = min(x.least, later.least), max(x.most, later.most)
	x.last, x.lastT = later.last, max(later.lastT, x.firstT)
	x.correction += later.correction
	x.stamp = later.stamp
}

// appendWindows appends the windows of a later chunk to the windows of earlier chunks, ordered by time.
func appendWindows(all []window, later []window) []window {
	for i := range later {
		if n := len(all); n > 0 && all[n-1].end == later[i].end {
			all[n-1].join(&later[i])
			continue
		}
		all = append(all, later[i])
	}
	return all
}

// appendBuckets appends a bucket with the same edges for each window. Windows are left-closed and buckets left-open, so
// these buckets include samples at their left edge and exclude samples at their right edge.
func appendBuckets(into *rollup.Buckets, list []window) {
	for i := range list {
		x := &list[i]
		into.AppendAggregate(rollup.Aggregate{
			End: x.end, Count: x.n, Sum: x.sum, Min: x.least, Max: x.most, First: x.first, Last: x.last,
			FirstT: x.firstT, LastT: x.lastT, Correction: x.correction,
		}, x.end-x.start)
	}
}
