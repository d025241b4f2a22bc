package rollup

import (
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
)

// A sum is predicted from its bucket's ends, count·(first + last)/2, which a constant has exactly and a counter
// nearly. Column sum begins with a byte:
//
//	0  a run of what the integers of the sums are greater by than predicted; of decimals, a run of how many
//	   float64s the sums lie above their integers may follow
//	1  values, where that is shorter
//
// Column sumLow likewise:
//
//	0  a run of the low sums in units (see unitOf)
//	1  values
const (
	sumsPredicted = 0
	sumsValues    = 1
)

// predict sets p to the integers that sums are predicted to have.
func (l *lanes) predict(p, count []int64) {
	first, last := l.first[:len(p)], l.last[:len(p)]
	count = count[:len(p)]
	if l.form != formBits {
		for i := range p {
			p[i] = count[i]*first[i] + count[i]*(last[i]-first[i])/2
		}
		return
	}
	for i := range p {
		half := float64(chunk.FromOrderedBits(first[i])*0.5) + float64(chunk.FromOrderedBits(last[i])*0.5)
		sum := float64(float64(count[i]) * half)
		if sum != sum {
			sum = 0 // machines differ in the bits of a NaN
		}
		p[i] = chunk.OrderedBits(sum)
	}
}

// sums writes the columns of sums.
func (e *encoder) sums(b *Buckets, parts []part, l *lanes) {
	high, low := gather(b.Sum, parts, ofFloats), gather(b.SumLow, parts, ofFloats)
	residues, above, ok := l.residues(high, widen(gather(b.Count, parts, ofFloats)))
	from := len(e.body)
	if !ok || !allZero(residues) || !allZero(above) {
		if ok {
			e.body = chunk.AppendInts(append(e.body, sumsPredicted), residues)
			if !allZero(above) {
				e.body = chunk.AppendInts(e.body, above)
			}
		}
		predicted := len(e.body)
		e.body = chunk.AppendValues(append(e.body, sumsValues), high)
		if values := len(e.body) - predicted; ok && predicted-from <= values {
			e.body = e.body[:predicted]
		} else {
			e.body = append(e.body[:from], e.body[predicted:]...)
		}
	}
	e.put(columnSum, from)
	e.lows(low, gather(b.Min, parts, ofFloats), gather(b.Max, parts, ofFloats))
}

// residues returns what the integers of sums are greater by than predicted, and how many floats the sums lie above
// those; ok says whether all have integers.
func (l *lanes) residues(sums []float64, count []int64) (residues, above []int64, ok bool) {
	residues, above = make([]int64, len(sums)), make([]int64, len(sums))
	l.predict(residues, count)
	for i, v := range sums {
		var m int64
		switch l.form {
		case formBits:
			m = chunk.OrderedBits(v)
		case 0:
			m, ok = chunk.Mantissa(v, 0)
		default:
			m, above[i], ok = chunk.NearMantissa(v, l.form)
		}
		if !ok && l.form != formBits {
			return nil, nil, false
		}
		residues[i] = m - residues[i]
	}
	return residues, above, true
}

// lows writes the column of low sums.
func (e *encoder) lows(low, least, greatest []float64) {
	units := make([]int64, len(low))
	none, exact := true, true
	for i, v := range low {
		none = none && math.Float64bits(v) == 0
		unit := unitOf(least[i], greatest[i])
		if k := v / unit; k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			units[i] = int64(k)
		}
		exact = exact && math.Float64bits(float64(units[i])*unit) == math.Float64bits(v)
	}
	from := len(e.body)
	switch {
	case none:
	case exact:
		e.body = chunk.AppendInts(append(e.body, sumsPredicted), units)
	default:
		e.body = chunk.AppendValues(append(e.body, sumsValues), low)
	}
	e.put(columnSumLow, from)
}

// sums fills v with the sums of buckets of floats; temp is as long.
func (d *decoder) sums(v []float64, temp []int64) error {
	d.l.predict(temp, d.count)
	b := d.e.column(columnSum)
	if len(b) == 0 {
		d.l.floats(v, temp)
		return nil
	}
	if b[0] == sumsValues {
		return decodeValues(b[1:], v, "sums")
	}
	if b[0] != sumsPredicted {
		return fmt.Errorf("%w: sums of kind %d", ErrCorrupt, b[0])
	}
	residues := make([]int64, 0, smallChunk)
	if len(v) > smallChunk {
		residues = make([]int64, 0, len(v))
	}
	residues = residues[:len(v)]
	rest, err := chunk.DecodeInts(b[1:], residues)
	if err != nil {
		return fmt.Errorf("%w: sums: %w", ErrCorrupt, err)
	}
	for i, x := range residues {
		temp[i] += x
	}
	d.l.floats(v, temp)
	if len(rest) == 0 {
		return nil
	}
	if err := decodeInts(rest, residues, "sums' distances"); err != nil {
		return err
	}
	for i, x := range residues {
		v[i] = chunk.FromOrderedBits(chunk.OrderedBits(v[i]) + x)
	}
	return nil
}

// lows fills v with the low sums of buckets of floats; temp is as long.
func (d *decoder) lows(v []float64, temp []int64) error {
	b := d.e.column(columnSumLow)
	if len(b) == 0 {
		clear(v)
		return nil
	}
	if b[0] == sumsValues {
		return decodeValues(b[1:], v, "low sums")
	}
	if b[0] != sumsPredicted {
		return fmt.Errorf("%w: low sums of kind %d", ErrCorrupt, b[0])
	}
	least, greatest := make([]float64, len(v)), make([]float64, len(v))
	if err := d.least(least, temp); err != nil {
		return err
	}
	if err := d.greatest(greatest, temp); err != nil {
		return err
	}
	if err := decodeInts(b[1:], temp, "low sums"); err != nil {
		return err
	}
	for i, k := range temp {
		v[i] = float64(k) * unitOf(least[i], greatest[i])
	}
	return nil
}

// least fills v with the least values of buckets of floats; temp is as long.
func (d *decoder) least(v []float64, temp []int64) error {
	if err := decodeInts(d.e.column(columnMin), temp, "least values"); err != nil {
		return err
	}
	for i, first := range d.l.first {
		temp[i] = min(first, d.l.last[i]) - temp[i]
	}
	d.l.floats(v, temp)
	return nil
}

// greatest fills v with the greatest values of buckets of floats; temp is as long.
func (d *decoder) greatest(v []float64, temp []int64) error {
	if err := decodeInts(d.e.column(columnMax), temp, "greatest values"); err != nil {
		return err
	}
	for i, first := range d.l.first {
		temp[i] += max(first, d.l.last[i])
	}
	d.l.floats(v, temp)
	return nil
}
