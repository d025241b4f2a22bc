package kairosdb

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLayouts(t *testing.T) {
	for name, c := range map[string]struct {
		spec map[string]string
		want layout
	}{
		"nothing":      {nil, layout{unitLegacy, defaultWidthMS}},
		"milliseconds": {map[string]string{"row_time_unit": "MILLISECONDS", "row_width": "86400000"}, layout{unitMilliseconds, 86_400_000}},
		"legacy":       {map[string]string{"row_time_unit": "LEGACY", "row_width": "1814400000"}, layout{unitLegacy, defaultWidthMS}},
		"seconds":      {map[string]string{"row_time_unit": "SECONDS", "row_width": "86400"}, layout{unitSeconds, 86_400_000}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseLayout(c.spec)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	for _, spec := range []map[string]string{
		{"row_time_unit": "HOURS"}, {"row_width": "0"}, {"row_width": "3000000000"}, {"row_width": "wide"},
	} {
		_, err := parseLayout(spec)
		require.ErrorContains(t, err, "table spec has row_")
	}
}

func column(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func TestTimesOfColumns(t *testing.T) {
	for _, c := range []struct {
		unit   unit
		column []byte
		want   int64 // from the row's time on; -1: corrupt
	}{
		{unitLegacy, column(0), 0},
		{unitLegacy, column(1), 0},
		{unitLegacy, column(2*1_814_399_999 + 1), 1_814_399_999},
		{unitMilliseconds, column(1_814_399_999), 1_814_399_999},
		{unitMilliseconds, column(1 << 31), -1},
		{unitSeconds, column(1_814_399), 1_814_399_000},
		{unitSeconds, column(1 << 31), -1},
		{unitLegacy, column(7)[:3], -1},
		{unitLegacy, nil, -1},
		{unitMilliseconds, append(column(7), 0), -1},
	} {
		for _, row := range []int64{0, rowTime, -12345} {
			got, err := layout{c.unit, defaultWidthMS}.timeOf(row, c.column)
			if c.want < 0 {
				require.ErrorIs(t, err, ErrCorrupt)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, row+c.want, got, "%s %x", c.unit, c.column)
		}
	}
}

// TestColumnsOfARange checks that exactly the columns with times in the range are between the first and the last one.
// If columns are in seconds, the last second of the range is an exception.
func TestColumnsOfARange(t *testing.T) {
	for _, u := range []unit{unitLegacy, unitMilliseconds, unitSeconds} {
		l := layout{u, defaultWidthMS}
		for _, c := range []struct{ row, from, to int64 }{
			{0, 0, 0}, {rowTime, rowTime + 1, rowTime + 1999}, {rowTime, rowTime - 5, rowTime + 2000},
			{rowTime, rowTime + 3000, rowTime + 2000}, {rowTime, rowTime - 10, rowTime - 1}, {-7000, -6999, -2},
			{rowTime, math.MinInt64, math.MaxInt64}, {-rowTime, math.MinInt64, math.MaxInt64},
			{rowTime, rowTime + 1_814_399_000, math.MaxInt64},
		} {
			first, last, some := l.columns(c.row, c.from, c.to)
			for _, n := range []uint32{
				0, 1, 2, 3, 4, 5, 999, 1000, 1001, 1998, 1999, 2000, 2001, 3999, 4000, 4001, 1_814_399, 1_814_399_999,
				math.MaxInt32, math.MaxUint32,
			} {
				at, err := l.timeOf(c.row, column(n))
				if err != nil {
					continue
				}
				within := some && n >= binary.BigEndian.Uint32(first[:]) && n <= binary.BigEndian.Uint32(last[:])
				require.Equal(t, at >= c.from && at <= c.to, within, "%s %+v column %d at %d", u, c, n, at)
			}
		}
	}
}

func TestValues(t *testing.T) {
	const integer, floating = 0, 1
	bits := func(v float64) []byte { return binary.BigEndian.AppendUint64(nil, math.Float64bits(v)) }
	for name, c := range map[string]struct {
		typ   string
		flag  uint32
		value []byte
		want  float64
		lossy bool
	}{
		"double":               {typeDouble, integer, hexKey(t, "0xc093480000000000"), -1234, false},
		"double, least":        {typeDouble, integer, hexKey(t, "0x0000000000000001"), 5e-324, false},
		"double, -0":           {typeDouble, integer, bits(math.Copysign(0, -1)), math.Copysign(0, -1), false},
		"double, infinite":     {typeDouble, integer, bits(math.Inf(-1)), math.Inf(-1), false},
		"double, NaN":          {typeDouble, integer, hexKey(t, "0x7ff8000000000000"), math.Float64frombits(0x7ff8000000000000), false},
		"long, 0":              {typeLong, integer, hexKey(t, "0x00"), 0, false},
		"long, -1":             {typeLong, integer, hexKey(t, "0x01"), -1, false},
		"long, 300":            {typeLong, integer, hexKey(t, "0xd804"), 300, false},
		"long, greatest":       {typeLong, integer, hexKey(t, "0xfeffffffffffffffff01"), 1 << 63, true},
		"long, least":          {typeLong, integer, hexKey(t, "0xffffffffffffffffff01"), -1 << 63, false},
		"long, 2^53+1":         {typeLong, integer, binary.AppendVarint(nil, 1<<53+1), 1 << 53, true},
		"legacy integer, 0":    {typeLegacy, integer, nil, 0, false},
		"legacy integer, 258":  {typeLegacy, integer, hexKey(t, "0x0102"), 258, false},
		"legacy integer, -2":   {typeLegacy, integer, hexKey(t, "0xfffffffffffffffe"), -2, false},
		"legacy float":         {typeLegacy, floating, hexKey(t, "0x013dcccccd"), float64(float32(0.1)), false},
		"legacy double":        {typeLegacy, floating, append([]byte{2}, bits(0.1)...), 0.1, false},
		"legacy double, other": {typeLegacy, floating, append([]byte{0}, bits(-0.5)...), -0.5, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, exact, err := valueOf(c.typ, column(c.flag), c.value)
			require.NoError(t, err)
			require.Equal(t, math.Float64bits(c.want), math.Float64bits(v))
			require.Equal(t, c.lossy, !exact)
		})
	}
	for name, c := range map[string]struct {
		typ   string
		flag  uint32
		value []byte
	}{
		"short double":        {typeDouble, integer, make([]byte, 7)},
		"long double":         {typeDouble, integer, make([]byte, 9)},
		"no long":             {typeLong, integer, nil},
		"long without end":    {typeLong, integer, hexKey(t, "0xffff")},
		"long with more":      {typeLong, integer, hexKey(t, "0x0200")},
		"long beyond 64 bits": {typeLong, integer, hexKey(t, "0xffffffffffffffffff02")},
		"wide legacy integer": {typeLegacy, integer, make([]byte, 9)},
		"no legacy float":     {typeLegacy, floating, nil},
		"short legacy float":  {typeLegacy, floating, hexKey(t, "0x013dcccc")},
		"float of 9 bytes":    {typeLegacy, floating, append([]byte{1}, make([]byte, 8)...)},
		"double of 5 bytes":   {typeLegacy, floating, append([]byte{2}, make([]byte, 4)...)},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := valueOf(c.typ, column(c.flag), c.value)
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
}

// FuzzPoint decodes any bytes as each type in each layout. It checks that valid points aren't before the start of their
// row, and that values of kairos_long and kairos_double that aren't rounded equal the encoded numbers.
func FuzzPoint(f *testing.F) {
	f.Add(column(7), hexKey(f, "0xd804"))
	f.Add(column(2), hexKey(f, "0xc093480000000000"))
	f.Add(column(3), hexKey(f, "0x013dcccccd"))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, column, value []byte) {
		for _, typ := range []string{typeLong, typeDouble, typeLegacy, "kairos_string"} {
			for _, u := range []unit{unitLegacy, unitMilliseconds, unitSeconds} {
				r := Row{TimeMS: rowTime, Type: typ}
				p, err := layout{u, defaultWidthMS}.point(&r, column, value)
				if err != nil {
					require.ErrorIs(t, err, ErrCorrupt)
					continue
				}
				require.GreaterOrEqual(t, p.TimeMS, r.TimeMS)
				switch {
				case typ == typeLong && !p.IsRounded:
					again, used := binary.Varint(value)
					require.Equal(t, len(value), used)
					require.Equal(t, again, int64(p.Value))
				case typ == typeDouble:
					require.Equal(t, value, binary.BigEndian.AppendUint64(nil, math.Float64bits(p.Value)))
				}
			}
		}
	})
}
