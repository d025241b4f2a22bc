package promql

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

func over(s chunk.Samples) func(*chunk.Samples) error {
	return func(into *chunk.Samples) error {
		into.T = append(into.T, s.T...)
		into.V = append(into.V, s.V...)
		into.ST = append(into.ST, s.ST...)
		into.H = append(into.H, s.H...)
		return nil
	}
}

func times(it chunkenc.Iterator) (out []int64) {
	for it.Next() != chunkenc.ValNone {
		out = append(out, it.AtT())
	}
	return out
}

func mixed() chunk.Samples {
	return chunk.Samples{
		T: []int64{-20, 0, 30, 50}, V: []float64{1, 2, math.Float64frombits(value.StaleNaN), 4},
		ST: []int64{-25, 0, 0, 40},
		H: []chunk.Histogram{
			{T: -10, ST: -15, Int: tsdbutil.GenerateTestHistogram(1)},
			{T: 40, Float: tsdbutil.GenerateTestFloatHistogram(2)},
			{T: 60, Int: tsdbutil.GenerateTestHistogram(3)},
		},
	}
}

func TestIteratorMergesFloatsAndHistograms(t *testing.T) {
	it := iteratorFor(nil, math.MinInt64, over(mixed()))
	require.Equal(t, int64(math.MinInt64), it.AtT(), "before the first Next")
	require.Zero(t, it.AtST())

	type row struct {
		t, st int64
		typ   chunkenc.ValueType
	}
	var got []row
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		got = append(got, row{it.AtT(), it.AtST(), typ})
	}
	require.NoError(t, it.Err())
	require.Equal(t, []row{
		{-20, -25, chunkenc.ValFloat}, {-10, -15, chunkenc.ValHistogram}, {0, 0, chunkenc.ValFloat},
		{30, 0, chunkenc.ValFloat}, {40, 0, chunkenc.ValFloatHistogram}, {50, 40, chunkenc.ValFloat},
		{60, 0, chunkenc.ValHistogram},
	}, got)
	require.Equal(t, int64(60), it.AtT(), "after the end")
	require.Equal(t, chunkenc.ValNone, it.Next())
	require.Equal(t, chunkenc.ValNone, it.Seek(-100), "an exhausted iterator stays exhausted")
}

func TestIteratorStartsAtMint(t *testing.T) {
	for mint, want := range map[int64][]int64{
		math.MinInt64: {-20, -10, 0, 30, 40, 50, 60}, -10: {-10, 0, 30, 40, 50, 60}, 1: {30, 40, 50, 60}, 60: {60},
		61: nil,
	} {
		require.Equal(t, want, times(iteratorFor(nil, mint, over(mixed()))), "from %d", mint)
	}
}

func TestIteratorSeek(t *testing.T) {
	it := iteratorFor(nil, math.MinInt64, over(mixed()))
	require.Equal(t, chunkenc.ValHistogram, it.Seek(-15))
	require.Equal(t, int64(-10), it.AtT())
	require.Equal(t, chunkenc.ValHistogram, it.Seek(-100), "no way back")
	require.Equal(t, int64(-10), it.AtT())
	require.Equal(t, chunkenc.ValFloat, it.Next())
	require.Equal(t, chunkenc.ValFloatHistogram, it.Seek(31))
	require.Equal(t, chunkenc.ValFloatHistogram, it.Seek(40))
	require.Equal(t, chunkenc.ValNone, it.Seek(61))
	require.Equal(t, chunkenc.ValNone, it.Next())
}

// TestIteratorSeeksAsPrometheusDoes checks that the iterator returns the same as the iterator of an XOR chunk with the
// same samples, for every sequence of Next and Seek.
func TestIteratorSeeksAsPrometheusDoes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var s chunk.Samples
		c := chunkenc.NewXORChunk()
		app, err := c.Appender()
		require.NoError(t, err)
		at := rnd.Int64N(2000) - 1000
		for range rnd.IntN(200) {
			at += 1 + rnd.Int64N(30)
			s.T, s.V = append(s.T, at), append(s.V, float64(at))
			app.Append(0, at, float64(at))
		}
		ours, theirs := iteratorFor(nil, math.MinInt64, over(s)), c.Iterator(nil)
		target := int64(-1100)
		for range 60 {
			var got chunkenc.ValueType
			if rnd.IntN(3) == 0 {
				got = ours.Next()
				require.Equal(t, theirs.Next(), got)
			} else {
				target += rnd.Int64N(200) - 20
				got = ours.Seek(target)
				require.Equal(t, theirs.Seek(target), got, "seek %d", target)
			}
			if got == chunkenc.ValNone {
				break
			}
			require.Equal(t, theirs.AtT(), ours.AtT())
		}
	}
}

