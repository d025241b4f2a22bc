package rollup

import (
	"fmt"
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
)

// The line of a bucket is stored in two columns of integers over buckets of floats. The integers are 0 for buckets that
// also have native histograms, which have no line.
//
// Column times contains the differences of the times from evenly spaced times at the interval of most buckets (see
// lineRuns.interval). It is absent if there are no differences. It starts with a byte, the sum of the numbers of the
// runs that follow the first:
//
//	–  s: TimeSum minus TimeSum of evenly spaced times
//	1  k: the difference in TimeSquares minus s², divided by 2 · interval · s; if only one sample is off, its index
//	2  the remainder of that division
//	4  1 where the line of equal values is unknown
//
// Column comoment is absent if the only known lines have equal values. It starts with a byte for the kind of
// prediction. Its integers are comoments in units of 2^(e − 45), see comomentExponent, or comomentUnknown if the line
// is unknown.
//
//	0  none; a run of the integers follows
//	1  step · ((n − 1) · (last − first) + k) / 2, of the lanes' integers, where n is the count and step the mean
//	   interval. A run of k follows, and optionally a run of differences from the prediction. It fits independent values.
//	2  step · (n · (n + 1) · (last − first) / 6 + k) / 2, with the same runs, for values on a line.
//
// k is an integer if values are decimals and times are regular. There are no differences then.
const (
	timesShares    = 1
	timesRests     = 2
	timesUnknown   = 4
	timesKindsEnd  = 8
	comomentPlain  = 0
	comomentLoose  = 1
	comomentSteady = 2
)

// comomentUnknown isn't a valid comoment: the absolute value of a comoment is at most 2^comomentBits units.
const comomentUnknown = 1 << (comomentBits + 1)

// interval returns the interval of most of the evenly spaced times, by the majority vote of Boyer and Moore.
func (x *lineRuns) interval() (interval int64) {
	votes := 0
	for i := range x.n {
		s := x.timesOf(i)
		if s.n < 2 || s.span%(s.n-1) != 0 {
			continue
		}
		switch d := s.span / (s.n - 1); {
		case votes == 0:
			interval, votes = d, 1
		case d == interval:
			votes++
		default:
			votes--
		}
	}
	return interval
}

// lineRuns holds the lines of float buckets, encoded as integers, with one run per field.
type lineRuns struct {
	n, span   []int64 // fields of type times, by bucket
	hasBoth   []bool  // native histograms are among the samples; nil if in no bucket
	timeSum   []int64
	squares   []int64
	exponents []int64 // of comoments; 0 where there is no comoment
}

func (x *lineRuns) timesOf(i int) times { return times{x.n[i], x.span[i]} }

func (x *lineRuns) isSkipped(i int) bool { return x.hasBoth != nil && x.hasBoth[i] }

// setBoth sets hasBoth from the flags of buckets.
func (x *lineRuns) setBoth(flags []Flags, parts []part) {
	if parts == nil {
		return
	}
	for i, f := range gather(flags, parts, ofFloats) {
		if f&HasHistograms != 0 {
			if x.hasBoth == nil {
				x.hasBoth = make([]bool, len(x.n))
			}
			x.hasBoth[i] = true
		}
	}
}

