package rollup

import (
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
)

// IsStartReset returns true if the start timestamp of a sample shows a counter reset after the previous sample, as
// defined by Prometheus' functions. Timestamps are in milliseconds; a start of 0 is unknown.
func IsStartReset(startBefore, before, start, t int64) bool {
	switch {
	case start == startBefore, start == 0, start >= t, start < before:
		return false
	case start > before:
		return true
	default: // The sample is a delta, unless the previous one has no valid start.
		return startBefore != 0 && startBefore < before
	}
}

// SinceStart returns the milliseconds from the start of a series to a sample at t, if the start is after the time
// after. Prometheus' rates then count from 0 at the start. Otherwise, or if the start is unknown, it returns 0.
func SinceStart(start, t, after int64) int64 {
	if start == 0 || start <= after || start >= t {
		return 0
	}
	return t - start
}

// IsStartOverlap returns true if a sample starts before the previous sample, and its start differs from the start of
// the previous sample.
func IsStartOverlap(startBefore, before, start int64) bool {
	return start != 0 && start < before && start != startBefore
}

// IsStartReset returns true if the start timestamp of the first sample of bucket i shows a counter reset after the last
// sample of bucket before. If these two samples aren't of the same kind, it returns false.
func (b *Buckets) IsStartReset(before, i int) bool {
	return b.FirstST != nil && b.sameKind(before, i) &&
		IsStartReset(b.LastST[before], b.LastT[before], b.FirstST[i], b.FirstT[i])
}

// StartOverlaps returns true if the start of the first sample of bucket i overlaps the last sample of an earlier
// bucket, as in IsStartOverlap, and both samples are of the same kind.
func (b *Buckets) StartOverlaps(before, i int) bool {
	return b.FirstST != nil && b.sameKind(before, i) && IsStartOverlap(b.LastST[before], b.LastT[before], b.FirstST[i])
}

// sameKind returns true if the last sample of bucket before and the first sample of bucket i are both floats or both
// histograms.
func (b *Buckets) sameKind(before, i int) bool {
	return (b.Flags[before]&LastIsHistogram != 0) == (b.Flags[i]&FirstIsHistogram != 0)
}

// startRun accumulates the start timestamps of consecutive samples, and the resets that only start timestamps show.
type startRun struct {
	first, last int64
	any         bool
	overlaps    bool
	correction  Sum
	resets      uint32
}

// countStep counts the transition from one sample to the next, and returns true if it is a reset by the start
// timestamp.
func (r *startRun) countStep(startBefore, before, start, t int64) bool {
	if start == startBefore {
		return false
	}
	r.overlaps = r.overlaps || IsStartOverlap(startBefore, before, start)
	return IsStartReset(startBefore, before, start, t)
}

// countJoint counts the transition from one bucket to the next, and returns true if it is a reset that only start
// timestamps show.
func (r *startRun) countJoint(b *Buckets, before, i int, isReset bool) bool {
	if b.FirstST == nil || !b.sameKind(before, i) {
		return false
	}
	if !r.countStep(b.LastST[before], b.LastT[before], b.FirstST[i], b.FirstT[i]) || isReset {
		return false
	}
	r.resets++
	r.correction.Add(b.Last[before])
	return true
}

// add adds the samples of a bucket.
func (r *startRun) add(b *Buckets, i int) {
	if b.FirstST == nil {
		return
	}
	if !r.any {
		r.any, r.first = true, b.FirstST[i]
	}
	r.last = b.LastST[i]
	if b.StartResets[i] > 0 {
		r.resets += b.StartResets[i]
		r.correction.Add(b.StartCorrection[i])
	}
}

// startsOfFloats returns the starts of the floats from index first to last, inclusive. The floats at both ends must not
// be stale markers.
func startsOfFloats(s *chunk.Samples, first, last int) startRun {
	r := startRun{first: s.ST[first], last: s.ST[last]}
	before := first
	for i := first + 1; i <= last; i++ {
		if isStaleFloat(s.V[i]) {
			continue
		}
		if r.countStep(s.ST[before], s.T[before], s.ST[i], s.T[i]) && !(s.V[i] < s.V[before]) {
			r.resets++
			r.correction.Add(s.V[before])
		}
		before = i
	}
	return r
}

