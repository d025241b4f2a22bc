package victoria

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/prometheus/model/value"
)

// blockDecoder decodes a block of samples:
//
//	+-------+-------+-------+---------+-------+-------+-------+-----------+------+-------+------+--------+
//	| min   | max   | first | samples | scale | times'| values'| precision | len  | times | len  | values |
//	| time  | time  | value |         |       | kind  | kind  | bits      |      |       |      |        |
//	| varint| varint| varint| uvarint | varint| byte  | byte  | byte      |uvarint|      |uvarint|       |
//	+-------+-------+-------+---------+-------+-------+-------+-----------+------+-------+------+--------+
//
// A varint is zigzag-encoded. Times and values are arrays of integers. Their kind is the encoding of all integers after
// the first. A value is its integer times ten to the power of scale.
type blockDecoder struct {
	times  []int64
	values []float64
	ints   []int64
	plain  []byte
	zstd   *zstd.Decoder
	rest   []byte
}

// Kinds of arrays of integers.
const (
	kindZstdDelta2 = 1 // kindDelta2, compressed
	kindDeltaConst = 2 // the difference, which is constant
	kindConst      = 3 // empty: all equal the first
	kindZstdDelta  = 4 // kindDelta, compressed
	kindDelta2     = 5 // the first difference, then the differences of differences
	kindDelta      = 6 // differences
)

const (
	// maxRows bounds the samples of a block: VictoriaMetrics writes up to 8192 and rejects more than twice as many.
	maxRows = 16 << 10
	// maxPlain bounds the decompressed size of a block's integers.
	maxPlain = maxRows * binary.MaxVarintLen64

	infinityValue    = math.MaxInt64
	minInfinityValue = math.MinInt64
	staleValue       = math.MaxInt64 - 1
)

func (d *blockDecoder) blockError(what string) error {
	return fmt.Errorf("reading %s of a block: %w", what, errNotNative)
}

func (d *blockDecoder) varint() int64 { return decodeZigzag(d.uvarint()) }

// uvarint decodes a number. If it is invalid, the rest of the block becomes nil.
func (d *blockDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.rest = nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// readBytes decodes bytes preceded by their length.
func (d *blockDecoder) readBytes() ([]byte, bool) {
	n := d.uvarint()
	if d.rest == nil || n > uint64(len(d.rest)) {
		return nil, false
	}
	part := d.rest[:n]
	d.rest = d.rest[n:]
	return part, true
}

// decode decodes a block into times and values.
func (d *blockDecoder) decode(block []byte) error {
	d.rest = block
	minMS, maxMS, first := d.varint(), d.varint(), d.varint()
	rows, scale := d.uvarint(), d.varint()
	if len(d.rest) < 3 || rows == 0 || rows > maxRows || scale < math.MinInt16 || scale > math.MaxInt16 {
		return d.blockError("the head")
	}
	timesKind, valuesKind, precision := d.rest[0], d.rest[1], d.rest[2]
	d.rest = d.rest[3:]
	times, ok := d.readBytes()
	values, ok2 := d.readBytes()
	if !ok || !ok2 || len(d.rest) > 0 || precision < 1 || precision > 64 {
		return d.blockError("the lengths")
	}
	var err error
	if d.times, err = d.decodeIntegers(d.times[:0], times, timesKind, minMS, int(rows)); err != nil {
		return err
	}
	if precision < 64 { // times are rounded as well
		clampTimes(d.times, minMS, maxMS)
	}
	for i, t := range d.times {
		if t < minMS || t > maxMS || i > 0 && t < d.times[i-1] {
			return d.blockError("the times")
		}
	}
	if d.ints, err = d.decodeIntegers(d.ints[:0], values, valuesKind, first, int(rows)); err != nil {
		return err
	}
	d.scaleValues(int(scale))
	return nil
}

// decodeIntegers decodes n integers.
func (d *blockDecoder) decodeIntegers(into []int64, b []byte, kind byte, first int64, n int) (_ []int64, err error) {
	if kind == kindZstdDelta || kind == kindZstdDelta2 {
		if b, err = d.decompress(b); err != nil {
			return into, err
		}
	}
	next := func() (int64, bool) {
		v, size := binary.Uvarint(b)
		if size <= 0 {
			return 0, false
		}
		b = b[size:]
		return decodeZigzag(v), true
	}
	v, step, ok := first, int64(0), true
	into = append(into, v)
	switch kind {
	case kindConst:
	case kindDeltaConst:
		step, ok = next()
	case kindDelta, kindZstdDelta, kindDelta2, kindZstdDelta2:
	default:
		return into, fmt.Errorf(
			"integers of unknown type %d, perhaps from a newer VictoriaMetrics; export JSON lines with "+
				"/api/v1/export instead",
			kind,
		)
	}
	for i := 1; ok && i < n; i++ {
		switch kind {
		case kindDelta, kindZstdDelta:
			step, ok = next()
		case kindDelta2, kindZstdDelta2:
			var change int64
			change, ok = next()
			step += change
		}
		v += step
		into = append(into, v)
	}
	if !ok || len(b) > 0 {
		return into, d.blockError("the integers")
	}
	return into, nil
}

func (d *blockDecoder) decompress(b []byte) ([]byte, error) {
	if d.zstd == nil {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPlain))
		if err != nil {
			return nil, err
		}
		d.zstd = z
	}
	var err error
	if d.plain, err = d.zstd.DecodeAll(b, d.plain[:0]); err != nil {
		return nil, d.blockError("the compressed values")
	}
	return d.plain, nil
}

// clampTimes makes times ascend, from minMS to maxMS.
func clampTimes(times []int64, minMS, maxMS int64) {
	times[0] = minMS
	for i := range times {
		times[i] = min(max(times[i], times[max(i-1, 0)]), maxMS)
	}
	times[len(times)-1] = maxMS
}

// scaleValues converts integers to values with the same operations as VictoriaMetrics, so that they have the same bits.
func (d *blockDecoder) scaleValues(scale int) {
	d.values = d.values[:0]
	power := math.Pow10(max(scale, -scale))
	for _, i := range d.ints {
		v := float64(i)
		switch {
		case i == infinityValue:
			v = math.Inf(1)
		case i == minInfinityValue:
			v = math.Inf(-1)
		case i == staleValue:
			v = math.Float64frombits(value.StaleNaN)
		case scale < 0:
			v /= power
		case scale > 0:
			v *= power
		}
		d.values = append(d.values, v)
	}
}
