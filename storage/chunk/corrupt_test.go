package chunk

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"
)

// resealed returns b with a correct checksum in its last 4 bytes.
func resealed(b []byte) []byte {
	if len(b) < checksumSize {
		return b
	}
	b = append([]byte(nil), b[:len(b)-checksumSize]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// envelope returns a chunk with this header and body, and a correct checksum.
func envelope(contains byte, floats, histograms uint64, minT int64, span uint64, body ...byte) []byte {
	b := []byte{chunkVersion, contains}
	b = binary.AppendUvarint(b, floats)
	b = binary.AppendUvarint(b, histograms)
	b = binary.AppendVarint(b, minT)
	b = binary.AppendUvarint(b, span)
	b = append(b, body...)
	return resealed(append(b, 0, 0, 0, 0))
}

func subChunk(t *testing.T, encoding byte, h *histogram.Histogram) []byte {
	c := chunkenc.NewHistogramChunk()
	appender, err := c.Appender()
	require.NoError(t, err)
	_, _, _, err = appender.AppendHistogram(nil, 0, 0, h, true)
	require.NoError(t, err)
	b := binary.AppendUvarint([]byte{encoding}, uint64(len(c.Bytes())))
	return append(b, c.Bytes()...)
}

func TestDecodeRefuses(t *testing.T) {
	good := AppendChunk(nil, shapes()[3].samples(10, 1))
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)/2] ^= 4
	span := []histogram.Span{{Length: 3}}
	for name, b := range map[string][]byte{
		"nothing":                  nil,
		"short":                    {chunkVersion, 1, 1},
		"version":                  resealed(append([]byte{99}, good[1:]...)),
		"flipped bit":              flipped,
		"cut":                      good[:len(good)-3],
		"cut and resealed":         resealed(good[:len(good)-3]),
		"more behind":              resealed(append(append([]byte(nil), good...), 7)),
		"contains unknown":         envelope(0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0),
		"no samples":               envelope(containsFloats, 0, 0, 0, 0),
		"too many floats":          envelope(containsFloats, MaxSamples+1, 0, 0, math.MaxUint32),
		"count beyond integers":    envelope(containsFloats, math.MaxUint64, 1, 0, math.MaxUint32),
		"more samples than ms":     envelope(containsFloats, 3, 0, 0, 1, intsRegular, 0, 2, 0, intsConstant, 0),
		"range past the end":       envelope(containsFloats, 1, 0, math.MaxInt64, 1),
		"range that lies":          envelope(containsFloats, 2, 0, 0, 9, intsRegular, 0, 2, 0, intsConstant, 0),
		"no timestamps":            envelope(containsFloats, 2, 0, 0, 1),
		"constant timestamps":      envelope(containsFloats, 2, 0, 0, 0, intsConstant, 0, 0, intsConstant, 0),
		"descending timestamps":    envelope(containsFloats, 2, 0, 0, 1, intsRegular, 2, 1, 0, intsConstant, 0),
		"dod of one":               envelope(containsFloats, 1, 0, 0, 0, intsDod, 0, 0, 0, 0, intsConstant, 0),
		"kind":                     envelope(containsFloats, 1, 0, 0, 0, 77, 0, 0, intsConstant, 0),
		"form":                     envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0, 17, intsConstant, 0),
		"no values":                envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0),
		"exception beyond":         envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0, formExceptions, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, intsConstant, 0),
		"exception cut":            envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0, formExceptions, 0, 0, 1, 2, 3),
		"column too wide":          envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0, 0, intsPlain, 0, 0x81),
		"column cut":               envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0, 0, intsPlain, 0, 8, 1),
		"more patches than places": envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0, 0, intsPlain, 0, 0x10, 1, 0, 0, 1, 1),
		"patch beyond":             envelope(containsFloats, 1, 0, 0, 0, intsConstant, 0, 0, intsPlain, 0, 0x10, 0, 1, 1),
		"start relative to what":   envelope(containsFloats|containsStarts, 1, 0, 0, 0, intsConstant, 0, 9, intsConstant, 0, 0, intsConstant, 0),
		"histogram missing":        envelope(containsIntHistograms, 0, 1, 0, 0),
		"histogram encoding":       envelope(containsIntHistograms, 0, 1, 0, 0, subChunk(t, 5, &histogram.Histogram{})...),
		"histogram cut":            envelope(containsIntHistograms, 0, 1, 0, 0, encodingInt, 100, 0, 0),
		"histogram schema": envelope(containsIntHistograms, 0, 1, 0, 0,
			subChunk(t, encodingInt, &histogram.Histogram{Schema: 30, PositiveSpans: span, PositiveBuckets: []int64{1, 1, 1}})...),
		"histogram of too many buckets": envelope(containsIntHistograms, 0, 1, 0, 0,
			encodingInt, 15, 0, 1, 0, 0, 0xa8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
	} {
		into := shapes()[3].samples(3, 1)
		want := *into
		require.ErrorIs(t, Decode(b, into), ErrCorrupt, name)
		require.Equal(t, want, *into, name)
	}
}

