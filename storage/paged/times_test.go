package paged

import (
	"context"
	"iter"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// requireBounded holds that the chunks which are wanted of some time are those that are wanted of any, but for some without samples of that time.
func (h *history) requireBounded(w Wanted) {
	read := func(w Wanted) []testRow {
		got, err := readAll(func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return h.rows.Chunks(ctx, w) }, engine.Range{})
		require.NoError(h.t, err)
		return got
	}
	w.KeysOnly = false
	all := read(w)
	w.Bounded, w.MinT = true, w.First+h.rng.Int64N(2*slotMS)-slotMS/2
	w.MaxT = w.MinT + h.rng.Int64N(slotMS)
	got := read(w)
	next := 0
	for _, row := range all {
		if next < len(got) && engine.Compare(got[next].key, row.key) == 0 {
			require.Equal(h.t, row, got[next])
			next++
			continue
		}
		raw, err := format.ParseRawChunk([]byte(row.value))
		require.NoError(h.t, err)
		info, err := chunk.Header(raw.Data)
		require.NoError(h.t, err)
		require.True(h.t, info.MaxT < w.MinT || info.MinT > w.MaxT, "a chunk from %d to %d isn't there, asked from %d to %d", info.MinT, info.MaxT, w.MinT, w.MaxT)
	}
	require.Equal(h.t, len(got), next)
}
