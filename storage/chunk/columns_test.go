package chunk

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestColumnsComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 2, 3, 24, 64, 65, MaxColumn} {
		for _, spread := range []int64{1, 2, 300, 1 << 40, math.MaxInt64} {
			x, got := make([]int64, n), make([]int64, n)
			for i := range x {
				x[i] = r.Int64N(spread) - spread/2
			}
			for _, b := range [][]byte{AppendInts(nil, x), AppendSmallInts(nil, x)} {
				rest, err := DecodeInts(append(b, 7), got)
				require.NoError(t, err)
				require.Equal(t, []byte{7}, rest)
				require.Equal(t, x, got)
			}
			v, ok := ConstantInts(AppendInts(nil, x))
			require.Equal(t, isConstant(x), ok)
			if ok {
				require.Equal(t, x[0], v)
			}
		}
	}
	_, ok := ConstantInts(append(AppendInts(nil, []int64{5}), 0))
	require.False(t, ok, "something follows")
}

func TestMantissas(t *testing.T) {
	for _, v := range []float64{0, 1, -1.5, 0.001, 123.456, 1e15} {
		e, ok := Exponent(v, 0)
		require.True(t, ok)
		m, ok := Mantissa(v, e)
		require.True(t, ok)
		require.Equal(t, v, float64(m)/Power(e))
		near, above, ok := NearMantissa(math.Nextafter(v, math.Inf(1)), e)
		if v != 0 && v < 1e15 {
			require.True(t, ok)
			require.Equal(t, []int64{m, 1}, []int64{near, above}, "%v", v)
		}
		require.Equal(t, v, FromOrderedBits(OrderedBits(v)))
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Copysign(0, -1), math.Pi * 1e-5} {
		_, ok := Exponent(v, 3)
		require.False(t, ok, "%v", v)
	}
	require.Less(t, OrderedBits(-2), OrderedBits(-1))
	require.Less(t, OrderedBits(-1), OrderedBits(1))
}