// startColumns is memory for the columns of start timestamps.
type startColumns struct {
	first, last []int64
	correction  []float64
	resets      []uint32
}

// spareStarts returns the memory of b's columns of start timestamps, which must no longer be used.
func (b *Buckets) spareStarts() startColumns {
	if b.FirstST == nil {
		return b.spare
	}
	return startColumns{b.FirstST[:0], b.LastST[:0], b.StartCorrection[:0], b.StartResets[:0]}
}

// setStarts sets the start timestamps of bucket i, and creates the columns if needed.
func (b *Buckets) setStarts(i int, r startRun) {
	if r.overlaps {
		b.Flags[i] |= StartsOverlap
	}
	if b.FirstST == nil {
		if r.first == 0 && r.last == 0 && r.resets == 0 {
			return
		}
		b.FirstST, b.LastST = make([]int64, len(b.End), cap(b.End)), make([]int64, len(b.End), cap(b.End))
		b.StartCorrection, b.StartResets = make([]float64, len(b.End), cap(b.End)),
			make([]uint32, len(b.End), cap(b.End))
	}
	b.FirstST[i], b.LastST[i], b.StartResets[i] = r.first, r.last, r.resets
	if b.StartCorrection[i] = 0; r.resets > 0 {
		b.StartCorrection[i] = r.correction.Total()
	}
}

// The columns of start timestamps start with a byte for the base of the run that follows:
//
//	0  for first start timestamps, the start of the chunk's first bucket; for last ones, the first start timestamp of
//	   the same bucket
//	1  the sample's own timestamp
const (
	startsFar = 0
	startsOwn = 1
)

// encodeStarts writes the columns of start timestamps.
func (e *encoder) encodeStarts(b *Buckets, parts []part) {
	first, last := gather(b.FirstST, parts, full), gather(b.LastST, parts, full)
	if allZero(first) && allZero(last) {
		return
	}
	base := make([]int64, len(first))
	for i := range base {
		base[i] = b.Start[0]
	}
	if !allZero(first) {
		e.encodeRelative(columnFirstST, first, base, gather(b.FirstT, parts, full))
	}
	if !allZero(e.subtract(last, first)) {
		e.encodeRelative(columnLastST, last, first, gather(b.LastT, parts, full))
	}
}

// encodeRelative writes x relative to far or to own, whichever is shorter.
func (e *encoder) encodeRelative(id int, x, far, own []int64) {
	from := len(e.body)
	e.body = appendInts(append(e.body, startsFar), e.subtract(x, far))
	middle := len(e.body)
	e.body = appendInts(append(e.body, startsOwn), e.subtract(x, own))
	if middle-from <= len(e.body)-middle {
		e.body = e.body[:middle]
	} else {
		e.body = append(e.body[:from], e.body[middle:]...)
	}
	e.put(id, from)
}

func (e *encoder) subtract(x, y []int64) []int64 {
	z := e.zeros(len(x))
	for i, v := range x {
		z[i] = v - y[i]
	}
	return z
}