// writeLines writes both columns.
func (e *encoder) writeLines(b *Buckets, parts []part, l *lanes) {
	var x lineRuns
	x.n = e.widen(gather(b.Count, parts, ofFloats))
	firstT, lastT := gather(b.FirstT, parts, ofFloats), gather(b.LastT, parts, ofFloats)
	x.span = e.zeros(len(x.n))
	for i, last := range lastT {
		x.span[i] = last - firstT[i]
	}
	x.setBoth(b.Flags, parts)
	x.timeSum, x.squares = gather(b.TimeSum, parts, ofFloats), gather(b.TimeSquares, parts, ofFloats)
	comoment, least, greatest := gather(b.Comoment, parts, ofFloats), gather(b.Min, parts, ofFloats),
		gather(b.Max, parts, ofFloats)

	x.exponents = e.zeros(len(x.n))
	m, implied := e.zeros(len(x.n)), true
	for i := range x.n {
		s := x.timesOf(i)
		switch {
		case x.isSkipped(i):
		case x.squares[i] >= 0 && least[i] < greatest[i]:
			exponent, _ := comomentExponent(least[i], greatest[i], s.n, timeMoment(s.n, x.timeSum[i], x.squares[i]))
			x.exponents[i], m[i] = int64(exponent), comomentInteger(comoment[i], exponent)
			implied = false
		case least[i] < greatest[i]:
			m[i] = comomentUnknown
		}
	}
	if !implied {
		from := len(e.body)
		e.encodeComoments(m, &x, l)
		e.put(columnComoment, from)
	}
	e.encodeTimes(m, &x)
}

// encodeComoments appends the shortest encoding of the column of comoments.
func (e *encoder) encodeComoments(m []int64, x *lineRuns, l *lanes) {
	from := len(e.body)
	e.body = appendInts(append(e.body, comomentPlain), m)
	if l.form == formBits {
		return
	}
	for kind := byte(comomentLoose); kind <= comomentSteady; kind++ {
		k, over := e.zeros(len(m)), e.zeros(len(m))
		for i := range m {
			if x.isSkipped(i) || m[i] == comomentUnknown {
				over[i] = m[i]
				continue
			}
			k[i] = x.nearestFactor(i, m[i], l) - l.predictedRise(kind, i, x.n[i])
			over[i] = m[i] - x.comomentOf(i, l.predictedRise(kind, i, x.n[i])+k[i], l)
		}
		middle := len(e.body)
		e.body = appendInts(append(e.body, kind), k)
		if !allZero(over) {
			e.body = appendInts(e.body, over)
		}
		if len(e.body)-middle < middle-from {
			e.body = append(e.body[:from], e.body[middle:]...)
		} else {
			e.body = e.body[:middle]
		}
	}
}

// predictedRise returns the prediction of a kind for bucket i, which has n values.
func (l *lanes) predictedRise(kind byte, i int, n int64) int64 {
	if kind == comomentLoose {
		return (n - 1) * (l.last[i] - l.first[i])
	}
	return n * (n + 1) * (l.last[i] - l.first[i]) / 6
}

// unitsPerPrediction returns the number of units of bucket i's comoment per unit of its prediction.
func (x *lineRuns) unitsPerPrediction(i int, l *lanes) float64 {
	s := x.timesOf(i)
	if s.n < 2 {
		return 0
	}
	step := float64(s.span) / float64(2*(s.n-1)) / chunk.Power(l.form)
	return math.Ldexp(step, comomentBits-int(x.exponents[i]))
}

// nearestFactor returns the k whose comoment is nearest to m, or 0 if k is too large.
func (x *lineRuns) nearestFactor(i int, m int64, l *lanes) int64 {
	k := math.RoundToEven(float64(m) / x.unitsPerPrediction(i, l))
	if !(math.Abs(k) < 1<<53) {
		return 0
	}
	return int64(k)
}

// comomentOf returns the integer of the comoment of bucket i for k, or 0 if it is too large.
func (x *lineRuns) comomentOf(i int, k int64, l *lanes) int64 {
	m := math.RoundToEven(float64(k) * x.unitsPerPrediction(i, l))
	if !(math.Abs(m) <= comomentUnknown) {
		return 0
	}
	return int64(m)
}