func TestIteratorHandsOutCopies(t *testing.T) {
	s := chunk.Samples{H: []chunk.Histogram{
		{T: 1, Int: tsdbutil.GenerateTestHistogram(1)}, {T: 2, Float: tsdbutil.GenerateTestFloatHistogram(2)},
	}}
	wantInt, wantFloat := s.H[0].Int.Copy(), s.H[1].Float.Copy()
	for _, reuse := range []bool{false, true} {
		it := iteratorFor(nil, math.MinInt64, over(s))
		var h *histogram.Histogram
		var fh *histogram.FloatHistogram
		if reuse {
			h, fh = tsdbutil.GenerateTestHistogram(77), tsdbutil.GenerateTestFloatHistogram(78)
		}
		it.Next()
		_, h = it.AtHistogram(h)
		require.True(t, h.Equals(wantInt))
		_, asFloat := it.AtFloatHistogram(fh)
		require.True(t, asFloat.Equals(wantInt.ToFloat(nil)))
		h.PositiveBuckets[0], h.PositiveSpans[0].Offset = 99, 99
		asFloat.PositiveBuckets[0] = 99
		it.Next()
		_, asFloat = it.AtFloatHistogram(fh)
		require.True(t, asFloat.Equals(wantFloat))
		asFloat.NegativeBuckets[0], asFloat.NegativeSpans[0].Offset = 99, 99
	}
	require.True(t, s.H[0].Int.Equals(wantInt), "the store's histogram was changed")
	require.True(t, s.H[1].Float.Equals(wantFloat), "the store's histogram was changed")
}

func TestIteratorReadsStaleAndFinerHistograms(t *testing.T) {
	stale := math.Float64frombits(value.StaleNaN)
	fine := tsdbutil.GenerateTestHistogram(1)
	fine.Schema = 12
	it := iteratorFor(nil, math.MinInt64, over(chunk.Samples{H: []chunk.Histogram{
		{T: 1, Int: &histogram.Histogram{Sum: stale, Count: 7, Schema: 3}},
		{T: 2, Float: &histogram.FloatHistogram{Sum: stale}}, {T: 3, Int: fine},
	}}))
	it.Next()
	_, h := it.AtHistogram(tsdbutil.GenerateTestHistogram(1))
	require.True(t, value.IsStaleNaN(h.Sum))
	require.Zero(t, h.Count)
	_, fh := it.AtFloatHistogram(nil)
	require.True(t, value.IsStaleNaN(fh.Sum))
	it.Next()
	_, fh = it.AtFloatHistogram(nil)
	require.True(t, value.IsStaleNaN(fh.Sum))
	it.Next()
	_, h = it.AtHistogram(nil)
	require.EqualValues(t, histogram.ExponentialSchemaMax, h.Schema)
	_, fh = it.AtFloatHistogram(nil)
	require.EqualValues(t, histogram.ExponentialSchemaMax, fh.Schema)
	require.EqualValues(t, 12, fine.Schema)
	require.NoError(t, it.Err())
}

func TestIteratorIsUsedAgain(t *testing.T) {
	it := iteratorFor(nil, math.MinInt64, over(mixed()))
	times(it)
	floats := chunk.Samples{T: []int64{1, 2}, V: []float64{1, 2}}
	again := iteratorFor(it, math.MinInt64, over(floats))
	require.Same(t, it, again)
	require.Equal(t, []int64{1, 2}, times(again))
	require.Zero(t, again.AtST(), "no start timestamps of the series before")

	broken := errors.New("a corrupt chunk")
	again = iteratorFor(again, math.MinInt64, func(into *chunk.Samples) error {
		into.T, into.V = append(into.T, 5), append(into.V, 5)
		return broken
	})
	require.Equal(t, chunkenc.ValNone, again.Next())
	require.ErrorIs(t, again.Err(), broken)
	require.Equal(t, chunkenc.ValNone, again.Seek(5))
	again = iteratorFor(again, math.MinInt64, over(floats))
	require.Equal(t, []int64{1, 2}, times(again))
	require.NoError(t, again.Err())

	foreign := iteratorFor(chunkenc.NewNopIterator(), math.MinInt64, over(floats))
	require.Equal(t, []int64{1, 2}, times(foreign))
}

func TestGallop(t *testing.T) {
	values := []int{0, 2, 4, 6, 8, 10, 12, 14}
	for start := range len(values) + 1 {
		for v := -1; v < 17; v++ {
			want := start + slices.IndexFunc(append(slices.Clone(values[start:]), 1000), func(x int) bool {
				return x >= v
			})
			require.Equal(t, want, searchFrom(len(values), start, func(k int) bool { return values[k] >= v }),
				"%d from %d", v, start)
		}
	}
}

func BenchmarkIteratorFloats(b *testing.B) {
	var s chunk.Samples
	for i := range int64(480) {
		s.T, s.V = append(s.T, i*15000), append(s.V, float64(i))
	}
	var it chunkenc.Iterator
	read := over(s)
	b.ReportAllocs()
	for b.Loop() {
		it = iteratorFor(it, 0, read)
		for it.Next() != chunkenc.ValNone {
			it.At()
		}
	}
}
