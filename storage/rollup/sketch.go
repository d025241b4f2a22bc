package rollup

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Sketch counts values in bins. The relative difference between a value and the value of its bin is at most
// sketchAccuracy, and quantiles have the same accuracy. It is a DDSketch (Masson, Rim and Lee, "DDSketch: a fast and
// fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019). Sketches of parts are merged by adding
// up their bins. A sketch is immutable.
//
// Bins are subdivisions of powers of two, not of a logarithm as in the paper, because machines may round logarithms
// differently.
type Sketch struct {
	// Bins are the bins with values, ascending by key.
	Bins []SketchBin
}

// SketchBin is a bin of a sketch.
type SketchBin struct {
	// Key orders bins by value. 0 is the bin of zeros and subnormal floats; bins of negative values have negative keys.
	Key int32
	// Count is the number of values, at least 1.
	Count uint32
}

const (
	// sketchAccuracy is the max difference between a value and its bin's value, relative to the value. It is a constant
	// of the format.
	sketchAccuracy = 0.01
	// sketchBins is the number of bins per power of two.
	sketchBins = 35
	// maxSketchBins is the max number of bins of a sketch. Values that need more have no sketch.
	maxSketchBins = 512
)

// sketchBounds are the lower bounds of the bins between 1 and 2, and 2.
var sketchBounds = func() (bounds [sketchBins + 1]float64) {
	const ratio = 1.0200016 // the 35th root of 2, a little more than 1.02
	bounds[0] = 1
	for i := 1; i < sketchBins; i++ {
		bounds[i] = float64(bounds[i-1] * ratio)
	}
	bounds[sketchBins] = 2
	return bounds
}()

// sketchStarts contains, for each value of the first bits after the binary point, the bin of the smallest number from 1
// to 2 that has these bits.
var sketchStarts = func() (starts [1 << sketchStartBits]uint8) {
	for i := range starts {
		least := 1 + float64(i)/(1<<sketchStartBits)
		for sketchBounds[starts[i]+1] <= least {
			starts[i]++
		}
	}
	return starts
}()

const (
	sketchStartBits = 6

	mantissaBits = 52
	exponentBias = 1023
	maxExponent  = 2046
)

// sketchKey returns the key of the bin of v, which must be finite.
func sketchKey(v float64) int32 {
	b := math.Float64bits(v)
	exponent := int32(b >> mantissaBits & 0x7ff)
	if exponent == 0 {
		return 0
	}
	mantissa := math.Float64frombits(b&(1<<mantissaBits-1) | exponentBias<<mantissaBits)
	bin := int32(sketchStarts[b>>(mantissaBits-sketchStartBits)&(1<<sketchStartBits-1)])
	for sketchBounds[bin+1] <= mantissa {
		bin++
	}
	key := (exponent-1)*sketchBins + bin + 1
	if v < 0 {
		return -key
	}
	return key
}

// Value returns the value of a bin. Its relative difference from the bin's min equals its relative difference from the
// bin's max.
func (b SketchBin) Value() float64 {
	key := max(b.Key, -b.Key)
	if key == 0 {
		return 0
	}
	exponent, bin := (key-1)/sketchBins, (key-1)%sketchBins
	low, high := sketchBounds[bin], sketchBounds[bin+1]
	v := math.Ldexp(float64(2*low)*(high/(low+high)), int(exponent)+1-exponentBias)
	if b.Key < 0 {
		return -v
	}
	return v
}

