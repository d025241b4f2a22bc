package format

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

func TestRawChunkEnd(t *testing.T) {
	t.Parallel()
	var samples chunk.Samples
	for _, at := range []int64{100, 200, 300} {
		samples.AppendFloat(at, 0, 1)
	}
	value := AppendRawChunk(nil, RawChunk{Data: chunk.AppendChunk(nil, &samples)})
	for at, want := range map[int64]int64{1000: 300, 300: 300, 299: 200, 200: 200, 199: 100, 100: 100} {
		require.Equal(t, want, RawChunkEnd(value, at, 1000), at)
	}
	require.Equal(t, int64(0), RawChunkEnd(value, 50, 50), "no sample is that old")
	require.Equal(t, int64(250), RawChunkEnd(value, 260, 10), "older samples don't matter")
	require.Equal(t, int64(0), RawChunkEnd(AppendRawChunk(nil, RawChunk{}), 50, 50), "cleaned")
	damaged := slices.Clone(value)
	damaged[len(damaged)-1] ^= 1
	require.Equal(t, int64(250), RawChunkEnd(damaged, 250, 100))
	require.Equal(t, int64(250), RawChunkEnd(value[:3], 250, 100))
}
