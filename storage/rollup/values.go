package rollup

import (
	"fmt"

	"github.com/cassia-db/cassia/storage/chunk"
)

// decodeValues appends the columns of floats.
func (d *decoder) decodeValues(want Columns) error {
	derived := want & (ColumnMin | ColumnMax | ColumnSum | ColumnMoment | ColumnLine)
	if d.e.has(columnCorrection) {
		derived |= want & ColumnCorrection
	}
	if want&ColumnCorrection != 0 && derived&ColumnCorrection == 0 {
		clear(extendTail(&d.into.Correction, d.n))
	}
	if derived|want&(ColumnFirst|ColumnLast) == 0 {
		return nil
	}
	var small [2 * smallChunk]int64
	space := small[:]
	if d.floats > smallChunk {
		p := wideSpace(2 * d.floats)
		defer wide.Put(p)
		space = *p
	}
	local := *d // a copy, so that space can remain on the stack
	local.l.first, local.l.last = space[:d.floats], space[d.floats:][:d.floats]
	if err := local.decodeFirstAndLast(want); err != nil || derived == 0 {
		return err
	}
	return local.decodeDerived(derived)
}

// decodeFirstAndLast appends the first and last values.
func (d *decoder) decodeFirstAndLast(want Columns) error {
	if d.floats > 0 {
		if err := d.l.decodeEnds(d.e.column(columnFirst), d.e.column(columnLast)); err != nil {
			return err
		}
	}
	if want&ColumnFirst != 0 {
		v := extendTail(&d.into.First, d.n)
		d.l.floats(v[:d.floats], d.l.first)
		d.placeValues(v)
	}
	if want&ColumnLast != 0 {
		v := extendTail(&d.into.Last, d.n)
		d.l.floats(v[:d.floats], d.l.last)
		d.placeValues(v)
	}
	return nil
}

// placeValues moves the first values of v to the positions of the buckets of floats.
func (d *decoder) placeValues(v []float64) {
	if d.parts != nil {
		expandColumn(v, d.parts, d.floats, ofFloats)
	}
}

// decodeDerived appends the columns that are derived from the first and last values.
func (d *decoder) decodeDerived(want Columns) error {
	var small [5 * smallChunk]int64
	space := small[:]
	n := d.floats
	if n > smallChunk {
		p := wideSpace(5 * n)
		defer wide.Put(p)
		space = *p
	}
	local := *d
	local.l.min, local.l.max = space[:n], space[n:][:n]
	local.l.sum = space[2*n:][:n]
	return local.extremesAndSums(want, space[3*n:])
}

// extremesAndSums is decodeDerived with scratch memory in d.l and space.
func (d *decoder) extremesAndSums(want Columns, space []int64) error {
	n := d.floats
	if err := d.decodeExtremes(); err != nil {
		return err
	}
	if want&ColumnMin != 0 {
		v := extendTail(&d.into.Min, d.n)
		d.l.floats(v[:n], d.l.min)
		d.placeValues(v)
	}
	if want&ColumnMax != 0 {
		v := extendTail(&d.into.Max, d.n)
		d.l.floats(v[:n], d.l.max)
		d.placeValues(v)
	}
	correction := d.e.column(columnCorrection)
	switch {
	case want&(ColumnSum|ColumnMoment|ColumnLine) != 0 || want&ColumnCorrection != 0 && correction[0] == bySum:
		return d.decodeSums(want, correction, space)
	case want&ColumnCorrection != 0:
		return d.decodeCorrections(correction, nil, space)
	default:
		return nil
	}
}

// decodeExtremes fills the min and max integers.
func (d *decoder) decodeExtremes() error {
	l := &d.l
	if err := decodeInts(d.e.column(columnMin), l.min, "min values"); err != nil {
		return err
	}
	if err := decodeInts(d.e.column(columnMax), l.max, "max values"); err != nil {
		return err
	}
	last, least, greatest := l.last[:len(l.first)], l.min[:len(l.first)], l.max[:len(l.first)]
	for i, first := range l.first {
		least[i] = min(first, last[i]) - least[i]
		greatest[i] += max(first, last[i])
	}
	return nil
}

// decodeSums appends the sums, moments and lines, and the corrections if they are requested.
func (d *decoder) decodeSums(want Columns, correction []byte, space []int64) error {
	n := d.floats
	count, space := space[:n], space[n:]
	if err := d.floatCounts(count); err != nil {
		return err
	}
	switch {
	case want&ColumnSum == 0 &&
		(want&ColumnCorrection != 0 && correction[0] == bySum || want&ColumnMoment != 0 && d.momentsNeedSums()):
		if err := d.decodeHighSums(nil, count); err != nil {
			return err
		}
	case want&ColumnSum != 0:
		high, low := extendTail(&d.into.Sum, d.n), extendTail(&d.into.SumLow, d.n)
		if err := d.decodeHighSums(high[:n], count); err != nil {
			return err
		}
		d.placeValues(high)
		if err := d.decodeLowSums(low[:n], space); err != nil {
			return err
		}
		d.placeValues(low)
	}
	if want&ColumnMoment != 0 {
		if err := d.decodeMoments(count, space); err != nil {
			return err
		}
	}
	if want&ColumnLine != 0 {
		if err := d.decodeLines(count); err != nil {
			return err
		}
	}
	if want&ColumnCorrection == 0 {
		return nil
	}
	return d.decodeCorrections(correction, count, space)
}

