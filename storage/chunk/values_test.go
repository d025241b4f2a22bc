package chunk

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForms checks that values are encoded in the form that suits them.
func TestForms(t *testing.T) {
	const exceptions = formExceptions
	want := map[string]byte{
		"constant":                     0,
		"negative zero":                formBits,
		"counter":                      0,
		"counter of seconds":           2,
		"sum of nanoseconds":           formNear + 9,
		"seconds scaled twice":         formNear + 6,
		"gauge of 1 decimal":           1,
		"gauge of 3 decimals":          3,
		"gauge of bytes":               0,
		"ratio":                        formBits,
		"stale markers among integers": 0 | exceptions,
		"only stale markers":           formBits,
		"any bits":                     formBits,
	}
	for _, shape := range shapes() {
		form, ok := want[shape.name]
		if !ok {
			continue
		}
		delete(want, shape.name)
		require.Equal(t, form, appendValues(nil, shape.samples(480, 1).V)[0], shape.name)
	}
	require.Empty(t, want)
}

// TestOneStaleMarkerCostsLittle checks that exceptions don't make a block use another form.
func TestOneStaleMarkerCostsLittle(t *testing.T) {
	for _, name := range []string{
		"constant", "counter", "gauge of 3 decimals", "sum of nanoseconds", "gauge of bytes",
	} {
		for _, shape := range shapes() {
			if shape.name != name {
				continue
			}
			for _, at := range []int{0, 200, 479} {
				v := shape.samples(480, 1).V
				before := len(appendValues(nil, v))
				v[at] = staleNaN
				require.Less(t, len(appendValues(nil, v)), before+24, "%s, at %d", name, at)
			}
		}
	}
}

func TestMantissa(t *testing.T) {
	for _, c := range []struct {
		v  float64
		e  int
		m  int64
		ok bool
	}{
		{0, 0, 0, true},
		{math.Copysign(0, -1), 0, 0, false},
		{math.Copysign(0, -1), 3, 0, false},
		{-7, 0, -7, true},
		{-7, 2, -700, true},
		{0.1, 0, 0, false},
		{0.1, 1, 1, true},
		{1.005, 3, 1005, true},
		{math.Nextafter(1.005, 2), 3, 1005, false},
		{1 << 62, 0, 1 << 62, true},
		{1 << 63, 0, 0, false},
		{-1 << 63, 0, math.MinInt64, true},
		{1 << 53, 1, 0, false},
		{math.Inf(1), 0, 0, false},
		{math.NaN(), 0, 0, false},
		{math.NaN(), 5, 0, false},
		{123456789.123456, 6, 123456789123456, true},
	} {
		m, ok := mantissa(c.v, c.e)
		require.Equal(t, c.ok, ok, "%v·10^%d", c.v, c.e)
		if ok {
			require.Equal(t, c.m, m)
			require.Equal(t, math.Float64bits(c.v), math.Float64bits(float64(m)/powers[c.e]))
		}
	}
}

func TestOrderedBits(t *testing.T) {
	ascending := []float64{math.Inf(-1), -math.MaxFloat64, -1, -math.SmallestNonzeroFloat64, math.Copysign(0, -1),
		0, math.SmallestNonzeroFloat64, 1, math.MaxFloat64, math.Inf(1)}
	for i, v := range ascending {
		require.Equal(t, math.Float64bits(v), math.Float64bits(fromOrderedBits(orderedBits(v))))
		if i > 0 {
			require.Greater(t, orderedBits(v), orderedBits(ascending[i-1]))
		}
	}
}
