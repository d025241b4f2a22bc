package remotewrite

import "math"

// The tags of a sample's fields, in both versions. Only 2.0 has start timestamps.
const (
	tagSampleValue = 1<<3 | wireFixed64
	tagSampleTime  = 2<<3 | wireVarint
	tagSampleStart = 3<<3 | wireVarint
)

// parseSample parses a prometheus.Sample or, if starts is set, an io.prometheus.write.v2.Sample. If a field is
// repeated, the last one counts; a missing field is zero.
func parseSample(b []byte, starts bool) (t, st int64, v float64, ok bool) {
	for i := 0; i < len(b); {
		var bits uint64
		switch c := b[i]; {
		case c == tagSampleValue:
			bits, i = readFixed64(b, i+1)
			v = math.Float64frombits(bits)
		case c == tagSampleTime:
			bits, i = readUvarint(b, i+1)
			t = int64(bits)
		case c == tagSampleStart && starts:
			bits, i = readUvarint(b, i+1)
			st = int64(bits)
		default:
			t, st, v, i = parseSampleField(b, i, starts, t, st, v)
		}
		if i < 0 {
			return 0, 0, 0, false
		}
	}
	return t, st, v, true
}

// parseSampleField parses a field that is unknown or has an unusual encoding.
func parseSampleField(b []byte, i int, starts bool, t, st int64, v float64) (int64, int64, float64, int) {
	number, wire, i := readTag(b, i)
	if i < 0 {
		return 0, 0, 0, malformedPos
	}
	var bits uint64
	switch {
	case number == 1 && wire == wireFixed64:
		bits, i = readFixed64(b, i)
		v = math.Float64frombits(bits)
	case number == 2 && wire == wireVarint:
		bits, i = readUvarint(b, i)
		t = int64(bits)
	case number == 3 && wire == wireVarint && starts:
		bits, i = readUvarint(b, i)
		st = int64(bits)
	case number <= 2, number == 3 && starts:
		return 0, 0, 0, malformedPos
	default:
		i = skipField(b, i, wire)
	}
	return t, st, v, i
}