// floatCounts fills count with the numbers of samples of buckets of floats.
func (d *decoder) floatCounts(count []int64) error {
	if d.floats == d.full {
		if err := decodeInts(d.e.column(columnCount), count, "counts"); err != nil {
			return err
		}
	} else {
		all := make([]uint32, d.n)
		if err := d.decodeCounts(all); err != nil {
			return err
		}
		widen(count, gather(all, d.parts, ofFloats))
	}
	for _, c := range count {
		if c <= 0 {
			return fmt.Errorf("%w: a bucket has an invalid count of %d", ErrCorrupt, c)
		}
	}
	return nil
}

// decodeHighSums computes the integers of sums, and fills v with the sums unless it is nil.
func (d *decoder) decodeHighSums(v []float64, count []int64) error {
	b := d.e.column(columnSum)
	switch {
	case d.floats == 0:
		return nil
	case len(b) == 0:
		d.l.predictSums(byEnds, d.l.sum, count)
		if v != nil {
			d.l.floats(v, d.l.sum)
		}
		return nil
	case b[0] > byBoth:
		return fmt.Errorf("%w: sums of unknown kind %d", ErrCorrupt, b[0])
	case b[0] != byValues:
		d.l.predictSums(b[0], d.l.sum, count)
		return d.decodeResidues(b[1:], d.l.sum, v, "sums")
	case v == nil:
		return fmt.Errorf("%w: integer sums are missing", ErrCorrupt)
	default:
		return decodeValues(b[1:], v, "sums")
	}
}

// decodeLowSums fills v with the low sums of buckets of floats. temp is scratch memory of at least the same length.
func (d *decoder) decodeLowSums(v []float64, temp []int64) error {
	b := d.e.column(columnSumLow)
	if len(b) == 0 {
		clear(v)
		return nil
	}
	if b[0] == byValues {
		return decodeValues(b[1:], v, "low sums")
	}
	if b[0] != lowUnits {
		return fmt.Errorf("%w: low sums of unknown kind %d", ErrCorrupt, b[0])
	}
	temp = temp[:len(v)]
	if err := decodeInts(b[1:], temp, "low sums"); err != nil {
		return err
	}
	for i, k := range temp {
		v[i] = float64(k) * unitOf(d.l.float(d.l.min[i]), d.l.float(d.l.max[i]))
	}
	return nil
}

// decodeCorrections appends the corrections. count may be nil if the corrections aren't predicted from sums.
func (d *decoder) decodeCorrections(b []byte, count, temp []int64) error {
	var small [4 * smallChunk]int64
	space := small[:]
	if d.n > smallChunk {
		p := wideSpace(4 * d.n)
		defer wide.Put(p)
		space = *p
	}
	resets := space[:d.full]
	if err := decodeInts(d.e.column(columnResets), resets, "resets"); err != nil {
		return err
	}
	// Of each bucket with resets: its index in the chunk, its index among floats, and its number of resets.
	places, at, n := space[d.n:][:0], space[2*d.n:][:0], space[3*d.n:][:0]
	k := int64(0)
	for i := range d.n {
		if !d.takesPart(i, full) {
			continue
		}
		r := resets[0]
		resets = resets[1:]
		if !d.takesPart(i, ofFloats) {
			continue
		}
		if r > 0 {
			places, at, n = append(places, int64(i)), append(at, k), append(n, r)
		}
		k++
	}
	column := extendTail(&d.into.Correction, d.n)
	clear(column)
	if len(at) == 0 {
		return fmt.Errorf("%w: corrections without resets", ErrCorrupt)
	}
	v, temp := column[:len(at)], temp[:len(at)]
	if err := d.correctionValues(b, v, temp, at, n, count); err != nil {
		return err
	}
	for k := len(places) - 1; k >= 0; k-- {
		x := v[k]
		v[k] = 0
		column[places[k]] = x
	}
	return nil
}

// correctionValues fills v with the corrections of the buckets with indices at, which have n resets.
func (d *decoder) correctionValues(b []byte, v []float64, temp, at, n, count []int64) error {
	switch b[0] {
	case byValues:
		return decodeValues(b[1:], v, "corrections")
	case byMax, bySum:
		if b[0] == bySum {
			if s := d.e.column(columnSum); len(s) > 0 && s[0] == byValues {
				return fmt.Errorf("%w: corrections refer to missing sums", ErrCorrupt)
			}
		}
		d.l.predictCorrections(b[0], temp, at, n, count)
		return d.decodeResidues(b[1:], temp, v, "corrections")
	default:
		return fmt.Errorf("%w: corrections of unknown kind %d", ErrCorrupt, b[0])
	}
}

// decodeValues fills v from a column of values. v must not be empty.
func decodeValues(b []byte, v []float64, what string) error {
	if len(v) == 0 {
		return fmt.Errorf("%w: %s without buckets", ErrCorrupt, what)
	}
	rest, err := chunk.DecodeValues(b, v)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, what, err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %s are followed by %d extra bytes", ErrCorrupt, what, len(rest))
	}
	return nil
}