// sketchOf returns the sketch of the values of v that aren't stale markers; nil if a value isn't finite, or if there
// would be too many bins.
func sketchOf(v []float64) *Sketch {
	var bins [maxSketchBins]SketchBin
	n, at := 0, 0 // at is the bin of the previous value: most values are close to it
	before, key := math.NaN(), int32(0)
	for _, x := range v {
		switch {
		case x == before:
			bins[at].Count++
			continue
		case isFinite(x):
			before, key = x, sketchKey(x)
		case value.IsStaleNaN(x):
			continue
		default:
			return nil
		}
		for at > 0 && bins[at-1].Key >= key {
			at--
		}
		for at < n && bins[at].Key < key {
			at++
		}
		if at == n || bins[at].Key != key {
			if n == maxSketchBins {
				return nil
			}
			copy(bins[at+1:n+1], bins[at:n])
			bins[at] = SketchBin{Key: key}
			n++
		}
		bins[at].Count++
	}
	return &Sketch{Bins: slices.Clone(bins[:n])}
}

// Count returns the number of values.
func (s *Sketch) Count() (n uint64) {
	for _, b := range s.Bins {
		n += uint64(b.Count)
	}
	return n
}

// mergeSketches returns the merged sketch; nil if it would have too many bins.
func mergeSketches(all []*Sketch) *Sketch {
	if len(all) == 1 {
		return all[0]
	}
	var bins []SketchBin
	for _, s := range all {
		bins = append(bins, s.Bins...)
	}
	slices.SortFunc(bins, func(a, b SketchBin) int { return int(a.Key - b.Key) })
	merged := &Sketch{}
	for _, b := range bins {
		if n := len(merged.Bins); n > 0 && merged.Bins[n-1].Key == b.Key {
			merged.Bins[n-1].Count += b.Count
			continue
		}
		merged.Bins = append(merged.Bins, b)
	}
	if len(merged.Bins) > maxSketchBins {
		return nil
	}
	return merged
}

// setSketch sets the sketch of bucket i, and creates the column if needed.
func (b *Buckets) setSketch(i int, s *Sketch) {
	if b.Sketches == nil {
		b.Sketches = make([]*Sketch, len(b.End), cap(b.End))
	}
	b.Sketches[i] = s
}

// appendSketches adds one sketch per interval of width milliseconds to the buckets of samples s, starting with bucket
// from. It adds the sketch to the interval's last bucket with floats. If all values of an interval are equal, it adds
// none.
func (b *Buckets) appendSketches(from int, s *chunk.Samples, width int64) {
	at := 0
	for i := from; i < b.Len(); {
		_, end := bucketAround(b.End[i], width)
		last, least, greatest := -1, math.Inf(1), math.Inf(-1)
		for ; i < b.Len() && b.End[i] <= end; i++ {
			if b.Count[i] > 0 && b.Flags[i].HasFloats() {
				last, least, greatest = i, min(least, b.Min[i]), max(greatest, b.Max[i])
			}
		}
		to := at + sort.Search(len(s.T)-at, func(k int) bool { return s.T[at+k] > end })
		if last >= 0 && least < greatest {
			if sketch := sketchOf(s.V[at:to]); sketch != nil {
				b.setSketch(last, sketch)
			}
		}
		at = to
	}
}

// AppendSketches adds a sketch to each bucket of samples s.
func (b *Buckets) AppendSketches(s *chunk.Samples) {
	at := 0
	for i, end := range b.End {
		to := at + sort.Search(len(s.T)-at, func(k int) bool { return s.T[at+k] > end })
		if b.Count[i] > 0 && b.Flags[i].HasFloats() && b.Min[i] < b.Max[i] {
			if sketch := sketchOf(s.V[at:to]); sketch != nil {
				b.setSketch(i, sketch)
			}
		}
		at = to
	}
}

func sameSketch(a, b *Sketch) bool {
	return a == b || a != nil && b != nil && slices.Equal(a.Bins, b.Bins)
}

// coarsenSketches sets the sketch of bucket i to the merged sketches of the buckets [from, to) of fine, if these
// sketches cover all floats of these buckets.
func coarsenSketches(into *Buckets, i int, fine *Buckets, from, to int) {
	var all []*Sketch
	n := uint64(0)
	for at := from; at < to && fine.Sketches != nil; at++ {
		if s := fine.Sketches[at]; s != nil {
			all = append(all, s)
			n += s.Count()
		}
	}
	if n == 0 || n != fine.floatsIn(from, to) {
		return
	}
	if s := mergeSketches(all); s != nil {
		into.setSketch(i, s)
	}
}