// encodeTimes writes the column of times. m are the integers of comoments.
func (e *encoder) encodeTimes(m []int64, x *lineRuns) {
	interval := x.interval()
	sums, shares, rests, unknown := e.zeros(len(m)), e.zeros(len(m)), e.zeros(len(m)), e.zeros(len(m))
	for i := range x.n {
		s := x.timesOf(i)
		switch {
		case x.isSkipped(i), m[i] == comomentUnknown:
			continue
		case x.squares[i] < 0:
			unknown[i] = 1
			continue
		}
		timeSum, squares := s.regularSums(interval)
		sums[i] = x.timeSum[i] - timeSum
		rests[i] = x.squares[i] - squares - sums[i]*sums[i]
		if share := 2 * interval * sums[i]; share != 0 {
			shares[i] = rests[i] / share
			rests[i] -= shares[i] * share
		}
	}
	kinds := byte(0)
	for _, run := range []struct {
		kind byte
		x    []int64
	}{{timesShares, shares}, {timesRests, rests}, {timesUnknown, unknown}} {
		if !allZero(run.x) {
			kinds |= run.kind
		}
	}
	if kinds == 0 && allZero(sums) {
		return
	}
	from := len(e.body)
	e.body = appendInts(append(e.body, kinds), sums)
	for _, run := range []struct {
		kind byte
		x    []int64
	}{{timesShares, shares}, {timesRests, rests}, {timesUnknown, unknown}} {
		if kinds&run.kind != 0 {
			e.body = appendInts(e.body, run.x)
		}
	}
	e.put(columnTimes, from)
}

// decodeLines appends the lines. count has the counts of the buckets of floats.
func (d *decoder) decodeLines(count []int64) error {
	comoment, timeSum, squares := extendTail(&d.into.Comoment, d.n), extendTail(&d.into.TimeSum, d.n),
		extendTail(&d.into.TimeSquares, d.n)
	n := d.floats
	if n == 0 {
		clear(comoment)
		clear(timeSum)
		clear(squares)
		if d.e.has(columnComoment) || d.e.has(columnTimes) {
			return fmt.Errorf("%w: lines without buckets", ErrCorrupt)
		}
		return nil
	}
	var small [8 * smallChunk]int64
	space := small[:]
	if d.n > smallChunk {
		p := wideSpace(6*n + 2*d.n)
		defer wide.Put(p)
		space = *p
	}
	span, err := d.decodeSpans(space[:d.n], space[d.n:][:d.n])
	if err != nil {
		return err
	}
	space = space[2*d.n:]
	x := lineRuns{n: count, span: span, timeSum: timeSum[:n], squares: squares[:n], exponents: space[:n]}
	x.setBoth(d.into.Flags[d.at:], d.parts)
	if err := d.lineTimes(&x, space[n:][:2*n], space[3*n:][:n]); err != nil {
		return err
	}
	if err := d.decodeComoments(&x, comoment[:n], space[3*n:][:n], space[4*n:]); err != nil {
		return err
	}
	d.placeValues(comoment)
	if d.parts != nil {
		expandColumn(timeSum, d.parts, n, ofFloats)
		expandColumn(squares, d.parts, n, ofFloats)
	}
	return nil
}

// decodeSpans returns the milliseconds from the first to the last sample of the buckets of floats. first and last are
// scratch memory for one timestamp per bucket.
func (d *decoder) decodeSpans(first, last []int64) ([]int64, error) {
	if err := d.decodeFirstTimes(first[:d.full]); err != nil {
		return nil, err
	}
	if err := d.decodeLastTimes(last[:d.full]); err != nil {
		return nil, err
	}
	n := 0
	for i := range d.n {
		if d.takesPart(i, full) {
			first[n] = last[n] - first[n]
			n++
		}
	}
	if d.floats == d.full {
		return first[:n], nil
	}
	expandColumn(first, d.parts, d.full, full)
	return gather(first, d.parts, ofFloats), nil
}

