package rollup

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

// resealed returns b with its last 4 bytes replaced by a valid checksum.
func resealed(b []byte) []byte {
	if len(b) < checksumSize {
		return b
	}
	b = append([]byte(nil), b[:len(b)-checksumSize]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// envelopeOf returns a chunk with this envelope, a valid checksum, and rest as the sizes and bytes of its columns.
func envelopeOf(width, count, missing uint64, first int64, there uint64, rest ...byte) []byte {
	b := binary.AppendUvarint([]byte{chunkFormat}, width)
	b = binary.AppendUvarint(b, count)
	b = binary.AppendUvarint(b, missing)
	b = binary.AppendVarint(b, first)
	b = binary.AppendUvarint(b, 1)
	b = binary.AppendUvarint(b, there)
	return resealed(append(append(b, rest...), 0, 0, 0, 0))
}

func TestDecodeRefuses(t *testing.T) {
	good := AppendChunk(nil, goldenBuckets(t)["floats counter"], fiveMinutes, 1)
	one := []byte{0, 2} // a run of integers that are all 1
	for name, b := range map[string][]byte{
		"nothing":                      nil,
		"short":                        good[:9],
		"format":                       resealed(append([]byte{99}, good[1:]...)),
		"cut":                          good[:len(good)-1],
		"cut and resealed":             resealed(good[:len(good)-1]),
		"more behind":                  resealed(append(append([]byte(nil), good...), 7)),
		"no buckets":                   envelopeOf(1000, 0, 0, 1, 0),
		"too many buckets":             envelopeOf(1000, MaxBuckets+1, 0, 1, 0),
		"no width":                     envelopeOf(0, 1, 0, 1, 0),
		"width beyond time":            envelopeOf(math.MaxUint64, 1, 0, 1, 0),
		"end beyond time":              envelopeOf(1000, 1, 0, math.MaxInt64, 0),
		"start before time":            envelopeOf(1000, 1, 0, math.MinInt64, 0),
		"missing beyond time":          envelopeOf(1000, 2, math.MaxUint64, 1, 0),
		"unknown column":               envelopeOf(1000, 1, 0, 1, 1<<columnsEnd, 2, 0, 2),
		"empty column":                 envelopeOf(1000, 1, 0, 1, 1<<columnCount, 0),
		"column too long":              envelopeOf(1000, 1, 0, 1, 1<<columnCount, 9, 0, 2),
		"no counts":                    envelopeOf(1000, 1, 0, 1, 0),
		"counts of 0":                  envelopeOf(1000, 1, 0, 1, 1<<columnCount, 2, 0, 0),
		"negative counts":              envelopeOf(1000, 1, 0, 1, 1<<columnCount, 2, 0, 1),
		"no first values":              envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnFirstT, 2, 2, 0, 2, 0, 2),
		"time before the bucket":       envelopeOf(1000, 1, 0, 1, 1<<columnCount, append([]byte{2}, one...)...),
		"missing without ends":         envelopeOf(1000, 2, 1, 1, 1<<columnCount, append([]byte{2}, one...)...),
		"flags unknown":                envelopeOf(1000, 1, 0, 1, 1<<columnFlags, 2, 0, 32),
		"correction without resets":    envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnFirstT|1<<columnFirst|1<<columnCorrection, 2, 2, 2, 3, 0, 2, 0, 2, 0, 0, 1, 0, 0),
		"histograms of no bucket":      envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnHistograms, 2, 1, 0, 2, 0),
		"start correction, no resets":  envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnFirstT|1<<columnFirst|1<<columnStartCorrection, 2, 2, 2, 2, 0, 2, 0, 2, 0, 0, 0, 2),
		"negative start resets":        envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnFirstT|1<<columnFirst|1<<columnStartResets, 2, 2, 2, 3, 0, 4, 0, 2, 0, 0, 0, 0, 1),
		"start correction of no kind":  envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnFirstT|1<<columnFirst|1<<columnStartResets|1<<columnStartCorrection, 2, 2, 2, 3, 3, 0, 4, 0, 2, 0, 0, 0, 0, 2, 7, 0, 0),
		"start resets of no kind":      envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnFirstT|1<<columnFirst|1<<columnStartResets, 2, 2, 2, 3, 0, 4, 0, 2, 0, 0, 2, 0, 2),
		"start corrections, no bucket": envelopeOf(1000, 1, 0, 1, 1<<columnCount|1<<columnFirstT|1<<columnFirst|1<<columnStartCorrections, 2, 2, 2, 1, 0, 2, 0, 2, 0, 0, 7),
		"corrections without a bucket": envelopeOf(1000, 1, 0, 1, 1<<columnFlags|1<<columnCorrections, 2, 1, 0, 16, 0),
	} {
		into := goldenBuckets(t)["floats counter"]
		want := *into
		require.ErrorIs(t, Decode(b, AllColumns, into), ErrCorrupt, name)
		require.Equal(t, want, *into, name)
	}
}

