package rollup

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// bucketText formats bucket i with all bits of its values, for comparisons.
func bucketText(b *Buckets, i int) string {
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
	out := fmt.Sprintf(
		"(%d %d] flags %d count %s t %s %s st %s %s first %s last %s min %s max %s sum %s low %s moment %s line %s %s %s correction %s resets %s changes %s",
		b.Start[i], b.End[i], b.Flags[i], small(b.Count), number(b.FirstT), number(b.LastT), number(b.FirstST),
		number(b.LastST), at(b.First), at(b.Last), at(b.Min), at(b.Max), at(b.Sum), at(b.SumLow), at(b.Moment),
		at(b.Comoment), number(b.TimeSum), number(b.TimeSquares), at(b.Correction), small(b.Resets), small(b.Changes),
	)
	if b.StartResets != nil && b.StartResets[i] > 0 {
		out += fmt.Sprintf(" start resets %d correction %s", b.StartResets[i], at(b.StartCorrection))
	}
	if b.Histograms != nil && b.Histograms[i] != nil {
		h := b.Histograms[i]
		out += fmt.Sprintf(" histograms %d %v %v %v %v %v %d %v %v %v %v %d %d",
			h.Count, h.First, h.Last, h.Correction, h.Second, h.Sum, h.Coarser, h.FirstReset, h.MixedKinds,
			h.SumDropped, h.HasGauges, h.Reconciled, h.Layouts)
		if h.FirstStartReset || h.StartCorrection != nil {
			out += fmt.Sprintf(" by start %v %v", h.FirstStartReset, h.StartCorrection)
		}
	}
	if b.Sketches != nil && b.Sketches[i] != nil {
		out += fmt.Sprintf(" sketch %v", b.Sketches[i].Bins)
	}
	return out
}

func requireSame(t testing.TB, want, got *Buckets, name string) {
	t.Helper()
	require.Equal(t, want.End, got.End, name)
	for i := range want.End {
		require.Equal(t, bucketText(want, i), bucketText(got, i), name)
	}
	for _, of := range columnNames() {
		if column := columnOf(got, of); !mayBeNil(of) || !column.IsNil() {
			require.Equal(t, len(want.End), column.Len(), "%s: column %s", name, of)
		}
	}
}

func (b *Buckets) slice(from, to int) *Buckets {
	c := b.Slice(from, to)
	return &c
}

// eachChunk calls do with the chunks of all kinds of samples, and their buckets.
func eachChunk(t testing.TB, n int, do func(name string, b *Buckets, width int64, encoded []byte)) {
	for _, data := range series(t, n) {
		for _, width := range []int64{fiveMinutes, oneHour, 1000} {
			var b Buckets
			AppendEvery(&b, data.samples, width)
			for from := 0; from < len(b.End); from += 50 {
				part := b.slice(from, min(from+50, len(b.End)))
				do(data.name, part, width, AppendChunk(nil, part, width, 7))
			}
		}
	}
}

func TestChunksComeBackBitForBit(t *testing.T) {
	eachChunk(t, 150, func(name string, b *Buckets, width int64, encoded []byte) {
		info, err := Header(encoded)
		require.NoError(t, err)
		require.Equal(t, len(b.End), info.Count)
		require.Equal(t, []int64{b.End[0], b.End[len(b.End)-1], width, 7},
			[]int64{info.MinEnd, info.MaxEnd, info.Width, int64(info.Version)})
		var got Buckets
		require.NoError(t, Decode(encoded, AllColumns, &got), name)
		requireSame(t, b, &got, name)
		require.Equal(t, encoded, AppendChunk(nil, &got, width, 7), name)
	})
}

func TestManyBuckets(t *testing.T) {
	for _, sh := range append(usualShapes(), unusualShapes()...) {
		var b, got Buckets
		AppendEvery(&b, sh.floats(MaxBuckets*2, 1), 2*intervalMS)
		for from := 0; from < len(b.End); from += MaxBuckets {
			part := b.slice(from, min(from+MaxBuckets, len(b.End)))
			require.NoError(t, Decode(AppendChunk(nil, part, 2*intervalMS, 1), AllColumns, &got), sh.name)
		}
		require.Greater(t, len(got.End), MaxBuckets/40)
		requireSame(t, &b, &got, sh.name)
	}
}