// decodeStarts appends the columns of start timestamps.
func (d *decoder) decodeStarts() error {
	into := d.into
	if !d.e.has(columnFirstST) && !d.e.has(columnLastST) && !d.e.has(columnStartResets) {
		if into.FirstST != nil {
			clear(extendTail(&into.FirstST, d.n))
			clear(extendTail(&into.LastST, d.n))
			clear(extendTail(&into.StartCorrection, d.n))
			clear(extendTail(&into.StartResets, d.n))
		}
		if d.e.has(columnStartCorrection) {
			return fmt.Errorf("%w: corrections by start timestamp without resets", ErrCorrupt)
		}
		return nil
	}
	if into.FirstST == nil {
		into.FirstST, into.LastST = into.spare.first, into.spare.last
		into.StartCorrection, into.StartResets = into.spare.correction, into.spare.resets
	}
	for _, column := range []*[]int64{&into.FirstST, &into.LastST} {
		clear(extendTail(column, d.at-len(*column))) // entries of earlier buckets
	}
	clear(extendTail(&into.StartCorrection, d.at-len(into.StartCorrection)))
	clear(extendTail(&into.StartResets, d.at-len(into.StartResets)))
	first, last := extendTail(&into.FirstST, d.n), extendTail(&into.LastST, d.n)
	if b := d.e.column(columnFirstST); len(b) > 0 && b[0] == startsFar && d.parts == nil && !d.e.has(columnLastST) &&
		!d.e.has(columnStartResets) {
		if v, ok := chunk.ConstantInts(b[1:]); ok { // This is the case unless a series restarts.
			for i := range first {
				first[i], last[i] = into.Start[d.at]+v, into.Start[d.at]+v
			}
			clear(extendTail(&into.StartResets, d.n))
			return d.startCorrections(extendTail(&into.StartCorrection, d.n), nil)
		}
	}
	far := make([]int64, d.full)
	for i := range far {
		far[i] = into.Start[d.at]
	}
	clear(first)
	if err := d.decodeRelative(columnFirstST, first[:d.full], far); err != nil {
		return err
	}
	copy(last, first)
	if err := d.decodeRelative(columnLastST, last[:d.full], first); err != nil {
		return err
	}
	d.expandIntegers(first, d.full, full)
	d.expandIntegers(last, d.full, full)
	resets := extendTail(&into.StartResets, d.n)
	if err := d.startResets(resets); err != nil {
		return err
	}
	return d.startCorrections(extendTail(&into.StartCorrection, d.n), resets)
}

// Column startResets starts with a byte:
//
//	0  a run of the numbers of resets
//	1  a run of count − 1 − resets minus these numbers: all 0 if each sample is a reset, as with deltas
const (
	startResetsPlain = 0
	startResetsLeft  = 1
)

// startResets decodes into x the number of counter resets per bucket that can be detected only from start timestamps.
func (d *decoder) startResets(x []uint32) error {
	b := d.e.column(columnStartResets)
	if len(b) == 0 {
		clear(x)
		return nil
	}
	const what = "resets by start timestamp"
	numbers := make([]int64, 3*d.full)
	numbers, most, resets := numbers[:d.full], numbers[d.full:][:d.full], numbers[2*d.full:]
	if err := decodeInts(b[1:], numbers, what); err != nil {
		return err
	}
	if err := decodeInts(d.e.column(columnCount), most, "counts"); err != nil {
		return err
	}
	if err := decodeInts(d.e.column(columnResets), resets, "resets"); err != nil {
		return err
	}
	if b[0] > startResetsLeft {
		return fmt.Errorf("%w: %s of unknown kind %d", ErrCorrupt, what, b[0])
	}
	for i, n := range numbers {
		if most[i] -= 1 + resets[i]; b[0] == startResetsLeft {
			n = most[i] - n
		}
		if n < 0 || n > math.MaxUint32 { // The count may be smaller for buckets that aren't simple.
			return fmt.Errorf("%w: %d %s", ErrCorrupt, n, what)
		}
		x[i] = uint32(n)
	}
	if d.parts != nil {
		expandColumn(x, d.parts, d.full, full)
	}
	return nil
}

// startsBySum is the first byte of column startCorrection if integers follow. The column covers the buckets with start
// resets and without histograms. Values are stored as integers, by chunk.OrderedBits, minus the integer of the
// prediction sum − last − correction. The prediction is exact for deltas, where each sample is a reset. The first byte:
//
//	0  a run of integers follows
//	1  values follow instead, if that is shorter
//
// If the column is absent, all integers are 0.
const startsBySum = 0

// correctedByStart returns the indices of the buckets in the column of start corrections, and their predicted integers.
func (b *Buckets) correctedByStart() (at []int, predicted []int64) {
	for i, n := range b.StartResets {
		if n > 0 && b.Flags[i]&HasHistograms == 0 {
			at = append(at, i)
			predicted = append(predicted, floatInteger(b.Sum[i]-b.Last[i]-b.Correction[i]))
		}
	}
	return at, predicted
}

