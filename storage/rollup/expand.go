package rollup

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

// ExpandColumns are the columns that Expand needs.
const ExpandColumns = ColumnCount | ColumnFirst | ColumnLast | ColumnMin | ColumnMax | ColumnSum | ColumnCorrection | ColumnResets

// CutColumns are the columns that Cut needs.
const CutColumns = ExpandColumns | ColumnChanges | ColumnMoment

var staleMarker = math.Float64frombits(value.StaleNaN)

// Expander turns buckets into samples, for whoever can't compute from buckets.
type Expander struct {
	v       []float64
	from    []float64 // to work in
	samples chunk.Samples
	edges   []int64
}

// Cut sets into to b, but where any of the ascending edges, milliseconds, lie inside a bucket, it is cut there, as samples
// that it expands into make pieces of it. Pieces of buckets that aren't simple aren't either. Both have CutColumns.
func (x *Expander) Cut(into, b *Buckets, edges []int64) {
	into.Reset()
	kept := 0
	for i, end := range b.End {
		for len(edges) > 0 && edges[0] <= b.Start[i] {
			edges = edges[1:]
		}
		n := 0
		for n < len(edges) && edges[n] < end {
			n++
		}
		if n == 0 {
			continue
		}
		into.copy(b, kept, i, CutColumns)
		kept = i + 1
		x.samples.Reset()
		x.Expand(&x.samples, b, i)
		x.edges = append(append(append(x.edges[:0], b.Start[i]), edges[:n]...), end)
		first := into.Len()
		AppendCells(into, &x.samples, x.edges, math.MaxInt64/2)
		for k := first; k < into.Len(); k++ {
			into.Flags[k] |= b.Flags[i] & NotSimple
		}
		into.shareChanges(first, b.Changes[i])
	}
	into.copy(b, kept, b.Len(), CutColumns)
}

// shareChanges divides the changes of a bucket among its pieces, which are those from first on: made samples change more often than
// those that there were. Between two pieces there is one wherever they differ.
func (b *Buckets) shareChanges(first int, changes uint32) {
	between, samples := uint32(0), uint64(0)
	for k := first; k < b.Len(); k++ {
		if k > first && b.First[k] != b.Last[k-1] {
			between++
		}
		samples += uint64(max(1, b.Count[k]) - 1)
	}
	inside := uint64(changes - min(changes, between))
	given, seen := uint64(0), uint64(0)
	for k := first; k < b.Len() && samples > 0; k++ {
		seen += uint64(max(1, b.Count[k]) - 1)
		b.Changes[k] = uint32(inside*seen/samples - given)
		given = inside * seen / samples
	}
}

// Expand appends samples that make the ith bucket: as many as it was made of, evenly spaced from the first's time to the
// last's, with the same first, last, least and greatest value and, up to rounding, the same sum. Where it can be, they fall as often
// and add up to the same increase, as counters do: always where they never fell, or always did.
//
//	value │        ╭─ greatest
//	      │   ╭────╯  ╭── last          values between are chosen so that the sum is right
//	      │ ──╯ first ╰ least
//	      └──────────────────── time
//
// Other properties of the samples aren't known: quantiles, deviations and the like of them are approximate.
// For native histograms see expandHistograms.
func (x *Expander) Expand(into *chunk.Samples, b *Buckets, i int) {
	n, end := int(b.Count[i]), b.End[i]
	var hs []*histogram.FloatHistogram
	if len(b.Histograms) > 0 && b.Histograms[i] != nil {
		hs = expandHistograms(b.Histograms[i])
	}
	if floats := n - len(hs); floats > 0 {
		x.values(&expanded{
			n: floats, first: b.First[i], last: b.Last[i], least: b.Min[i], greatest: b.Max[i],
			sum: b.Sum[i], low: b.SumLow[i], resets: min(int(b.Resets[i]), floats-1), correction: b.Correction[i],
		})
	} else {
		x.v = x.v[:0]
	}
	switch {
	case len(hs) == 0:
		for k, v := range x.v {
			into.AppendFloat(timeOf(k, n, b.FirstT[i], b.LastT[i]), 0, v)
		}
	case len(x.v) == 0:
		for k, h := range hs {
			into.AppendHistogram(chunk.Histogram{T: timeOf(k, n, b.FirstT[i], b.LastT[i]), Float: h})
		}
	default:
		b.appendBoth(into, i, x.v, hs)
	}
	if b.Flags[i]&EndsStale != 0 && (n == 0 || b.LastT[i] < end) {
		into.AppendFloat(b.staleAt(i), 0, staleMarker)
	}
}

