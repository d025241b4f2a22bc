package kairosdb

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// defaultWidthMS is the default width of rows: three weeks, in milliseconds.
const defaultWidthMS = 21 * 24 * 60 * 60 * 1000

// unit is the unit of columns, see doc.go.
type unit string

const (
	unitLegacy       unit = "LEGACY"
	unitMilliseconds unit = "MILLISECONDS"
	unitSeconds      unit = "SECONDS"
)

// layout is the unit of columns and the width of rows in a keyspace.
type layout struct {
	unit    unit
	widthMS int64
}

// parseLayout parses row_time_unit and row_width of the table spec. Both may be missing.
func parseLayout(spec map[string]string) (layout, error) {
	l := layout{unit: unitLegacy, widthMS: defaultWidthMS}
	if text, ok := spec["row_time_unit"]; ok {
		l.unit = unit(text)
	}
	if l.unit != unitLegacy && l.unit != unitMilliseconds && l.unit != unitSeconds {
		return l, fmt.Errorf("kairosdb: table spec has row_time_unit %q; must be LEGACY, MILLISECONDS or SECONDS",
			l.unit)
	}
	if text, ok := spec["row_width"]; ok {
		width, err := strconv.ParseInt(text, 10, 64)
		// Offsets in a wider row wouldn't fit in four bytes.
		if err != nil || width < 1 || width > math.MaxInt32 {
			return l, fmt.Errorf("kairosdb: table spec has row_width %q; must be between 1 and %d", text, math.MaxInt32)
		}
		l.widthMS = width
	}
	if l.unit == unitSeconds {
		l.widthMS *= 1000
	}
	return l, nil
}

// columns returns the first and the last column that points in [minMS, maxMS] can have in a row at rowMS. some is false
// if there are none.
func (l layout) columns(rowMS, minMS, maxMS int64) (first, last [4]byte, some bool) {
	if maxMS < minMS || maxMS < rowMS {
		return first, last, false
	}
	// Compute with unsigned numbers, so that times at both ends of int64 don't overflow.
	from, to := uint64(0), min(uint64(maxMS)-uint64(rowMS), math.MaxUint32)
	if minMS > rowMS {
		from = uint64(minMS) - uint64(rowMS)
	}
	switch l.unit {
	case unitSeconds:
		to = min(uint64(maxMS)-uint64(rowMS), math.MaxInt32*1000)
		from, to = (from+999)/1000, to/1000
	case unitLegacy:
		to = min(to, math.MaxInt32)
		from, to = from<<1, to<<1|1
	}
	if from > to {
		return first, last, false
	}
	binary.BigEndian.PutUint32(first[:], uint32(from))
	binary.BigEndian.PutUint32(last[:], uint32(to))
	return first, last, true
}

// timeOf returns the time of a column in milliseconds, or ErrCorrupt if the column is invalid.
func (l layout) timeOf(rowMS int64, column []byte) (int64, error) {
	if len(column) != 4 {
		return 0, fmt.Errorf("%w: column %x: it must have 4 bytes", ErrCorrupt, column)
	}
	n := int64(binary.BigEndian.Uint32(column))
	switch {
	case l.unit == unitLegacy:
		n >>= 1
	case n > math.MaxInt32:
		return 0, fmt.Errorf("%w: column %x: it is negative", ErrCorrupt, column)
	case l.unit == unitSeconds:
		n *= 1000
	}
	return rowMS + n, nil
}

// valueOf returns the value of a point. An integer that float64 can't represent is rounded, and exact is false. valueOf
// returns ErrCorrupt if the value is invalid. typ must be a type of numbers, and the column must have four bytes.
func valueOf(typ string, column, value []byte) (v float64, exact bool, err error) {
	switch {
	case typ == typeDouble:
		if len(value) != 8 {
			return 0, false, fmt.Errorf("%w: %s %x: it must have 8 bytes", ErrCorrupt, typ, value)
		}
		return math.Float64frombits(binary.BigEndian.Uint64(value)), true, nil
	case typ == typeLong:
		n, used := binary.Varint(value)
		if used != len(value) || used == 0 {
			return 0, false, fmt.Errorf("%w: %s %x: it must be one integer", ErrCorrupt, typ, value)
		}
		v, exact = exactFloat(n)
		return v, exact, nil
	case column[3]&1 == 0:
		if len(value) > 8 {
			return 0, false, fmt.Errorf("%w: %s %x: it must have 8 bytes at most", ErrCorrupt, typ, value)
		}
		var n int64
		for _, b := range value {
			n = n<<8 | int64(b)
		}
		v, exact = exactFloat(n)
		return v, exact, nil
	case len(value) == 5 && value[0] == 1:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(value[1:]))), true, nil
	case len(value) == 9 && value[0] != 1:
		return math.Float64frombits(binary.BigEndian.Uint64(value[1:])), true, nil
	}
	return 0, false, fmt.Errorf("%w: %s %x: it must be a byte of 1 and 4 more bytes, or another byte and 8 more bytes",
		ErrCorrupt, typ, value)
}

// exactFloat converts an integer, and reports whether the result is exact.
func exactFloat(n int64) (float64, bool) {
	v := float64(n)
	// The largest integers are converted to 2^63, which is too large to be converted back.
	return v, v < 1<<63 && int64(v) == n
}
