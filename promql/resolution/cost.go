package resolution

import (
	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// rawChunkSamples is the assumed number of samples in a raw chunk: two hours at an interval of 15 s.
	rawChunkSamples = 480
	// maxExactChunks is the max number of raw chunks per series that modeAuto reads for an exact result if buckets give
	// a nearly exact one: two days of chunks.
	maxExactChunks = 24
)

// maxRawSlots is the max number of slots of a single window that is always read raw, because finding the buckets would
// take longer.
const maxRawSlots = 2

// cheapestSegment returns the exact segment that decodes the fewest values, and the number of raw chunks that it reads
// per series. kept must not be empty.
func (c *choice) cheapestSegment(kept []rollup.Resolution, from, to int) (best Segment, chunks int) {
	covered := c.countCoveredSlots(from, to)
	best, chunks = c.newSegment(rollup.Raw, FitAligned, from, to), covered
	if to-from == 1 && covered <= maxRawSlots {
		return best, chunks
	}
	least := int64(covered) * rawChunkSamples
	for _, res := range kept {
		buckets := int64(covered) * (c.Slot / res.Width())
		if c.fitsBuckets(res, from, to) {
			if buckets < least {
				best, chunks, least = c.newSegment(res, FitAligned, from, to), 0, buckets
			}
			continue
		}
		cut := c.countCutSlots(res, from, to)
		// Ragged segments read two tables. This pays off only if buckets replace the raw samples of most slots.
		if cost := buckets + int64(cut)*rawChunkSamples; 2*cut < covered && cost < least {
			best, chunks, least = c.newSegment(res, FitRagged, from, to), cut, cost
		}
	}
	return best, chunks
}

// slotOf returns the number of the slot of a time. Slots are left-open and right-closed.
func (c *choice) slotOf(t int64) int64 { return bucketfn.CeilTo(t, c.Slot) / c.Slot }

// countCoveredSlots returns the number of slots that overlap the windows of the steps in [from, to).
func (c *choice) countCoveredSlots(from, to int) int {
	if c.Step <= c.Range { // no gaps between windows
		return int(c.slotOf(c.rightEdge(to-1))-c.slotOf(c.rightEdge(from)-c.Range+1)) + 1
	}
	count, next := 0, c.slotOf(c.rightEdge(from)-c.Range+1)
	for k := from; k < to; k++ {
		first, last := max(next, c.slotOf(c.rightEdge(k)-c.Range+1)), c.slotOf(c.rightEdge(k))
		if last >= first {
			count += int(last-first) + 1
			next = last + 1
		}
	}
	return count
}

// countCutSlots returns the number of slots in which a window edge that the function uses cuts a bucket.
func (c *choice) countCutSlots(res rollup.Resolution, from, to int) int {
	rights := edgeWalk{first: c.rightEdge(from), step: c.Step, left: to - from, width: res.Width(), slot: c.Slot}
	if c.fn.Newest {
		return rights.countSlots(&edgeWalk{})
	}
	lefts := rights
	lefts.first -= c.Range
	return rights.countSlots(&lefts)
}

// edgeWalk iterates over the slots in which edges cut buckets.
type edgeWalk struct {
	first, step int64
	left        int
	width, slot int64
}

// next returns the next slot in which an edge cuts a bucket, or false at the end.
func (e *edgeWalk) next() (slot int64, ok bool) {
	for e.left > 0 {
		at := e.first
		if at%e.width == 0 {
			e.skip(1)
			continue
		}
		end := bucketfn.CeilTo(at, e.slot)
		if e.step > 0 { // skip the other edges in the slot
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

// countSlots returns the number of distinct slots of both walks.
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

// AppendCuts appends, in ascending order, the window edges in (from, to) that cut a bucket of the segment's resolution.
// The reader reads raw samples around these edges and converts them to cells that end at the edges (see
// rollup.AppendCells). A FitRagged segment has such edges on both sides of its windows. A FitSnapped segment has only
// right edges that weren't moved. All other segments have none.
func (s Segment) AppendCuts(dst []int64, from, to int64) []int64 {
	start := len(dst)
	if s.Fit == FitSnapped && s.Windows.SnapUntil != 0 {
		dst = s.appendEdges(dst, s.Windows.First, max(from, s.Windows.SnapUntil), to)
		return dst[:start+len(sortAndCompact(dst[start:]))]
	}
	if s.Fit != FitRagged {
		return dst
	}
	dst = s.appendEdges(dst, s.Windows.First, from, to)
	if !s.newest {
		dst = s.appendEdges(dst, s.Windows.First-s.Windows.Span, from, to)
	}
	return dst[:start+len(sortAndCompact(dst[start:]))]
}

// appendEdges appends the edges first, first+Step, … in (from, to) that cut a bucket.
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