// staleAt is when the stale marker came that ends bucket i, as an estimate: with the next sample that was due.
func (b *Buckets) staleAt(i int) int64 {
	switch n := int64(b.Count[i]); n {
	case 0:
		return b.Start[i] + 1
	case 1:
		return b.LastT[i] + 1
	default:
		return min(b.LastT[i]+max(1, (b.LastT[i]-b.FirstT[i])/(n-1)), b.End[i])
	}
}

// timeOf is the time of the kth of n samples.
func timeOf(k, n int, first, last int64) int64 {
	if n == 1 {
		return first
	}
	return first + (last-first)*int64(k)/int64(n-1)
}

// expanded are the known properties of a bucket's values.
type expanded struct {
	n, resets                    int
	first, last, least, greatest float64
	sum, low                     float64
	correction                   float64
}

// slack is by how much sums may be off for rounding.
func (e *expanded) slack() float64 {
	return 1e-14 * max(math.Abs(e.least), math.Abs(e.greatest)) * float64(e.n)
}

// values sets x.v.
func (x *Expander) values(e *expanded) {
	x.v = slices.Grow(x.v[:0], e.n)[:e.n]
	switch {
	case e.n <= 2:
		x.v[0], x.v[e.n-1] = e.first, e.last
		return
	case !finite(e.first, e.last, e.least, e.greatest, e.sum, e.low, e.correction, (e.greatest-e.least)*float64(e.n)):
		x.odd(e)
		return
	case e.resets == 0 && e.first == e.least && e.last == e.greatest,
		e.resets == e.n-1 && e.first == e.greatest && e.last == e.least:
		blend(x.v, e.first, e.last, e.least, e.greatest, e.sum-e.first-e.last)
	case e.resets > 0 && x.falls(e):
	default:
		x.wanders(e)
	}
	x.adjust(e)
}