// floatsIn returns the number of floats of buckets [from, to).
func (b *Buckets) floatsIn(from, to int) (n uint64) {
	for i := from; i < to; i++ {
		if b.Count[i] > 0 && b.Flags[i].HasFloats() {
			n += uint64(b.FloatCount(i))
		}
	}
	return n
}

// encodeSketches writes column sketches. For each bucket with a sketch, it contains:
//
//	+---------+----------+---------+- - - - - - - - - - - - - - - -+
//	| buckets | bins     | first   | of each bin: count − 1, and   |
//	| since   | − 1      | key     | of all but the last: the gap  |
//	| uvarint | uvarint  | varint  | to the next key − 1; uvarints |
//	+---------+----------+---------+- - - - - - - - - - - - - - - -+
//
// "Buckets since" is the number of buckets between the previous bucket with a sketch and this one. "First key" is
// relative to the first key of the previous sketch.
func (e *encoder) encodeSketches(b *Buckets) {
	from, before, key := len(e.body), -1, int32(0)
	for i, s := range b.Sketches {
		if s == nil {
			continue
		}
		e.body = binary.AppendUvarint(e.body, uint64(i-before-1))
		e.body = binary.AppendUvarint(e.body, uint64(len(s.Bins)-1))
		e.body = binary.AppendVarint(e.body, int64(s.Bins[0].Key-key))
		before, key = i, s.Bins[0].Key
		for k, bin := range s.Bins {
			e.body = binary.AppendUvarint(e.body, uint64(bin.Count-1))
			if k+1 < len(s.Bins) {
				e.body = binary.AppendUvarint(e.body, uint64(s.Bins[k+1].Key-bin.Key-1))
			}
		}
	}
	e.put(columnSketches, from)
}

// maxSketchKey is the key of the largest float.
const maxSketchKey = maxExponent * sketchBins

// decodeSketches appends the column of sketches. The column remains nil if there are no sketches.
func (d *decoder) decodeSketches() error {
	into := d.into
	column := d.e.column(columnSketches)
	if len(column) == 0 && into.Sketches == nil {
		return nil
	}
	clear(extendTail(&into.Sketches, d.at-len(into.Sketches))) // entries of earlier buckets
	all := extendTail(&into.Sketches, d.n)
	clear(all)
	r := reader{b: column}
	at, key := -1, int64(0)
	for r.at < len(column) {
		skipped, more := r.uvarint(), r.uvarint()
		key += r.varint()
		if r.short || skipped >= uint64(d.n) || more >= maxSketchBins || bits.Len64(chunk.Zigzag(key)) > 31 {
			return fmt.Errorf("%w: a sketch of %d bins", ErrCorrupt, more)
		}
		if at += int(skipped) + 1; at >= d.n || !d.takesPart(at, ofFloats) {
			return fmt.Errorf("%w: a sketch belongs to no bucket", ErrCorrupt)
		}
		s := &Sketch{Bins: make([]SketchBin, 0, more+1)}
		next := key
		for k := range more + 1 {
			count := r.uvarint()
			if r.short || count >= math.MaxUint32 || next < -maxSketchKey || next > maxSketchKey {
				return fmt.Errorf("%w: a sketch has an invalid bin", ErrCorrupt)
			}
			s.Bins = append(s.Bins, SketchBin{int32(next), uint32(count) + 1})
			if k < more {
				gap := r.uvarint()
				if gap > 2*maxSketchKey {
					return fmt.Errorf("%w: a sketch has an invalid bin", ErrCorrupt)
				}
				next += int64(gap) + 1
			}
		}
		if r.short {
			return fmt.Errorf("%w: a sketch is truncated", ErrCorrupt)
		}
		all[at] = s
	}
	return nil
}