// lineTimes fills the sums of times. It sets unknown to 1 where equal values have no line.
func (d *decoder) lineTimes(x *lineRuns, runs, unknown []int64) error {
	n := len(x.n)
	shares, rests := runs[:n], runs[n:]
	clear(x.timeSum)
	clear(shares)
	clear(rests)
	clear(unknown)
	if b := d.e.column(columnTimes); len(b) > 0 {
		if b[0] >= timesKindsEnd {
			return fmt.Errorf("%w: times of unknown kind %d", ErrCorrupt, b[0])
		}
		rest, err := chunk.DecodeInts(b[1:], x.timeSum)
		for _, run := range []struct {
			kind byte
			x    []int64
		}{{timesShares, shares}, {timesRests, rests}, {timesUnknown, unknown}} {
			if err == nil && b[0]&run.kind != 0 {
				rest, err = chunk.DecodeInts(rest, run.x)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: times: %w", ErrCorrupt, err)
		}
		if len(rest) > 0 {
			return fmt.Errorf("%w: times are followed by %d extra bytes", ErrCorrupt, len(rest))
		}
	}
	interval := x.interval()
	for i := range x.n {
		timeSum, squares := x.timesOf(i).regularSums(interval)
		sums := x.timeSum[i]
		x.timeSum[i] += timeSum
		x.squares[i] = squares + sums*sums + shares[i]*(2*interval*sums) + rests[i]
	}
	return nil
}

// decodeComoments fills c, and sets the sums of times of unknown lines. space is scratch memory for 2 integers per
// bucket.
func (d *decoder) decodeComoments(x *lineRuns, c []float64, unknown, space []int64) error {
	n := len(c)
	m, over := space[:n], space[n:][:n]
	b := d.e.column(columnComoment)
	kind := byte(comomentPlain)
	if len(b) > 0 {
		if kind = b[0]; kind > comomentSteady || kind > comomentPlain && d.l.form == formBits {
			return fmt.Errorf("%w: comoments of unknown kind %d", ErrCorrupt, kind)
		}
		rest, err := chunk.DecodeInts(b[1:], m)
		clear(over)
		if err == nil && len(rest) > 0 && kind > comomentPlain {
			rest, err = chunk.DecodeInts(rest, over)
		}
		if err != nil {
			return fmt.Errorf("%w: comoments: %w", ErrCorrupt, err)
		}
		if len(rest) > 0 {
			return fmt.Errorf("%w: comoments are followed by %d extra bytes", ErrCorrupt, len(rest))
		}
	}
	for i := range c {
		c[i] = 0
		least, greatest := d.l.float(d.l.min[i]), d.l.float(d.l.max[i])
		isKnown := !x.isSkipped(i) && unknown[i] == 0
		if least < greatest {
			isKnown = isKnown && len(b) > 0 &&
				(kind == comomentPlain && m[i] != comomentUnknown || kind > comomentPlain && over[i] != comomentUnknown)
		}
		if !isKnown {
			x.timeSum[i], x.squares[i] = 0, unknownSquares
			continue
		}
		if err := x.validate(i); err != nil {
			return err
		}
		if !(least < greatest) {
			continue
		}
		exponent, ok := comomentExponent(least, greatest, x.n[i], timeMoment(x.n[i], x.timeSum[i], x.squares[i]))
		if !ok {
			return fmt.Errorf("%w: the comoment of values that are too large", ErrCorrupt)
		}
		x.exponents[i] = int64(exponent)
		if kind > comomentPlain {
			m[i] = over[i] + x.comomentOf(i, d.l.predictedRise(kind, i, x.n[i])+m[i], &d.l)
		}
		if m[i] < -comomentUnknown || m[i] > comomentUnknown {
			return fmt.Errorf("%w: an invalid comoment", ErrCorrupt)
		}
		c[i] = comomentOf(m[i], exponent)
	}
	return nil
}

// validate returns ErrCorrupt if no times can have the sums of bucket i.
func (x *lineRuns) validate(i int) error {
	s, timeSum, squares := x.timesOf(i), x.timeSum[i], x.squares[i]
	if !s.isStorable() || timeSum < 0 || timeSum > s.n*s.span || squares < 0 || squares > s.n*s.span*s.span ||
		timeMoment(s.n, timeSum, squares) < 0 {
		return fmt.Errorf("%w: invalid sums of times", ErrCorrupt)
	}
	return nil
}
