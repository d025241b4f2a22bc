package format

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func TestExemplarRoundTrip(t *testing.T) {
	var builder labels.ScratchBuilder
	values := []float64{
		math.Inf(-1), -1.5, 0, math.Copysign(0, -1), 1e-300, 1, math.Inf(1), math.NaN(),
		math.Float64frombits(0xfff8000000000042),
	}
	for _, v := range values {
		for _, ls := range []labels.Labels{labels.EmptyLabels(), labels.FromStrings("trace_id", "ä", "span_id", "1")} {
			e, err := ParseExemplar(-7, AppendExemplar(nil, v, ls), &builder)
			require.NoError(t, err)
			require.Equal(t, math.Float64bits(v), math.Float64bits(e.Value))
			require.True(t, labels.Equal(ls, e.Labels))
			require.Equal(t, int64(-7), e.Ts)
		}
	}
	require.Less(
		t, string(AppendExemplar(nil, -2, labels.EmptyLabels())), string(AppendExemplar(nil, -1, labels.EmptyLabels())),
	)
	require.Less(
		t, string(AppendExemplar(nil, -1, labels.EmptyLabels())), string(AppendExemplar(nil, 0, labels.EmptyLabels())),
	)
	require.Less(
		t, string(AppendExemplar(nil, 1, labels.EmptyLabels())), string(AppendExemplar(nil, 2, labels.EmptyLabels())),
	)
}

// TestExemplarsGolden checks the encoding of a row, which must never change.
func TestExemplarsGolden(t *testing.T) {
	list := []Exemplar{
		{-5, AppendExemplar(nil, -1, labels.EmptyLabels())},
		{1_777_636_800_000, AppendExemplar(nil, 0.25, labels.FromStrings("trace_id", "abc"))},
	}
	row := AppendExemplars(nil, list)
	require.Equal(t, "010908400fffffffffffff8ad8c7b6bc6715bfd00000000000000874726163655f696403616263",
		fmt.Sprintf("%x", row[:len(row)-4]))
	words, err := Describe(engine.Raw, nil, engine.Row{
		Clustering: ExemplarsKey("", 0, ""), Value: AppendRawChunk(nil, RawChunk{Data: row}),
	})
	require.NoError(t, err)
	require.Contains(t, words, `2 exemplars, {} -1 at 1969-12-31T23:59:59.995Z, {trace_id="abc"} 0.25 at`)
	got, err := parseExemplars(row, nil)
	require.NoError(t, err)
	require.Equal(t, list, got)
	for i := range row {
		bad := slices.Clone(row)
		bad[i] ^= 0x40
		_, err := parseExemplars(bad, nil)
		require.ErrorIs(t, err, ErrMalformedExemplar, "byte %d", i)
		_, err = parseExemplars(row[:i], nil)
		require.ErrorIs(t, err, ErrMalformedExemplar, "the first %d bytes", i)
	}
}

func FuzzExemplars(f *testing.F) {
	f.Add(AppendExemplars(nil, []Exemplar{{15_000, AppendExemplar(nil, 1, labels.FromStrings("a", "b"))}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 { // Invalid bytes with a correct checksum.
			b = binary.LittleEndian.AppendUint32(slices.Clone(b[:len(b)-4]), crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		list, err := parseExemplars(b, nil)
		if err != nil {
			return
		}
		var builder labels.ScratchBuilder
		for _, e := range list {
			if x, err := ParseExemplar(e.T, e.Data, &builder); err == nil {
				again, err := ParseExemplar(e.T, AppendExemplar(nil, x.Value, x.Labels), &builder)
				require.NoError(t, err)
				require.True(t, labels.Equal(x.Labels, again.Labels))
			}
		}
		again, err := parseExemplars(AppendExemplars(nil, list), nil)
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}