// startResets writes the columns of start resets and of their corrections.
func (e *encoder) startResets(b *Buckets, parts []part) {
	if b.FirstST == nil {
		return
	}
	resets := e.widen(gather(b.StartResets, parts, full))
	if allZero(resets) {
		return
	}
	left := e.zeros(len(resets))
	byValue := gather(b.Resets, parts, full)
	for k, n := range gather(b.Count, parts, full) {
		left[k] = int64(n) - 1 - int64(byValue[k]) - resets[k]
	}
	from := len(e.body)
	e.body = appendInts(append(e.body, startResetsPlain), resets)
	middle := len(e.body)
	e.body = appendInts(append(e.body, startResetsLeft), left)
	if middle-from <= len(e.body)-middle {
		e.body = e.body[:middle]
	} else {
		e.body = append(e.body[:from], e.body[middle:]...)
	}
	e.put(columnStartResets, from)
	e.startCorrection(b)
	var corrections chunk.Samples
	for i, h := range b.Histograms {
		if h != nil && h.StartCorrection != nil {
			corrections.AppendHistogram(chunk.Histogram{T: int64(i), Float: h.StartCorrection})
		}
	}
	e.encodeSamples(columnStartCorrections, &corrections)
}

// startCorrection writes the column of start corrections.
func (e *encoder) startCorrection(b *Buckets) {
	at, predicted := b.correctedByStart()
	v, integers := make([]float64, len(at)), e.zeros(len(at))
	for k, i := range at {
		v[k] = b.StartCorrection[i]
		integers[k] = chunk.OrderedBits(v[k]) - predicted[k]
	}
	if allZero(integers) {
		return
	}
	from := len(e.body)
	e.body = appendInts(append(e.body, startsBySum), integers)
	middle := len(e.body)
	e.body = chunk.AppendValues(append(e.body, byValues), v)
	if middle-from <= len(e.body)-middle {
		e.body = e.body[:middle]
	} else {
		e.body = append(e.body[:from], e.body[middle:]...)
	}
	e.put(columnStartCorrection, from)
}

// startCorrections fills column. resets has the numbers of start resets.
func (d *decoder) startCorrections(column []float64, resets []uint32) error {
	clear(column)
	any := false
	for i, n := range resets {
		any = any || n > 0 && d.into.Flags[d.at+i]&HasHistograms == 0
	}
	if !any {
		if d.e.has(columnStartCorrection) {
			return fmt.Errorf("%w: corrections by start timestamp without resets", ErrCorrupt)
		}
		return nil
	}
	known := splitting.Get().(*Buckets)
	defer splitting.Put(known)
	known.Reset()
	if err := decodeColumns(d.e, ColumnLast|ColumnSum|ColumnCorrection, known); err != nil {
		return err
	}
	known.StartResets = resets
	at, integers := known.correctedByStart()
	b := d.e.column(columnStartCorrection)
	switch {
	case len(b) > 0 && b[0] == byValues:
		v := make([]float64, len(at))
		if err := decodeValues(b[1:], v, "corrections by start timestamp"); err != nil {
			return err
		}
		for k, i := range at {
			column[i] = v[k]
		}
		return nil
	case len(b) > 0 && b[0] != startsBySum:
		return fmt.Errorf("%w: corrections by start timestamp of unknown kind %d", ErrCorrupt, b[0])
	case len(b) > 0:
		residues := make([]int64, len(at))
		if err := decodeInts(b[1:], residues, "corrections by start timestamp"); err != nil {
			return err
		}
		for k, residue := range residues {
			integers[k] += residue
		}
	}
	for k, i := range at {
		column[i] = chunk.FromOrderedBits(integers[k])
	}
	return nil
}

// decodeRelative fills x from a column of start timestamps. If the column is absent, x is unchanged.
func (d *decoder) decodeRelative(id int, x, far []int64) error {
	b := d.e.column(id)
	if len(b) == 0 {
		return nil
	}
	base := far
	switch b[0] {
	case startsFar:
	case startsOwn:
		base = make([]int64, d.full)
		if err := d.ownTimes(id, base); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: start timestamps of unknown encoding %d", ErrCorrupt, b[0])
	}
	if err := decodeInts(b[1:], x, "start timestamps"); err != nil {
		return err
	}
	for i := range x {
		x[i] += base[i]
	}
	return nil
}

// ownTimes fills t with the samples' timestamps to which a column of start timestamps may be relative.
func (d *decoder) ownTimes(id int, t []int64) error {
	if id == columnFirstST {
		return d.decodeFirstTimes(t)
	}
	return d.decodeLastTimes(t)
}