func finite(list ...float64) bool {
	for _, v := range list {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// blend sets values from first to last, of which those between add up to sum: a line, bent into an arc as far as it still
// rises, or falls, all along, and beyond that moved towards least or greatest. It rises or falls evenly if the line does and these
// are its ends.
func blend(v []float64, first, last, least, greatest, sum float64) {
	n := len(v) - 1
	v[0], v[n] = first, last
	if n < 2 {
		return
	}
	// An arc u + bent*u*(1-u) rises while bent is from -1 to 1, by at most twice what the line rises by in the same time.
	bent, mean, middle := 0.0, sum/float64(n-1), first/2+last/2
	if math.Abs(mean-middle) <= 1e-13*max(math.Abs(first), math.Abs(last)) { // It is a line, but for rounding.
		mean = middle
	}
	if whole := (last - first) * float64(n+1) / float64(6*n); whole != 0 {
		bent = min(max((mean-middle)/whole, -1), 1)
		middle += bent * whole
	}
	to, share := greatest, 0.0
	if mean < middle {
		to = least
	}
	if to != middle {
		share = min(max((mean-middle)/(to-middle), 0), 1)
	}
	for k := 1; k < n; k++ {
		u := float64(k) / float64(n)
		at := first + (last-first)*float64(k)/float64(n) + (last-first)*bent*u*(1-u)
		v[k] = min(max(at+(to-at)*share, least), greatest)
	}
}

// bow is blend for values that may rise and fall: a line with a bow on it, if it stays between least and greatest.
func bow(v []float64, first, last, least, greatest, sum float64) {
	n := len(v) - 1
	v[0], v[n] = first, last
	if n < 2 {
		return
	}
	high := (sum/float64(n-1) - first/2 - last/2) * float64(6*n) / float64(n+1)
	for k := 1; k < n; k++ {
		u := float64(k) / float64(n)
		v[k] = first + (last-first)*u + high*u*(1-u)
		if !(v[k] >= least && v[k] <= greatest) {
			blend(v, first, last, least, greatest, sum)
			return
		}
	}
}

// wanders sets values of a gauge: where they are highest and lowest anyway, there are the greatest and the least.
func (x *Expander) wanders(e *expanded) {
	n := e.n
	sum, taken := e.sum-e.first-e.last, 0
	high, low := e.greatest > max(e.first, e.last), e.least < min(e.first, e.last)
	if high {
		sum, taken = sum-e.greatest, taken+1
	}
	if low {
		sum, taken = sum-e.least, taken+1
	}
	if n-taken < 2 { // There is one place for both: the greatest has it.
		low, taken = false, taken-1
	}
	rest := slices.Grow(x.from[:0], n)[:n-taken]
	x.from = rest
	bow(rest, e.first, e.last, e.least, e.greatest, sum)
	atHigh, atLow := 0, 0
	for k, v := range rest {
		if v > rest[atHigh] {
			atHigh = k
		}
		if v < rest[atLow] {
			atLow = k
		}
	}
	atHigh, atLow = max(atHigh, 1), max(atLow, 1) // They come before these.
	from := 0
	for k := range x.v {
		switch {
		case high && from == atHigh:
			x.v[k], high = e.greatest, false
		case low && from == atLow:
			x.v[k], low = e.least, false
		default:
			x.v[k] = rest[from]
			from++
		}
	}
}

// odd sets values of which one isn't finite, or that are too large to be computed with.
func (x *Expander) odd(e *expanded) {
	between := e.last
	for _, v := range []float64{e.first, e.last, e.least, e.greatest} {
		if finite(v) {
			between = v
			break
		}
	}
	for k := range x.v {
		x.v[k] = between
	}
	n := e.n
	x.v[0], x.v[n-1] = e.first, e.last
	free := x.v[1 : n-1]
	set := func(v float64, is bool) {
		if is && len(free) > 0 {
			free[0], free = v, free[1:]
		}
	}
	set(e.greatest, e.greatest > max(e.first, e.last) || math.IsNaN(e.first) && math.IsNaN(e.last))
	set(e.least, e.least < min(e.first, e.last) && e.least != e.greatest)
	set(math.NaN(), math.IsNaN(e.sum) && !math.IsNaN(e.first) && !math.IsNaN(e.last))
}

// falls sets values that fall as often as they did, by as much in all, and rise between; it reports whether it found any.
//
//	peaks    ╭──╮    ╭──╮
//	first ───╯  │  ╭─╯  │  ╭─── last
//	            ╰──╯    ╰──╯   troughs: the least value
func (x *Expander) falls(e *expanded) bool {
	peaks, ok := e.peaks(x.from[:0])
	if x.from = peaks; !ok {
		return false
	}
	// Each run rises from a trough to a peak.
	runs := make([]rising, 0, len(peaks)+1)
	from, needed, sum := e.first, 0, e.sum
	for _, to := range append(peaks, e.last) {
		r := rising{from: from, to: to, n: 2}
		if sum -= from; from == to {
			r.n = 1
		} else {
			sum -= to
		}
		needed += r.n
		runs = append(runs, r)
		from = e.least
	}
	free := e.n - needed
	if free < 0 {
		return false
	}
	if !e.spread(runs, free, sum) && !e.squeeze(runs, free, sum) {
		return false
	}
	at := 0
	for i := range runs {
		r := &runs[i]
		blend(x.v[at:at+r.n], r.from, r.to, r.from, r.to, (r.from+(r.to-r.from)*r.up)*float64(max(r.n-2, 0)))
		at += r.n
	}
	return true
}

// rising are n values that rise from one to another; on average, those between lie at the fraction up of the rise, 0 to 1.
type rising struct {
	from, to float64
	n        int
	up       float64
	more     int // that n may become greater by
}

// spread gives the runs free places such that all rise about as fast, and reports whether their values can then add up to sum. How
// many the first has, which alone begins above the least value, is what sum depends on most.
func (e *expanded) spread(runs []rising, free int, sum float64) bool {
	total := 0.0
	for _, r := range runs {
		total += r.to - r.from
	}
	if !(total > 0) {
		return false
	}
	even := int(math.Round((runs[0].to - runs[0].from) / total * float64(free)))
	best, least := -1, math.Inf(1)
	for off := 0; off <= free && float64(off)/float64(free+1) < least; off++ {
		for _, first := range [...]int{even + off, even - off} {
			up, ok := e.give(runs, first, free, sum)
			if odds := math.Abs(up-0.5) + float64(off)/float64(free+1); ok && odds < least {
				best, least = first, odds
			}
		}
	}
	if best < 0 {
		return false
	}
	up, _ := e.give(runs, best, free, sum)
	for i := range runs {
		runs[i].n, runs[i].up = runs[i].n+runs[i].more, up
	}
	return true
}

// give gives the first of the runs so many of the free places, and the others the rest by how much they rise. It returns how far up
// values then are for the sum to be right, and whether they can be.
func (e *expanded) give(runs []rising, first, free int, sum float64) (up float64, ok bool) {
	total := 0.0
	for _, r := range runs[1:] {
		total += r.to - r.from
	}
	if first < 0 || first > free || total == 0 && first < free {
		return 0, false
	}
	runs[0].more = first
	height, given := 0.0, 0
	for i := range runs[1:] {
		r := &runs[i+1]
		if r.more = 0; total > 0 {
			height += r.to - r.from
			r.more = int(math.Round(height/total*float64(free-first))) - given
			given += r.more
		}
	}
	least, most := 0.0, 0.0
	for _, r := range runs {
		least, most = least+r.from*float64(r.more), most+r.to*float64(r.more)
	}
	slack := e.slack()
	return upTo(sum, least, most), sum >= least-slack && sum <= most+slack
}

// squeeze gives all free places to two runs: the first, and the one that rises highest from the least value. It reports whether
// their values can then add up to sum.
func (e *expanded) squeeze(runs []rising, free int, sum float64) bool {
	high := 1
	for i := range runs[1:] {
		if runs[i+1].to > runs[high].to {
			high = i + 1
		}
	}
	a, b := &runs[0], &runs[high]
	slack := e.slack()
	for k := free; k >= 0; k-- {
		inA, inB := float64(k), float64(free-k)
		least, most := a.from*inA+b.from*inB, a.to*inA+b.to*inB
		if sum >= least-slack && sum <= most+slack {
			a.up = upTo(sum, least, most)
			a.n, b.n, b.up = a.n+k, b.n+free-k, a.up
			return true
		}
	}
	return false
}

// upTo is how far a sum is from the least that it may be to the most.
func upTo(sum, least, most float64) float64 {
	if most > least {
		return min(max((sum-least)/(most-least), 0), 1)
	}
	return 0
}

// peaks appends the values before falls, which add up to the correction, and reports whether there are such.
func (e *expanded) peaks(list []float64) ([]float64, bool) {
	rest, n := e.correction, e.resets
	add := func(v float64) {
		list = append(list, v)
		rest, n = rest-v, n-1
	}
	mean := rest / float64(n)
	switch {
	case e.greatest > max(e.first, e.last): // It is a peak.
		if n == 1 || (rest-e.greatest)/float64(n-1) < e.first {
			add(e.greatest)
		}
	case mean < e.first:
		add(e.first)
	}
	hasGreatest := e.greatest <= max(e.first, e.last) || len(list) > 0
	for n > 0 {
		switch {
		case !hasGreatest && len(list) > 0:
			add(e.greatest)
			hasGreatest = true
		case !hasGreatest && n > 1:
			add((rest - e.greatest) / float64(n-1))
		default:
			add(rest / float64(n))
		}
	}
	slack := e.slack()
	for i, v := range list {
		if v <= e.least || v > e.greatest+slack || i == 0 && v < e.first {
			return list, false
		}
		list[i] = min(v, e.greatest)
	}
	return list, math.Abs(rest) <= slack
}

// adjust takes what rounding has left of the sum from a value that isn't at an edge.
func (x *Expander) adjust(e *expanded) {
	var s sum
	for _, v := range x.v {
		s.add(v)
	}
	off := (e.sum - s.high) + (e.low - s.low)
	if off == 0 {
		return
	}
	for k := 1; k+1 < len(x.v); k++ {
		before, v, after := x.v[k-1], x.v[k]+off, x.v[k+1]
		rising := before <= x.v[k] && x.v[k] <= after
		if rising && before <= v && v <= after || !rising && x.v[k] != e.least && x.v[k] != e.greatest && v >= e.least && v <= e.greatest && x.v[k] < before == (v < before) && after < x.v[k] == (after < v) {
			x.v[k] = v
			return
		}
	}
}
