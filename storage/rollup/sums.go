package rollup

import (
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Sums and corrections are predicted from other columns of the bucket. Their columns start with a byte for the kind of
// prediction. A run follows with the differences of their integers, in the form of the lanes, from the prediction. For
// decimals another run may follow: the number of float64s between each value and its integer.
//
//	    a sum is about                             a correction is about
//	0   count · (first + last) / 2                 resets · max
//	1   values instead, if that is shorter         values instead, if that is shorter
//	2   count · (min + max) / 2                    resets · sum / count
//	3   count · (first + last + min + max) / 4
//
// If a column of sums is absent, the sums are as predicted by kind 0, for example for a constant.
const (
	byEnds    = 0
	byValues  = 1
	byExtreme = 2
	byBoth    = 3

	byMax = 0
	bySum = 2
)

// predictSums sets p to the predicted integers of sums of count values.
func (l *lanes) predictSums(kind byte, p, count []int64) {
	first, last, least, greatest := l.first, l.last, l.first, l.last
	switch kind {
	case byExtreme:
		first, last, least, greatest = l.min, l.max, l.min, l.max
	case byBoth:
		least, greatest = l.min, l.max
	}
	for i, n := range count {
		if l.form != formBits {
			rise := (last[i] - first[i]) + (least[i] - first[i]) + (greatest[i] - first[i])
			p[i] = n*first[i] + n*rise/4
			continue
		}
		ends := float64(chunk.FromOrderedBits(first[i])*0.25) + float64(chunk.FromOrderedBits(last[i])*0.25)
		extreme := float64(chunk.FromOrderedBits(least[i])*0.25) + float64(chunk.FromOrderedBits(greatest[i])*0.25)
		p[i] = floatInteger(float64(n) * float64(ends+extreme))
	}
}

// predictCorrections sets p to the predicted integers of the corrections of the buckets with indices at, which have
// these numbers of resets.
func (l *lanes) predictCorrections(kind byte, p, at, resets, count []int64) {
	for k, i := range at {
		n := resets[k]
		switch {
		case kind == byMax && l.form == formBits:
			p[k] = floatInteger(float64(n) * chunk.FromOrderedBits(l.max[i]))
		case kind == byMax:
			p[k] = n * l.max[i]
		case l.form == formBits:
			p[k] = floatInteger(float64(n) * float64(chunk.FromOrderedBits(l.sum[i])/float64(count[i])))
		default:
			p[k] = n*(l.sum[i]/count[i]) + n*(l.sum[i]%count[i])/count[i]
		}
	}
}

// floatInteger returns the integer of a computed float. NaN becomes 0, because its bits differ among machines.
func floatInteger(v float64) int64 {
	if v != v {
		v = 0
	}
	return chunk.OrderedBits(v)
}

// integersOf returns the integers of v in the form of the lanes and, for each value, the number of floats between the
// integer and the value. It returns nil if a value has no integer.
func (e *encoder) integersOf(v []float64, l *lanes) (m, above []int64) {
	m, above = e.zeros(len(v)), e.zeros(len(v))
	ok := false
	for i, x := range v {
		switch l.form {
		case formBits:
			m[i], ok = chunk.OrderedBits(x), true
		case 0:
			m[i], ok = chunk.Mantissa(x, 0)
		default:
			m[i], above[i], ok = chunk.NearMantissa(x, l.form)
		}
		if !ok {
			return nil, nil
		}
	}
	return m, above
}

// guess is a prediction with its kind.
type guess struct {
	kind byte
	p    []int64
}

// encodePredicted writes a column of v, which must not be empty, by the best of the guesses, and reports whether it
// contains integers. m and above are the integers of v, or nil if it has none.
func (e *encoder) encodePredicted(id int, v []float64, m, above []int64, guesses ...guess) (integers bool) {
	from := len(e.body)
	var best guess
	if m != nil {
		least := math.MaxInt
		for _, g := range guesses {
			if c := costOver(m, g.p); c < least {
				best, least = g, c
			}
		}
		residues := e.subtract(m, best.p)
		if id == columnSum && best.kind == byEnds && allZero(residues) && allZero(above) {
			return true
		}
		e.body = appendInts(append(e.body, best.kind), residues)
		if !allZero(above) {
			e.body = appendInts(e.body, above)
		}
	}
	middle := len(e.body)
	e.body = chunk.AppendValues(append(e.body, byValues), v)
	integers = m != nil && middle-from <= len(e.body)-middle
	if integers {
		e.body = e.body[:middle]
	} else {
		e.body = append(e.body[:from], e.body[middle:]...)
	}
	e.put(id, from)
	return integers
}

// encodeSums writes the columns of sums.
func (e *encoder) encodeSums(b *Buckets, parts []part, l *lanes) {
	high, count := gather(b.Sum, parts, ofFloats), e.widen(gather(b.Count, parts, ofFloats))
	m, above := e.integersOf(high, l)
	guesses := [...]guess{{kind: byEnds}, {kind: byExtreme}, {kind: byBoth}}
	for i := range guesses {
		guesses[i].p = e.zeros(len(high))
		l.predictSums(guesses[i].kind, guesses[i].p, count)
	}
	if e.encodePredicted(columnSum, high, m, above, guesses[:]...) {
		// Otherwise a reader has no integers to predict corrections from.
		l.sum = m
	}
	e.encodeLowSums(gather(b.SumLow, parts, ofFloats), gather(b.Min, parts, ofFloats), gather(b.Max, parts, ofFloats))
}

// encodeCorrections writes the column of corrections of the buckets of floats with resets.
func (e *encoder) encodeCorrections(b *Buckets, parts []part, l *lanes) {
	var v []float64
	var at, resets, count []int64
	k := int64(0)
	for i := range b.End {
		if parts != nil && parts[i]&ofFloats == 0 {
			continue
		}
		if b.Resets[i] > 0 {
			v, at, resets = append(v, b.Correction[i]), append(at, k), append(resets, int64(b.Resets[i]))
		}
		count = append(count, int64(b.Count[i]))
		k++
	}
	if len(v) == 0 {
		return
	}
	guesses := []guess{{kind: byMax, p: e.zeros(len(v))}}
	l.predictCorrections(byMax, guesses[0].p, at, resets, count)
	if l.sum != nil {
		guesses = append(guesses, guess{kind: bySum, p: e.zeros(len(v))})
		l.predictCorrections(bySum, guesses[1].p, at, resets, count)
	}
	m, above := e.integersOf(v, l)
	e.encodePredicted(columnCorrection, v, m, above, guesses...)
}

// lowUnits is the first byte of column sumLow if units follow. The first byte:
//
//	0  a run of the low sums in units (see unitOf) follows
//	1  values follow
const lowUnits = 0

// encodeLowSums writes the column of low sums.
func (e *encoder) encodeLowSums(low, least, greatest []float64) {
	units := e.zeros(len(low))
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
		e.body = appendInts(append(e.body, lowUnits), units)
	default:
		e.body = chunk.AppendValues(append(e.body, byValues), low)
	}
	e.put(columnSumLow, from)
}

// decodeResidues adds the differences in b to the predicted integers m. If v isn't nil, it fills v with the values of
// the resulting integers.
func (d *decoder) decodeResidues(b []byte, m []int64, v []float64, what string) error {
	var small [smallChunk]int64
	residues := small[:]
	if len(m) > smallChunk {
		p := wideSpace(len(m))
		defer wide.Put(p)
		residues = *p
	}
	residues = residues[:len(m)]
	rest, err := chunk.DecodeInts(b, residues)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, what, err)
	}
	for i, x := range residues {
		m[i] += x
	}
	if v == nil {
		return nil
	}
	d.l.floats(v, m)
	if len(rest) == 0 {
		return nil
	}
	if err := decodeInts(rest, residues, what); err != nil {
		return err
	}
	for i, x := range residues {
		v[i] = chunk.FromOrderedBits(chunk.OrderedBits(v[i]) + x)
	}
	return nil
}
