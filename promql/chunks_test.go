package promql

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// fixed is a series with given samples.
type fixed struct{ samples chunk.Samples }

func (fixed) Labels() labels.Labels { return labels.FromStrings("a", "b") }

func (f fixed) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	return iteratorFor(it, math.MinInt64, over(f.samples))
}

func TestChunksHoldEverySample(t *testing.T) {
	var it chunks.Iterator // Reused for each series.
	rounds := uint64(200)
	if testing.Short() {
		rounds = 30
	}
	for i := range rounds {
		g := generator{rnd: rand.New(rand.NewPCG(i, 9))}
		var s chunk.Samples
		onlyFloats := g.rnd.IntN(3) == 0
		for ts := range int64(g.rnd.IntN(400)) {
			if onlyFloats || g.rnd.IntN(40) == 0 {
				s.T, s.V = append(s.T, ts), append(s.V, g.rnd.Float64())
			} else {
				h := g.next()
				h.T, h.ST = ts, ts-1
				s.H = append(s.H, h)
			}
		}
		it = chunkSeries{fixed{s}}.Iterator(it)
		var metas []chunks.Meta
		for it.Next() {
			metas = append(metas, it.At())
		}
		require.NoError(t, it.Err())

		ours := iteratorFor(nil, math.MinInt64, over(s))
		for _, m := range metas {
			require.LessOrEqual(t, m.Chunk.NumSamples(), samplesPerChunk)
			require.Positive(t, m.Chunk.NumSamples())
			var last int64
			for theirs, first := m.Chunk.Iterator(nil), true; ; first = false {
				typ := theirs.Next()
				if typ == chunkenc.ValNone {
					break
				}
				require.Equal(t, ours.Next(), typ)
				last = theirs.AtT()
				require.Equal(t, ours.AtT(), last)
				if first {
					require.Equal(t, m.MinTime, last)
				}
				if typ == chunkenc.ValFloat {
					_, want := ours.At()
					_, got := theirs.At()
					require.Equal(t, math.Float64bits(want), math.Float64bits(got))
					continue
				}
				_, want := ours.AtFloatHistogram(nil)
				_, got := theirs.AtFloatHistogram(nil)
				if !math.IsNaN(want.Sum) {
					got = got.Copy() // The chunk iterator reuses its spans.
					require.True(t, want.Compact(0).Equals(got.Compact(0)), "%s, not %s", got, want)
				}
			}
			require.Equal(t, m.MaxTime, last)
		}
		require.Equal(t, chunkenc.ValNone, ours.Next())
		if onlyFloats {
			require.Len(t, metas, (len(s.T)+samplesPerChunk-1)/samplesPerChunk)
		}
	}
}

func TestChunksUseEncodingsThatEveryReaderKnows(t *testing.T) {
	s := fixed{chunk.Samples{T: []int64{1}, V: []float64{1}, ST: []int64{1}, H: mixed().H}}
	it := chunkSeries{s}.Iterator(nil)
	for it.Next() {
		require.Contains(t, []chunkenc.Encoding{chunkenc.EncXOR, chunkenc.EncHistogram, chunkenc.EncFloatHistogram},
			it.At().Chunk.Encoding())
	}
	require.NoError(t, it.Err())
}

var _ promstorage.ChunkSeries = chunkSeries{}
