package page

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

// TestTimesAreThoseOfChunks compares the spans of entries with the chunks: an entry with samples in a range is never
// skipped, and the span of a usual chunk is exact.
func TestTimesAreThoseOfChunks(t *testing.T) {
	passed := 0
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 9))
		for kind, values := range [][][]byte{usualValues(Chunks, 200, seed), oddValues(t, Chunks, seed)} {
			p, err := Parse(Append(nil, headOf(Chunks), values))
			require.NoError(t, err)
			times, ok := p.Times()
			require.True(t, ok)
			for i, value := range values {
				raw, err := format.ParseRawChunk(value)
				info := chunk.Info{}
				if err == nil {
					info, err = chunk.Header(raw.Data)
				}
				first, last := times.Span(i)
				if err != nil {
					require.LessOrEqual(t, first, last)
					continue
				}
				for _, at := range []int64{
					info.MinT, info.MaxT, info.MinT - 1, info.MaxT + 1, info.MinT + r.Int64N(1<<20) - 1<<19,
				} {
					to := at + r.Int64N(2)*r.Int64N(1<<20)
					meets := info.MinT <= to && at <= info.MaxT
					if usual := kind == 0; meets || usual {
						require.Equal(t, meets, first <= to && at <= last,
							"seed %d, entry %d from %d to %d, asked from %d to %d", seed, i, info.MinT, info.MaxT, at,
							to)
						passed++
					}
				}
			}
		}
	}
	require.NotZero(t, passed)
	labels, err := Parse(Append(nil, headOf(Labels), usualValues(Labels, 3, 1)))
	require.NoError(t, err)
	_, ok := labels.Times()
	require.False(t, ok)
}