// onlyColumns returns b with only the columns in want.
func onlyColumns(b Buckets, want Columns) *Buckets {
	for _, c := range []struct {
		column Columns
		drop   func()
	}{
		{ColumnCount, func() { b.Count = nil }},
		{ColumnFirst, func() { b.First, b.FirstT = nil, nil }},
		{ColumnLast, func() { b.Last, b.LastT = nil, nil }},
		{ColumnMin, func() { b.Min = nil }},
		{ColumnMax, func() { b.Max = nil }},
		{ColumnSum, func() { b.Sum, b.SumLow = nil, nil }},
		{ColumnMoment, func() { b.Moment = nil }},
		{ColumnLine, func() { b.Comoment, b.TimeSum, b.TimeSquares = nil, nil, nil }},
		{ColumnCorrection, func() { b.Correction = nil }},
		{ColumnResets, func() { b.Resets = nil }},
		{ColumnChanges, func() { b.Changes = nil }},
		{ColumnStarts, func() { b.FirstST, b.LastST, b.StartCorrection, b.StartResets = nil, nil, nil, nil }},
	} {
		if want&c.column == 0 {
			c.drop()
		}
	}
	return &b
}

func TestOnlyWhatIsWantedIsRead(t *testing.T) {
	wants := []Columns{0, rateColumns, ColumnCorrection, ColumnSum | ColumnCorrection, ColumnMin | ColumnResets}
	for c := Columns(1); c <= AllColumns; c <<= 1 {
		wants = append(wants, c, AllColumns&^c)
	}
	eachChunk(t, 30, func(name string, b *Buckets, _ int64, encoded []byte) {
		for _, want := range wants {
			expected := onlyColumns(*b, want)
			var got Buckets
			require.NoError(t, Decode(encoded, want, &got), name)
			if want&ColumnStarts != 0 && got.FirstST == nil && expected.FirstST != nil {
				// All start timestamps are 0 in this chunk.
				expected.FirstST, expected.LastST, expected.StartCorrection, expected.StartResets = nil, nil, nil, nil
			}
			for k := range expected.Histograms {
				if h := expected.Histograms[k]; h != nil {
					left := *h
					if want&ColumnFirst == 0 {
						left.First = nil
					}
					if want&ColumnLast == 0 {
						left.Last = nil
					}
					if want&ColumnCorrection == 0 {
						left.Correction = nil
					}
					if want&ColumnCorrection == 0 || want&ColumnStarts == 0 {
						left.StartCorrection = nil
					}
					if want&ColumnSum == 0 {
						left.Sum = nil
					}
					if want&ColumnCount == 0 {
						left.Count = 0
					}
					expected.Histograms = append([]*Histograms(nil), expected.Histograms...)
					expected.Histograms[k] = &left
				}
			}
			for _, of := range columnNames() {
				require.Equal(
					t, columnOf(expected, of).IsNil(), columnOf(&got, of).IsNil(), "%s %b: is %s nil", name, want, of,
				)
			}
			for i := range b.End {
				require.Equal(t, bucketText(expected, i), bucketText(&got, i), "%s %b", name, want)
			}
		}
	})
}

func TestChunksAreAppended(t *testing.T) {
	var plain, starts, both Buckets
	AppendEvery(&plain, usualShapes()[0].floats(100, 1), fiveMinutes)
	s := &chunk.Samples{}
	for i := range int64(100) {
		s.AppendFloat(startMS+oneHour+i*intervalMS, startMS-3, float64(i))
	}
	AppendEvery(&starts, s, fiveMinutes)
	require.NoError(t, Decode(AppendChunk(nil, &plain, fiveMinutes, 1), AllColumns, &both))
	require.Nil(t, both.FirstST)
	require.NoError(t, Decode(AppendChunk(nil, &starts, fiveMinutes, 1), AllColumns, &both))
	require.Equal(t, append(make([]int64, len(plain.End)), starts.FirstST...), both.FirstST)
	require.Equal(t, append(make([]int64, len(plain.End)), starts.LastST...), both.LastST)
}

func TestReadingAllocatesNothing(t *testing.T) {
	for _, sh := range usualShapes() {
		var b, into Buckets
		AppendEvery(&b, sh.floats(480, 1), fiveMinutes)
		encoded := AppendChunk(nil, &b, fiveMinutes, 1)
		require.NoError(t, Decode(encoded, AllColumns, &into))
		require.Zero(t, testing.AllocsPerRun(10, func() {
			into.Reset()
			if err := Decode(encoded, AllColumns, &into); err != nil {
				t.Error(err)
			}
		}), sh.name)
	}
}

func TestAppendChunkRefusesWhatNoChunkHolds(t *testing.T) {
	var b Buckets
	AppendEvery(&b, usualShapes()[0].floats(100, 1), fiveMinutes)
	require.Panics(t, func() { AppendChunk(nil, &Buckets{}, fiveMinutes, 1) })
	require.Panics(t, func() { AppendChunk(nil, &b, oneHour, 1) })
	var cut Buckets
	AppendCells(&cut, usualShapes()[0].floats(100, 1), []int64{startMS + 100_000}, fiveMinutes)
	require.Panics(t, func() { AppendChunk(nil, &cut, fiveMinutes, 1) })
}