func TestEveryCutAndFlippedBitIsSeen(t *testing.T) {
	s := histogramSeries(t, 30, 1, false, true)
	for i := range 40 {
		s.AppendFloat(startMS-int64(100-i), int64(i), math.Sqrt(float64(i)))
	}
	good := AppendChunk(nil, s)
	var into Samples
	for n := range good {
		require.ErrorIs(t, Decode(good[:n], &into), ErrCorrupt)
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[n] ^= 1 << bit
			require.ErrorIs(t, Decode(bad, &into), ErrCorrupt)
		}
	}
	require.Zero(t, into.Len())
}

// TestLyingCountAllocatesLittle checks that a count is trusted only as far as the remaining bytes can justify it, so
// that memory is bounded.
func TestLyingCountAllocatesLittle(t *testing.T) {
	for name, b := range map[string][]byte{
		"floats": envelope(containsFloats, MaxSamples, 0, 0, math.MaxUint32, 1, 2, 3, 4),
		"histograms": envelope(containsIntHistograms, 0, MaxSamples, 0, math.MaxUint32,
			subChunk(t, encodingInt, &histogram.Histogram{})...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var into Samples
		require.ErrorIs(t, Decode(b, &into), ErrCorrupt, name)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
}

// TestMutatedChunks changes bytes and corrects the checksum: nothing may panic, and an accepted chunk must match its
// envelope.
func TestMutatedChunks(t *testing.T) {
	for name, s := range goldenSamples(t) {
		good := AppendChunk(nil, s)
		r := rand.New(rand.NewPCG(uint64(len(good)), 4))
		accepted := 0
		for range 500 {
			b := append([]byte(nil), good...)
			for range 1 + r.IntN(3) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
			b = resealed(b)
			var got Samples
			if err := Decode(b, &got); err != nil {
				require.ErrorIs(t, err, ErrCorrupt, name)
				continue
			}
			accepted++
			info, err := Header(b)
			require.NoError(t, err)
			require.Equal(t, info.Floats, len(got.T), name)
			require.Equal(t, info.Histograms, len(got.H), name)
		}
		require.Positive(t, accepted, "%s: some changes only change values", name)
	}
}

func TestAppendChunkRefusesWhatNoChunkHolds(t *testing.T) {
	require.Panics(t, func() { AppendChunk(nil, &Samples{}) })
	require.Panics(t, func() {
		AppendChunk(nil, &Samples{T: make([]int64, MaxSamples+1), V: make([]float64, MaxSamples+1)})
	})
}

func TestDecodeAppendsWithoutAllocating(t *testing.T) {
	s := shapes()[3].samples(480, 1)
	b := AppendChunk(nil, s)
	var into Samples
	require.NoError(t, Decode(b, &into))
	require.NoError(t, Decode(b, &into))
	require.Equal(t, 960, into.Len())
	into.Normalize()
	requireSame(t, s, &into)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		into.Reset()
		if err := Decode(b, &into); err != nil {
			t.Error(err)
		}
	}))
	starts := AppendChunk(nil, &Samples{T: []int64{startMS * 2}, V: []float64{1}, ST: []int64{5}})
	require.NoError(t, Decode(starts, &into))
	require.Equal(t, len(into.T), len(into.ST))
	require.Equal(t, int64(5), into.ST[480])
	require.NoError(t, Decode(b, &into))
	require.Equal(t, len(into.T), len(into.ST))
}
