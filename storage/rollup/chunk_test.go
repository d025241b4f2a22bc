package rollup

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// text writes buckets bit by bit, so that two that read alike are alike.
func text(b *Buckets, i int) string {
	at := func(column []float64) string {
		if column == nil {
			return "–"
		}
		return fmt.Sprintf("%v (%#016x)", column[i], math.Float64bits(column[i]))
	}
	number := func(column []int64) string {
		if column == nil {
			return "0"
		}
		return fmt.Sprint(column[i])
	}
	small := func(column []uint32) string {
		if column == nil {
			return "–"
		}
		return fmt.Sprint(column[i])
	}
	out := fmt.Sprintf("(%d %d] flags %d count %s t %s %s st %s %s first %s last %s min %s max %s sum %s low %s correction %s resets %s changes %s",
		b.Start[i], b.End[i], b.Flags[i], small(b.Count), number(b.FirstT), number(b.LastT), number(b.FirstST), number(b.LastST),
		at(b.First), at(b.Last), at(b.Min), at(b.Max), at(b.Sum), at(b.SumLow), at(b.Correction), small(b.Resets), small(b.Changes))
	if b.Histograms != nil && b.Histograms[i] != nil {
		h := b.Histograms[i]
		out += fmt.Sprintf(" histograms %v %v %v", h.First, h.Last, h.Correction)
	}
	return out
}

func requireSame(t testing.TB, want, got *Buckets, name string) {
	t.Helper()
	require.Equal(t, want.End, got.End, name)
	for i := range want.End {
		require.Equal(t, text(want, i), text(got, i), name)
	}
	for _, n := range []int{len(got.Start), len(got.Flags), len(got.Count), len(got.FirstT), len(got.LastT), len(got.First),
		len(got.Last), len(got.Min), len(got.Max), len(got.Sum), len(got.SumLow), len(got.Correction), len(got.Resets), len(got.Changes)} {
		require.Equal(t, len(want.End), n, name)
	}
}

// pieces cuts buckets into those that fit a chunk.
func (b *Buckets) slice(from, to int) *Buckets {
	c := &Buckets{
		Start: b.Start[from:to], End: b.End[from:to], Flags: b.Flags[from:to], Count: b.Count[from:to],
		FirstT: b.FirstT[from:to], LastT: b.LastT[from:to], First: b.First[from:to], Last: b.Last[from:to],
		Min: b.Min[from:to], Max: b.Max[from:to], Sum: b.Sum[from:to], SumLow: b.SumLow[from:to],
		Correction: b.Correction[from:to], Resets: b.Resets[from:to], Changes: b.Changes[from:to],
	}
	if b.FirstST != nil {
		c.FirstST, c.LastST = b.FirstST[from:to], b.LastST[from:to]
	}
	if b.Histograms != nil {
		c.Histograms = b.Histograms[from:to]
	}
	return c
}

func allShapes() []shape { return append(usual(), unusual()...) }

func TestChunksComeBackBitForBit(t *testing.T) {
	for _, sh := range allShapes() {
		for seed := range uint64(2) {
			for _, s := range []*chunk.Samples{sh.floats(600, seed), sh.ragged(600, seed)} {
				for _, width := range []int64{fiveMinutes, oneHour, 1000} {
					var b Buckets
					AppendEvery(&b, s, width)
					var got Buckets
					for from := 0; from < len(b.End); from += 50 {
						to := min(from+50, len(b.End))
						encoded := AppendChunk(nil, b.slice(from, to), width, 7)
						info, err := Header(encoded)
						require.NoError(t, err)
						require.Equal(t, to-from, info.Count)
						require.Equal(t, []int64{b.End[from], b.End[to-1], width, 7},
							[]int64{info.MinEnd, info.MaxEnd, info.Width, int64(info.Version)})
						require.NoError(t, Decode(encoded, AllColumns, &got), sh.name)
					}
					requireSame(t, &b, &got, sh.name)
				}
			}
		}
	}
}