func TestEveryCutAndFlippedBitIsSeen(t *testing.T) {
	for _, name := range []string{"floats resets everywhere", "odd histograms"} {
		good := AppendChunk(nil, goldenBuckets(t)[name], fiveMinutes, 1)
		var into Buckets
		for n := range good {
			require.ErrorIs(t, Decode(good[:n], AllColumns, &into), ErrCorrupt)
			bad := append([]byte(nil), good...)
			bad[n] ^= 1 << (n % 8)
			require.ErrorIs(t, Decode(bad, AllColumns, &into), ErrCorrupt)
		}
		require.Zero(t, into.Len())
	}
}

// TestMutatedChunks checks that Decode doesn't panic and allocates little memory for chunks with changed bytes and a
// corrected checksum. An accepted chunk must agree with its envelope.
func TestMutatedChunks(t *testing.T) {
	var before, after runtime.MemStats
	for name, b := range goldenBuckets(t) {
		good := AppendChunk(nil, b, b.End[0]-b.Start[0], 1)
		r := rand.New(rand.NewPCG(soak.FirstSeed(t)+uint64(len(good)), 4))
		accepted := 0
		runtime.ReadMemStats(&before)
		for range 300 {
			bad := append([]byte(nil), good...)
			for range 1 + r.IntN(3) {
				bad[r.IntN(len(bad))] = byte(r.Uint32())
			}
			accepted += countAccepted(t, resealed(bad), name)
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(300*MaxBuckets*1024), name)
		require.Positive(t, accepted, "%s: some changes only change values", name)
	}
}

// countAccepted decodes b with different columns, and returns the number of times it was accepted.
func countAccepted(t testing.TB, b []byte, name string) (accepted int) {
	for _, want := range []Columns{AllColumns, rateColumns, ColumnSum} {
		var got Buckets
		if err := Decode(b, want, &got); err != nil {
			require.ErrorIs(t, err, ErrCorrupt, name)
			require.Zero(t, got.Len(), name)
			continue
		}
		accepted++
		info, err := Header(b)
		require.NoError(t, err, name)
		require.Len(t, got.End, info.Count, name)
		require.Equal(t, []int64{info.MinEnd, info.MaxEnd}, []int64{got.End[0], got.End[len(got.End)-1]}, name)
		for i, end := range got.End {
			require.Equal(t, end-info.Width, got.Start[i], name)
			if want == AllColumns && got.Count[i] > 0 {
				require.True(t, got.Start[i] < got.FirstT[i] && got.LastT[i] <= end, name)
			}
		}
	}
	return accepted
}

func FuzzDecode(f *testing.F) {
	for _, b := range goldenBuckets(f) {
		f.Add(AppendChunk(nil, b, b.End[0]-b.Start[0], 1))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		countAccepted(t, b, "as it is")
		countAccepted(t, resealed(b), "resealed")
	})
}

// FuzzRoundTrip requires that buckets are unchanged after they are encoded and decoded, and that coarsening them equals
// building wider buckets from the samples. The input is 10 bytes per sample.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz0123456789"), uint16(300))
	f.Fuzz(func(t *testing.T, b []byte, width uint16) {
		var s chunk.Samples
		for at := int64(-1000); len(b) >= 10 && s.Len() < MaxBuckets; b = b[10:] {
			at += int64(b[0]) + int64(b[1])<<4
			s.AppendFloat(at, int64(b[1]&1)*(at-int64(b[0])), math.Float64frombits(binary.LittleEndian.Uint64(b[2:])))
		}
		s.Normalize()
		var buckets, coarse, built, got Buckets
		AppendEvery(&buckets, &s, 1+int64(width))
		Coarsen(&coarse, &buckets, 3*(1+int64(width)))
		AppendEvery(&built, &s, 3*(1+int64(width)))
		requireAlike(t, &built, &coarse, "coarse")
		if len(buckets.End) == 0 {
			return
		}
		require.NoError(t, Decode(AppendChunk(nil, &buckets, 1+int64(width), 3), AllColumns, &got))
		requireSame(t, &buckets, &got, "round trip")
	})
}
