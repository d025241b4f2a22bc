package head

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

// TestStrandGivesBackWhatItTook appends samples of many shapes, sorted and unsorted. After each sample, reading the
// head chunk must return all samples appended so far.
func TestStrandGivesBackWhatItTook(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	specials := []float64{
		0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.Float64frombits(value.StaleNaN),
		math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1,
	}
	for round := range 200 {
		st := newChunk(&Generation{start: 7_200_000}, &Series{})
		var want chunk.Samples
		const first, last = 7_200_001, 7_200_000 + format.MaxSlotMS
		at, start := int64(first), int64(0)
		for range rng.IntN(400) {
			switch rng.IntN(10) {
			case 0:
				at = first + rng.Int64N(last-first+1)
			case 1:
				at -= rng.Int64N(100_000)
			default:
				at += 15_000
			}
			if rng.IntN(20) == 0 {
				start = at - rng.Int64N(1000)
			}
			at = max(min(at, last), first)
			v := float64(rng.IntN(1000))
			if rng.IntN(5) == 0 {
				v = specials[rng.IntN(len(specials))]
			}
			if rng.IntN(50) == 0 {
				h := chunk.Histogram{T: at, Int: &histogram.Histogram{
					Count: 2, Sum: v, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{2},
				}}
				canonical, err := chunk.CanonicalHistogram(h)
				require.NoError(t, err)
				st.appendHistogram(at, chunk.AppendHistogramBytes(nil, canonical))
				want.AppendHistogram(canonical)
				continue
			}
			st.appendFloat(at, start, math.Float64bits(v))
			want.AppendFloat(at, start, v)
		}
		var got chunk.Samples
		require.NoError(t, st.read(-format.MaxTime, format.MaxTime, &got))
		got.Normalize()
		want.Normalize()
		require.Equal(t, encodeAll(&want), encodeAll(&got), "round %d", round)
	}
}

// encodeAll makes samples comparable bit for bit.
func encodeAll(s *chunk.Samples) []byte {
	if s.Len() == 0 {
		return nil
	}
	return chunk.AppendChunk(nil, s)
}

func TestStrandRepeats(t *testing.T) {
	st := newChunk(&Generation{}, &Series{})
	require.False(t, st.isRepeat(0, 0, 0), "nothing came yet")
	st.appendFloat(10, 5, 1)
	require.True(t, st.isRepeat(10, 5, 1))
	require.False(t, st.isRepeat(10, 5, 2))
	require.False(t, st.isRepeat(10, 6, 1))
	require.False(t, st.isRepeat(11, 5, 1))
}

func FuzzTail(f *testing.F) {
	st := newChunk(&Generation{}, &Series{})
	for i := range int64(5) {
		st.appendFloat(i*15_000+i%2, i/3, uint64(i*i)<<40)
	}
	f.Add(st.tail())
	f.Fuzz(func(t *testing.T, tail []byte) {
		st := newChunk(&Generation{}, &Series{})
		st.setTail(tail)
		tail = st.tail()
		var got chunk.Samples
		if st.decodeTail(&got) == nil {
			require.LessOrEqual(t, got.Len(), len(tail))
		}
	})
}

// TestLongestTail checks that the capacity of a tail grows up to the max size of its samples, and that no sample is
// written beyond it.
func TestLongestTail(t *testing.T) {
	require.LessOrEqual(t, maxTail, math.MaxUint8*tailUnit, "the room of a tail is counted by a byte")
	rng := rand.New(rand.NewPCG(1, 2))
	st := newChunk(&Generation{}, &Series{})
	var want, got chunk.Samples
	for i := range int64(freezeAfter - 1) {
		at, start, v := 1+i%2*(format.MaxSlotMS-1), (2*(i%2)-1)<<62+i, math.Float64frombits(rng.Uint64()|1<<63|1)
		st.appendFloat(at, start, math.Float64bits(v))
		want.AppendFloat(at, start, v)
	}
	require.Greater(t, len(st.tail()), maxTail*2/3)
	require.LessOrEqual(t, len(st.tail()), maxTail)
	require.NoError(t, st.read(0, format.MaxSlotMS, &got))
	require.Equal(t, want.Len(), got.Len())
	got.Normalize()
	want.Normalize()
	require.Equal(t, encodeAll(&want), encodeAll(&got))
}

// TestFrozenStrandKeepsNoRoom checks that a frozen head chunk holds the data of its chunks and no spare capacity, and
// that the sum of the sizes returned by appendFloat equals the size of the head chunk, so that the head's account is
// balanced.
func TestFrozenStrandKeepsNoRoom(t *testing.T) {
	st := newChunk(&Generation{}, &Series{})
	account := chunkBytes
	for i := range int64(3 * freezeAfter) {
		account += st.appendFloat((i+1)*15_000, 0, math.Float64bits(float64(i*i)/3))
		require.EqualValues(t, st.bytes(), account)
		if (i+1)%freezeAfter != 0 {
			continue
		}
		require.Equal(t, int(i+1)/freezeAfter, st.pieces())
		want := chunkBytes
		for f := range st.eachFrozen() {
			want += len(f.data) + frozenBytes
			require.Less(t, cap(f.data), len(f.data)+len(f.data)/4+32, "what the allocator rounds up to")
		}
		require.Less(t, account, want+want/4)
		var samples chunk.Samples
		require.NoError(t, st.read(-format.MaxTime, format.MaxTime, &samples))
		require.True(t, slices.IsSorted(samples.T), "what came in order is read in order: it needs no sorting")
		require.Len(t, samples.T, int(i+1))
	}
}

// usedCPU returns the CPU time that this process has used, in seconds.
func usedCPU() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// BenchmarkStrand appends a slot's samples to many head chunks. It reports the size of a head chunk as the head
// counts it, and as measured on the heap. The size on the heap includes an empty series and generation.
func BenchmarkStrand(b *testing.B) {
	for _, samples := range []int64{20, 120, 480} {
		b.Run(fmt.Sprint(samples), func(b *testing.B) {
			const strands = 5_000
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				all, account := make([]*Chunk, strands), 0
				rng := rand.New(rand.NewPCG(1, 2))
				begin := usedCPU()
				for i := range all {
					all[i] = newChunk(&Generation{}, &Series{})
				}
				for k := range samples {
					for i := range all {
						v := float64(rng.IntN(1000)) + float64(k*int64(i%7))
						account += all[i].appendFloat((k+1)*7_200_000/samples, 0, math.Float64bits(v))
					}
				}
				b.ReportMetric((usedCPU()-begin)/strands/float64(samples)*1e9, "cpu-ns/sample")
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(account)/strands, "account-B/strand")
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/strands, "heap-B/strand")
				runtime.KeepAlive(all)
			}
		})
	}
}
