package chunk

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInts(t *testing.T) {
	repeat := func(n int, at func(i int) int64) []int64 {
		x := make([]int64, n)
		for i := range x {
			x[i] = at(i)
		}
		return x
	}
	for _, c := range []struct {
		name string
		x    []int64
		kind byte
		size int // max size in bytes
	}{
		{"one", []int64{5}, intsConstant, 2},
		{"constant", repeat(500, func(int) int64 { return -3 }), intsConstant, 2},
		{"regular", repeat(500, func(i int) int64 { return 7 + 15000*int64(i) }), intsRegular, 5},
		{"two", []int64{math.MinInt64, math.MaxInt64}, intsRegular, 12},
		{"around a value", repeat(500, func(i int) int64 { return 1000 + int64(i*i%7) }), intsPlain, 510},
		{"switch", repeat(500, func(i int) int64 { return int64(i % 2) }), intsPlain, 140},
		{"steps of a factor", repeat(500, func(i int) int64 { return 4096 * int64(i*i*i%90) }), intsDelta | intsFactor, 515},
		{"jitter of 1", repeat(500, func(i int) int64 { return 15000*int64(i) + int64(i/5%2) }), intsDelta, 135},
		{"a reset", repeat(500, func(i int) int64 { return 100*int64(i%300) + int64(i*i%5) }), intsDelta, 510},
		{"faster and faster", repeat(500, func(i int) int64 { return 9 * int64(i) * int64(i) }), intsDod | intsFactor, 140},
		{"extremes", repeat(500, func(i int) int64 { return []int64{math.MinInt64, -1, 0, math.MaxInt64, 5}[i%5] }), intsDelta, 4100},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := appendInts(nil, c.x)
			require.Equal(t, c.kind, b[0])
			require.LessOrEqual(t, len(b), c.size)
			got := make([]int64, len(c.x))
			rest, err := decodeInts(append(b, 77), got, 0)
			require.NoError(t, err)
			require.Equal(t, []byte{77}, rest)
			require.Equal(t, c.x, got)
			_, err = decodeInts(b, got, 10)
			require.NoError(t, err)
			require.Equal(t, c.x[0]+10, got[0])
			require.Equal(t, c.x[len(c.x)-1]+10, got[len(got)-1])
			for n := range b {
				_, err := decodeInts(b[:n], got, 0)
				require.ErrorIs(t, err, ErrCorrupt)
			}
		})
	}
}

// TestColumns checks the round trip of columns of every width, with and without patches.
func TestColumns(t *testing.T) {
	for bits := range 65 {
		for patchBits := bits; patchBits < 65; patchBits += 9 {
			for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 9, 100, 1023, 1024} {
				u := make([]uint64, n)
				for i := range u {
					u[i] = uint64(i*2654435761+1) * 0x9e3779b97f4a7c15 >> 1 >> (63 - min(bits, 63))
					if bits == 0 {
						u[i] = 0
					}
				}
				u[n/2] |= 1 << patchBits >> 1
				u[n-1] |= 1 << patchBits >> 1
				b := appendColumn(nil, u)
				got := make([]int64, n)
				rest, err := decodeColumn(b, got)
				require.NoError(t, err)
				require.Empty(t, rest)
				for i := range u {
					require.Equal(t, u[i], uint64(got[i]))
				}
			}
		}
	}
}
