package resolution

import (
	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// rawChunkSamples is what a raw chunk of a slot is taken to hold: two hours, every 15 s.
	rawChunkSamples = 480
	// manyChunks is how many raw chunks a series may be read for an exact answer where one from buckets would
	// almost be it: two days.
	manyChunks = 24
)

// fewSlots is how many slots a single window may touch to be read raw: to find out where buckets are takes longer.
const fewSlots = 2

// cheapest returns the way to an exact answer that decodes the least, and how many raw chunks it reads per series.
// kept isn't empty.
func (c *choice) cheapest(kept []rollup.Resolution, from, to int) (best Segment, chunks int) {
	covered := c.slotsCovered(from, to)
	best, chunks = c.segment(rollup.Raw, Aligned, from, to), covered
	if to-from == 1 && covered <= fewSlots {
		return best, chunks
	}
	least := int64(covered) * rawChunkSamples
	for _, res := range kept {
		buckets := int64(covered) * (c.Slot / res.Width())
		if c.fits(res, from, to) {
			if buckets < least {
				best, chunks, least = c.segment(res, Aligned, from, to), 0, buckets
			}
			continue
		}
		cut := c.slotsCut(res, from, to)
		// Two tables are read: that pays only where most slots needn't be read raw.
		if cost := buckets + int64(cut)*rawChunkSamples; 2*cut < covered && cost < least {
			best, chunks, least = c.segment(res, Ragged, from, to), cut, cost
		}
	}
	return best, chunks
}

// slotOf returns the number of the slot that a time lies in. Slots are left-open and right-closed.
func (c *choice) slotOf(t int64) int64 { return bucketfn.CeilTo(t, c.Slot) / c.Slot }

// slotsCovered returns the number of slots that the windows of these steps touch.
func (c *choice) slotsCovered(from, to int) int {
	if c.Step <= c.Range { // without space between
		return int(c.slotOf(c.right(to-1))-c.slotOf(c.right(from)-c.Range+1)) + 1
	}
	count, next := 0, c.slotOf(c.right(from)-c.Range+1)
	for k := from; k < to; k++ {
		first, last := max(next, c.slotOf(c.right(k)-c.Range+1)), c.slotOf(c.right(k))
		if last >= first {
			count += int(last-first) + 1
			next = last + 1
		}
	}
	return count
}

// slotsCut returns the number of slots in which an edge that matters cuts a bucket.
func (c *choice) slotsCut(res rollup.Resolution, from, to int) int {
	rights := edgeWalk{first: c.right(from), step: c.Step, left: to - from, width: res.Width(), slot: c.Slot}
	if c.fn.Newest {
		return rights.countSlots(&edgeWalk{})
	}
	lefts := rights
	lefts.first -= c.Range
	return rights.countSlots(&lefts)
}

// edgeWalk goes through the edges that cut buckets, and names their slots.
type edgeWalk struct {
	first, step int64
	left        int
	width, slot int64
}

// next returns the next slot in which an edge cuts a bucket, or false.
func (e *edgeWalk) next() (slot int64, ok bool) {
	for e.left > 0 {
		at := e.first
		if at%e.width == 0 {
			e.skip(1)
			continue
		}
		end := bucketfn.CeilTo(at, e.slot)
		if e.step > 0 { // the other edges in the slot don't matter
			e.skip(int((end-at)/e.step) + 1)
		} else {
			e.left = 0
		}
		return end / e.slot, true
	}
	return 0, false
}

func (e *edgeWalk) skip(edges int) {
	e.first += int64(edges) * e.step
	e.left -= edges
}

// countSlots returns how many slots the edges of both walks cut.
func (e *edgeWalk) countSlots(other *edgeWalk) int {
	count, last := 0, int64(0)
	a, inA := e.next()
	b, inB := other.next()
	for inA || inB {
		var slot int64
		if inA && (!inB || a <= b) {
			slot = a
			a, inA = e.next()
		} else {
			slot = b
			b, inB = other.next()
		}
		if count == 0 || slot != last {
			count, last = count+1, slot
		}
	}
	return count
}

// AppendCuts appends, ascending, the edges of the segment's windows that cut a bucket of its resolution and lie
// in (from, to). Around these, raw samples are read, and become cells that end at the edges (see
// rollup.AppendCells). A snapped segment has only the right edges that weren't moved, all others whose Fit isn't Ragged have none.
func (s Segment) AppendCuts(dst []int64, from, to int64) []int64 {
	start := len(dst)
	if s.Fit == Snapped && s.Windows.SnapUntil != 0 {
		dst = s.appendEdges(dst, s.Windows.First, max(from, s.Windows.SnapUntil), to)
		return dst[:start+len(sortedOnce(dst[start:]))]
	}
	if s.Fit != Ragged {
		return dst
	}
	dst = s.appendEdges(dst, s.Windows.First, from, to)
	if !s.newest {
		dst = s.appendEdges(dst, s.Windows.First-s.Windows.Span, from, to)
	}
	return dst[:start+len(sortedOnce(dst[start:]))]
}

// appendEdges appends those of the edges first, first+Step, … that cut a bucket and lie in (from, to).
func (s Segment) appendEdges(dst []int64, first, from, to int64) []int64 {
	k := int64(0)
	if s.Windows.Step > 0 && first <= from {
		k = (from - first) / s.Windows.Step
	}
	for ; k < int64(s.Windows.Steps); k++ {
		at := first + k*s.Windows.Step
		if at >= to {
			break
		}
		if at > from && at%s.Resolution.Width() != 0 {
			dst = append(dst, at)
		}
	}
	return dst
}
